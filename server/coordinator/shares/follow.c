/* Workers that follow a run. Nobody waits for a worker that has yet to receive the weights: it gets work when
   it says that it holds the newest version, or when nobody else is there to compute. Where a team lacks a
   worker the others wait for it in any case. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "server/coordinator/shares/shares.h"
#include "server/coordinator/state/assignment.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/speed.h"
#include "server/coordinator/state/state.h"

static void say_late(const struct coordinator *coordinator, struct member *worker);

static bool is_computed(const struct run *run) {
  return run->state == WEIR__RUN_STATE__RUNNING && coordinator_count_workers(run, WORKER_READY) > 0;
}

void coordinator_worker_follow(struct coordinator *coordinator, struct member *worker) {
  struct run *run = worker->run;
  coordinator_follow_forget(worker);
  if (!is_computed(run) || !coordinator->options.follow_ms || coordinator_is_staged(worker)) {
    coordinator_worker_set_state(worker, WORKER_READY);
    coordinator_workers_changed(run);
    return;
  }
  coordinator_worker_set_state(worker, WORKER_FOLLOWING);
  worker->following = (struct following){
      .since_ms = coordinator->now_ms, .bytes = worker->received_bytes, .is_view_due = true};
}

void coordinator_ready(struct coordinator *coordinator, struct member *worker, const Weir__Ready *ready) {
  const struct run *run = worker->run;
  (void)coordinator;
  if (run && worker->state == WORKER_FOLLOWING && strcmp(run->id, ready->run) == 0 &&
      run->incarnation == ready->incarnation && ready->version >= run->base_step &&
      ready->version <= run->plan.steps) {
    worker->following.is_caught_up = true;
    worker->ready_incarnation = run->incarnation;
  }
}

void coordinator_admit_follower(struct member *worker) {
  coordinator_follow_forget(worker);
  coordinator_worker_set_state(worker, WORKER_READY);
  coordinator_workers_changed(worker->run);
}

/* One whose executors are still stuck may well receive weights. */
void coordinator_admit_followers(struct coordinator *coordinator, struct run *run) {
  bool must_all = !is_computed(run);
  for (int i = 0; i < run->n_workers; i++) {
    struct member *member = run->workers[i];
    if (member->state != WORKER_FOLLOWING)
      continue;
    if (must_all || (member->following.is_caught_up && !speed_is_stuck(member->speed)))
      coordinator_admit_follower(member);
    else
      say_late(coordinator, member);
  }
}

void coordinator_take_work(struct member *worker) {
  worker->microbatches = worker->eval_chunks = (struct range){0, 0};
  worker->group = (struct grouping){0};
  worker->is_spare = false;
}

bool coordinator_spares_follow(struct coordinator *coordinator, struct member *const *workers, int n) {
  bool is_any = false;
  for (int i = 0; i < n && coordinator->options.follow_ms; i++) {
    if (!workers[i]->is_spare || workers[i]->ready_incarnation == workers[i]->run->incarnation)
      continue;
    is_any = true;
    coordinator_take_work(workers[i]);
    coordinator_worker_follow(coordinator, workers[i]);
  }
  return is_any;
}

void coordinator_set_aside(struct coordinator *coordinator, struct member *worker) {
  log_event(LOG_WARN, "coordinator", "worker_stuck", "run=%s id=%s", worker->run->id, worker->id);
  coordinator_worker_set_state(worker, WORKER_FOLLOWING);
  coordinator_take_work(worker);
  worker->following = (struct following){.since_ms = coordinator->now_ms, .is_stuck = true};
  worker->following.text = mem_printf("computes nothing: for %llu s it has been busy without completing a "
                                      "microbatch",
                                      (unsigned long long)(worker->speed->stuck_ms / 1000));
  coordinator_workers_changed(worker->run);
}

/* Written anew only once in a while, for each change is an event of the run. */
static void say_late(const struct coordinator *coordinator, struct member *worker) {
  struct following *following = &worker->following;
  uint64_t followed_ms = coordinator->now_ms - following->since_ms, version_bytes = 0;
  if (following->is_stuck || followed_ms < coordinator->options.follow_ms ||
      (following->text && coordinator->now_ms - following->said_ms < coordinator->options.follow_ms))
    return;
  for (uint32_t block = 0; block < worker->run->n_blocks; block++)
    version_bytes += (uint64_t)worker->run->block_elems[block] * sizeof(float);
  free(following->text);
  following->said_ms = coordinator->now_ms;
  following->text =
      mem_printf("has not caught up with the run in %llu s: it receives %.3g MB/s of weights, of which "
                 "a version has %.3g MB",
                 (unsigned long long)(followed_ms / 1000),
                 (double)(worker->received_bytes - following->bytes) / 1e3 / (double)followed_ms,
                 (double)version_bytes / 1e6);
  log_event(LOG_WARN, "coordinator", "worker_late", "run=%s id=%s message=\"%s\"", worker->run->id,
            worker->id, following->text);
}
