/* What a heartbeat says of a run. */
#include "worker/train/beat.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/train/executor/edges.h"
#include "worker/train/executor/executor.h"
#include "worker/train/reach.h"

/* Of an execution that nobody wants any more: a node may take long, but hardly so long. */
enum { HANGS_MS = 10000 };

/* Says of each execution once that it does not come back: the worker waits for it before it leaves the
   version that the execution reads, and so does nothing else. */
static void say_what_hangs_locked(struct run *run) {
  uint64_t now_ns = clock_now_ns();
  for (int i = 0; i < run->n_executors; i++) {
    struct executor *executor = &run->executors[i];
    const struct work *work = &executor->task->work;
    uint64_t since_ns = executor->void_since_ns;
    if (!executor->is_executing || executor->is_told_to_hang || since_ns == 0 ||
        now_ns - since_ns < HANGS_MS * UINT64_C(1000000))
      continue;
    executor->is_told_to_hang = true;
    log_event(
        LOG_ERROR, "worker", "executor_hangs",
        "run=%s executor=%d step=%llu index=%u seconds=%.1f: its step is over, and it does not come back; "
        "this worker does nothing else until then",
        run->load->run, i, (unsigned long long)work->step, work->index, clock_seconds(now_ns - since_ns));
  }
}

static void add_stage_locked(struct executor *executor, Weir__StageCounters *counters) {
  const struct backend_def *backend = executor->run->options.backend;
  const struct team_times *times = &executor->team->times;
  counters->busy_seconds += clock_seconds(times->stages[executor->stage - executor->run->part.first].busy_ns);
  counters->program_bytes = backend->memory_bytes(executor->train);
}

/* Executors that work alone are no teams. */
static void fill_teams_locked(struct run *run, Weir__RunCounters *of, struct arena *arena) {
  Weir__TeamCounters *counters = arena_new(arena, sizeof *counters);
  int n_stages = run->part.last - run->part.first + 1;
  if (run->part.n_stages == 1)
    return;
  weir__team_counters__init(counters);
  if (!stage_part_is_whole(&run->part))
    counters->model_stages = (uint32_t)run->part.n_stages;
  counters->teams = (uint32_t)run->n_teams;
  counters->stages = arena_new(arena, (size_t)n_stages * sizeof *counters->stages);
  for (int s = 0; s < n_stages; s++) {
    counters->stages[s] = arena_new(arena, sizeof **counters->stages);
    weir__stage_counters__init(counters->stages[s]);
  }
  counters->n_stages = (size_t)n_stages;
  for (int t = 0; t < run->n_teams; t++) {
    struct team_times *times = &run->teams[t].times;
    team_times_count(times, clock_now_ns());
    counters->steps += times->steps;
    counters->microbatches += times->microbatches;
    counters->seconds += clock_seconds(times->total_ns);
  }
  for (int i = 0; i < run->n_executors; i++)
    add_stage_locked(&run->executors[i], counters->stages[run->executors[i].stage - run->part.first]);
  of->teams = counters;
}

Weir__RunCounters *run_beat(struct run *run, struct arena *arena) {
  Weir__RunCounters *counters = NULL;
  pthread_mutex_lock(&run->lock);
  if (run->phase != RUN_FAILED) {
    counters = arena_new(arena, sizeof *counters);
    weir__run_counters__init(counters);
    counters->run = arena_strdup(arena, run->load->run);
    counters->incarnation = run->incarnation;
    counters->computed = run->totals.computed;
    counters->received_bytes = run->totals.received_bytes;
    run_fill_reached_locked(run, counters, arena);
    edges_fill_unreached_locked(run, counters, arena);
    if (run->is_loaded) {
      counters->busy_seconds = clock_seconds(executors_busy_ns_locked(run));
      say_what_hangs_locked(run);
      fill_teams_locked(run, counters, arena);
    }
  }
  pthread_mutex_unlock(&run->lock);
  return counters;
}
