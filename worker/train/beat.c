/* What a heartbeat says of a run. */
#include "worker/train/beat.h"

#include "common/base/clock.h"
#include "common/base/log.h"
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
        run->load->run, i, (unsigned long long)work->version, work->index, clock_seconds(now_ns - since_ns));
  }
}

void run_beat(struct run *run, Weir__Heartbeat *heartbeat, struct arena *arena) {
  pthread_mutex_lock(&run->lock);
  if (run->phase != RUN_FAILED) {
    heartbeat->run = arena_strdup(arena, run->load->run);
    heartbeat->incarnation = run->incarnation;
    heartbeat->computed = run->totals.computed;
    heartbeat->received_bytes = run->totals.received_bytes;
    run_fill_reached_locked(run, heartbeat, arena);
    if (run->is_loaded) {
      heartbeat->busy_seconds = clock_seconds(executors_busy_ns_locked(run));
      say_what_hangs_locked(run);
    }
  }
  pthread_mutex_unlock(&run->lock);
}
