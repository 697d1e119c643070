/* Workers that follow a run. Nobody waits for a worker that has yet to receive the weights: it gets work when
   it says that it holds the newest version, or when nobody else is there to compute. Where a team lacks a
   worker the others wait for it in any case. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "server/coordinator/shares/shares.h"
#include "server/coordinator/state/assignment.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/speed.h"
#include "server/coordinator/state/state.h"

static void say_late(const struct coordinator *coordinator, struct seat *seat);

static bool is_computed(const struct run *run) {
  return run->state == WEIR__RUN_STATE__RUNNING && coordinator_count_seats(run, SEAT_READY) > 0;
}

void coordinator_seat_follow(struct coordinator *coordinator, struct seat *seat) {
  struct run *run = seat->run;
  coordinator_follow_forget(seat);
  if (!is_computed(run) || !coordinator->options.follow_ms || coordinator_is_staged(seat)) {
    coordinator_seat_set_state(seat, SEAT_READY);
    coordinator_workers_changed(run);
    return;
  }
  coordinator_seat_set_state(seat, SEAT_FOLLOWING);
  seat->following =
      (struct following){.since_ms = coordinator->now_ms, .bytes = seat->received_bytes, .is_view_due = true};
}

void coordinator_ready(struct member *worker, const Weir__Ready *ready) {
  struct seat *seat = coordinator_seat(worker, ready->run);
  const struct run *run = seat ? seat->run : NULL;
  if (seat && seat->state == SEAT_FOLLOWING && run->incarnation == ready->incarnation &&
      ready->version >= run->base_step && ready->version <= run->plan.steps) {
    seat->following.is_caught_up = true;
    seat->ready_incarnation = run->incarnation;
  }
}

void coordinator_admit_follower(struct seat *seat) {
  coordinator_follow_forget(seat);
  coordinator_seat_set_state(seat, SEAT_READY);
  coordinator_workers_changed(seat->run);
}

/* One whose executors are still stuck may well receive weights. */
void coordinator_admit_followers(struct coordinator *coordinator, struct run *run) {
  bool must_all = !is_computed(run);
  for (int i = 0; i < run->n_seats; i++) {
    struct seat *seat = run->seats[i];
    if (seat->state != SEAT_FOLLOWING)
      continue;
    if (must_all || (seat->following.is_caught_up && !speed_is_stuck(seat->speed)))
      coordinator_admit_follower(seat);
    else
      say_late(coordinator, seat);
  }
}

void coordinator_take_work(struct seat *seat) {
  seat->microbatches = seat->eval_chunks = (struct range){0, 0};
  seat->group = (struct grouping){0};
  seat->is_spare = false;
}

bool coordinator_spares_follow(struct coordinator *coordinator, struct seat *const *seats, int n) {
  bool is_any = false;
  for (int i = 0; i < n && coordinator->options.follow_ms; i++) {
    if (!seats[i]->is_spare || seats[i]->ready_incarnation == seats[i]->run->incarnation)
      continue;
    is_any = true;
    coordinator_take_work(seats[i]);
    coordinator_seat_follow(coordinator, seats[i]);
  }
  return is_any;
}

void coordinator_set_aside(struct coordinator *coordinator, struct seat *seat) {
  log_event(LOG_WARN, "coordinator", "worker_stuck", "run=%s id=%s", seat->run->id, seat->worker->id);
  coordinator_seat_set_state(seat, SEAT_FOLLOWING);
  coordinator_take_work(seat);
  seat->following = (struct following){.since_ms = coordinator->now_ms, .is_stuck = true};
  seat->following.text = mem_printf("computes nothing: for %llu s it has been busy without completing a "
                                    "microbatch",
                                    (unsigned long long)(seat->speed->stuck_ms / 1000));
  coordinator_workers_changed(seat->run);
}

/* Written anew only once in a while, for each change is an event of the run. */
static void say_late(const struct coordinator *coordinator, struct seat *seat) {
  struct following *following = &seat->following;
  uint64_t followed_ms = coordinator->now_ms - following->since_ms, version_bytes = 0;
  if (following->is_stuck || followed_ms < coordinator->options.follow_ms ||
      (following->text && coordinator->now_ms - following->said_ms < coordinator->options.follow_ms))
    return;
  for (uint32_t block = 0; block < seat->run->n_blocks; block++)
    version_bytes += (uint64_t)seat->run->block_elems[block] * sizeof(float);
  free(following->text);
  following->said_ms = coordinator->now_ms;
  following->text =
      mem_printf("has not caught up with the run in %llu s: it receives %.3g MB/s of weights, of which "
                 "a version has %.3g MB",
                 (unsigned long long)(followed_ms / 1000),
                 (double)(seat->received_bytes - following->bytes) / 1e3 / (double)followed_ms,
                 (double)version_bytes / 1e6);
  log_event(LOG_WARN, "coordinator", "worker_late", "run=%s id=%s message=\"%s\"", seat->run->id,
            seat->worker->id, following->text);
}
