/* Whether what claims are weighed by has changed: all that server/coordinator/core/claims.c looks at, but for
   what only a wish changes, and for the time that a worker has been with its run. */
#include <string.h>

#include "common/base/memory.h"

#include "server/coordinator/core/claims.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/reissuing.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/speed.h"
#include "server/coordinator/state/state.h"

enum { SEAT_WORDS = 2, MEMBER_WORDS = 2 + SEAT_WORDS * SEATS_MAX, RUN_WORDS = 2, STATE_BITS = 8 };

static uint64_t bit(bool is_set, int at) {
  return (uint64_t)is_set << at;
}

static uint64_t state_of(const struct coordinator *coordinator, const struct member *member) {
  bool is_worker = member->role == WEIR__ROLE__WORKER;
  uint64_t bits = (uint64_t)member->state | bit(is_worker, STATE_BITS) | (uint64_t)member->n_seats << 32;
  if (is_worker)
    return bits;
  return bits | bit(coordinator_may_own_blocks(coordinator, member, false), STATE_BITS + 1) |
         bit(*member->message != 0, STATE_BITS + 2);
}

static uint64_t state_of_seat(const struct coordinator *coordinator, const struct seat *seat) {
  return (uint64_t)seat->state | bit(speed_is_stuck(seat->speed), STATE_BITS) |
         bit(coordinator_is_out_of_reach(coordinator, seat), STATE_BITS + 1);
}

static uint64_t state_of_run(const struct run *run) {
  bool has_doubts = run->reissue && run->reissue->doubts.n_open > 0;
  return (uint64_t)run->state | bit(run->is_begun, STATE_BITS) | bit(run->suspicion, STATE_BITS + 1) |
         bit(has_doubts, STATE_BITS + 2) | bit(coordinator_is_at_hold(run), STATE_BITS + 3) |
         bit(run->origin.is_to_come, STATE_BITS + 4) | (uint64_t)run->n_refused << 32;
}

/* Whether it was another. */
static bool put(struct weighed *weighed, uint64_t word) {
  bool is_other = weighed->words[weighed->n] != word;
  weighed->words[weighed->n++] = word;
  return is_other;
}

bool coordinator_claims_changed(struct coordinator *coordinator) {
  struct weighed *weighed = &coordinator->weighed;
  int most = coordinator->n_members * MEMBER_WORDS + coordinator->n_runs * RUN_WORDS, n = weighed->n;
  bool has_changed = false;
  if (most > weighed->capacity) {
    weighed->words = mem_resize(weighed->words, (size_t)most * sizeof *weighed->words);
    memset(weighed->words + weighed->capacity, 0,
           (size_t)(most - weighed->capacity) * sizeof *weighed->words);
    weighed->capacity = most;
  }
  weighed->n = 0;
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *member = coordinator->members[i];
    has_changed |= put(weighed, member->key) | put(weighed, state_of(coordinator, member));
    for (int at = 0; at < member->n_seats; at++) {
      const struct seat *seat = member->seats[at];
      has_changed |=
          put(weighed, (uint64_t)(uintptr_t)seat->run) | put(weighed, state_of_seat(coordinator, seat));
    }
  }
  for (int i = 0; i < coordinator->n_runs; i++) {
    struct run *run = coordinator->runs[i];
    run->weighed = state_of_run(run);
    has_changed |= put(weighed, (uint64_t)(uintptr_t)run) | put(weighed, run->weighed);
  }
  return has_changed || n != weighed->n;
}

bool coordinator_claim_changed(const struct run *run) {
  return run->weighed != state_of_run(run);
}
