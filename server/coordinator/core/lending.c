/* When a run lets go of a seat. */
#include "server/coordinator/core/lending.h"

#include "common/base/log.h"
#include "server/coordinator/core/line.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/speed.h"
#include "server/coordinator/state/state.h"

enum { TENURE_MS = 2000 };

bool lending_is_held(const struct coordinator *coordinator, const struct seat *seat) {
  return coordinator_is_seated(seat) && !speed_is_stuck(seat->speed) &&
         !coordinator_is_out_of_reach(coordinator, seat);
}

bool lending_is_of_use(const struct coordinator *coordinator, const struct seat *seat) {
  return lending_is_held(coordinator, seat) && seat->run->claim.is_made;
}

bool lending_has_work(const struct seat *seat) {
  return seat->state == SEAT_READY && seat->microbatches.begin < seat->microbatches.end;
}

bool lending_may_be_cut(const struct run *run) {
  return run->state != WEIR__RUN_STATE__RUNNING || run->claim.is_cut || run->step >= run->uncut_step;
}

/* The run has to wait for its next turn: the present one ends with a completed step. */
static bool is_within_turn(const struct coordinator *coordinator, const struct run *lender,
                           const struct run *run) {
  return lender->claim.whole == 0 && lender->turn.stepped_ms != coordinator->now_ms &&
         line_priority(lender) == line_priority(run);
}

/* For a run that has not its least a worker is taken all the same; but not one that has just come back with
   what it had: after a coordinator's death, another one may be about to come back to that run. */
static bool is_settling_in(const struct coordinator *coordinator, const struct seat *seat,
                           const struct run *run) {
  bool is_urgent = run->claim.held + run->claim.reserved < run->claim.least;
  if (coordinator->now_ms - seat->given_ms >= TENURE_MS)
    return false;
  return !is_urgent || (seat->is_back && line_priority(seat->run) >= line_priority(run));
}

bool lending_may_take(const struct coordinator *coordinator, const struct seat *seat, const struct run *run) {
  if (lending_has_work(seat) &&
      (!lending_may_be_cut(seat->run) || is_within_turn(coordinator, seat->run, run)))
    return false;
  return !is_settling_in(coordinator, seat, run);
}

void lending_take_back(struct coordinator *coordinator, struct seat *seat, const char *reason) {
  struct run *lender = seat->run;
  if (lending_has_work(seat)) {
    lender->claim.is_cut = true;
    lender->uncut_step = lender->step + 1;
  }
  if (lending_is_held(coordinator, seat)) {
    lender->claim.held--;
    lender->claim.all -= seat->worker->executors;
    lender->claim.owned -= !seat->is_lent && seat == seat->worker->seats[0];
  }
  log_event(LOG_INFO, "coordinator", "worker_taken", "run=%s id=%s reason=\"%s\"", lender->id,
            seat->worker->id, reason);
  coordinator_rest_seat(coordinator, seat, reason);
}
