/* How the teams of a worker compute. */
#include "server/coordinator/state/teams.h"

#include <math.h>

#include "common/agree/spec.h"
#include "common/base/memory.h"

static bool is_time(double seconds) {
  return isfinite(seconds) && seconds >= 0;
}

/* In which a task is computed, those on other workers included. */
static size_t count_stages(const Weir__TeamCounters *counters) {
  return counters->model_stages > counters->n_stages ? counters->model_stages : counters->n_stages;
}

static bool is_sound(const Weir__TeamCounters *counters, uint32_t executors) {
  size_t n_stages = count_stages(counters);
  if (counters->n_stages == 0 || n_stages < 2 || n_stages > SPEC_STAGES_MAX || counters->teams == 0 ||
      counters->teams > executors / counters->n_stages || !is_time(counters->seconds) ||
      counters->steps > counters->microbatches)
    return false;
  for (size_t s = 0; s < counters->n_stages; s++)
    if (!is_time(counters->stages[s]->busy_seconds))
      return false;
  return true;
}

/* No less than nothing: a sum of times is rounded. */
static double idle_share(double busy_seconds, double seconds) {
  if (!(seconds > 0))
    return NAN;
  return busy_seconds < seconds ? 1 - busy_seconds / seconds : 0;
}

struct teams *teams_of(const Weir__TeamCounters *counters, uint32_t executors) {
  struct teams *teams;
  double fills;
  if (!is_sound(counters, executors))
    return NULL;
  teams = mem_new(sizeof *teams + counters->n_stages * sizeof *teams->stages);
  teams->n = counters->teams;
  teams->n_stages = (int)counters->n_stages;
  fills = (double)counters->steps * (double)(count_stages(counters) - 1);
  teams->bubble = counters->steps > 0 ? fills / ((double)counters->microbatches + fills) : (double)NAN;
  for (int s = 0; s < teams->n_stages; s++)
    teams->stages[s] = (struct team_stage){idle_share(counters->stages[s]->busy_seconds, counters->seconds),
                                           counters->stages[s]->program_bytes};
  return teams;
}
