/* How long the stages of a team compute. */
#include "worker/train/executor/team_times.h"

#include <stdlib.h>

#include "common/base/memory.h"

void team_times_init(struct team_times *times, int n_stages) {
  *times =
      (struct team_times){.n_stages = n_stages, .stages = mem_new((size_t)n_stages * sizeof *times->stages)};
}

void team_times_fini(struct team_times *times) {
  free(times->stages);
  *times = (struct team_times){0};
}

void team_times_add(struct team_times *times, uint64_t version) {
  times->steps += times->microbatches == 0 || version != times->version;
  times->version = version;
  times->microbatches++;
}

void team_times_count(struct team_times *times, uint64_t now_ns) {
  uint64_t passed_ns = now_ns - times->counted_ns;
  times->counted_ns = now_ns;
  if (times->n_at_microbatches == 0 && !times->is_held)
    return;
  times->total_ns += passed_ns;
  for (int s = 0; s < times->n_stages; s++)
    if (times->stages[s].work != STAGE_WAITS)
      times->stages[s].busy_ns += passed_ns;
}

void team_times_set(struct team_times *times, int stage, enum stage_work work, uint64_t now_ns) {
  struct stage_time *of = &times->stages[stage];
  team_times_count(times, now_ns);
  times->n_at_microbatches += (work == STAGE_AT_MICROBATCH) - (of->work == STAGE_AT_MICROBATCH);
  of->work = work;
}

void team_times_hold(struct team_times *times, bool is_held, uint64_t now_ns) {
  team_times_count(times, now_ns);
  times->is_held = is_held;
}
