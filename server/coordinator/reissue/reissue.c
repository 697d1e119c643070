/* Which microbatches and chunks are computed elsewhere, and by whom: late ones by workers that have done
   theirs. One duplicate of each at a time; one that takes as long as was waited before is given to another.
 */
#include "server/coordinator/reissue/reissue.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/modes/mode.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/shares/assign.h"
#include "server/coordinator/shares/shares.h"
#include "server/coordinator/state/assignment.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/reissuing.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

enum { PATIENCE_MIN_MS = 200, WAITED_MAX_S = 3600 };
static const double STUCK_WEIGHT = 1e-6;

/* What is late of one kind: the duties, and the ranges that a report names. */
struct late_kind {
  struct duty *duties;
  uint32_t n_duties;
  Weir__Range *const *ranges;
  size_t n_ranges;
  bool is_chunks;
};

static bool shows_over(const struct run *run, uint64_t step, uint64_t before);
static bool is_fresh(const struct coordinator *coordinator, const struct reissue *reissue);
static uint32_t count_missing(const struct late_kind *kind);
static void give_late(struct coordinator *coordinator, struct run *run, const struct late_kind *kind);
static struct helper *choose(const struct run *run, struct helper *helpers, int n,
                             const struct late_kind *kind, uint32_t item);

void coordinator_late(struct coordinator *coordinator, struct member *server, const Weir__Late *late) {
  struct run *run = coordinator_reporting_run(coordinator, server, late->run, late->incarnation);
  struct late_kind microbatches = {.ranges = late->microbatches, .n_ranges = late->n_microbatches};
  struct late_kind chunks = {.ranges = late->chunks, .n_ranges = late->n_chunks, .is_chunks = true};
  double waited_s = late->waited_seconds > 0 ? late->waited_seconds : 0;
  struct reissue *reissue;
  bool is_partial;
  if (!run || run->state != WEIR__RUN_STATE__RUNNING || late->step > run->plan.steps ||
      coordinator_stands(run)) /* its workers stand still, as they are to */
    return;
  microbatches.n_duties = late->step < run->plan.steps ? plan_units(&run->plan) : 0;
  chunks.n_duties = plan_evaluates(&run->plan, late->step) ? run->plan.eval_chunks : 0;
  is_partial = microbatches.n_duties > count_missing(&microbatches); /* somebody has pushed the others */
  reissue = coordinator_reissue_at(coordinator, run, late->step, is_partial);
  if (!reissue)
    return;
  reissue->told_ms = coordinator->now_ms;
  reissue->waited_ms = (uint64_t)((waited_s < WAITED_MAX_S ? waited_s : WAITED_MAX_S) * 1000);
  microbatches.duties = reissue->microbatches;
  chunks.duties = reissue->chunks;
  give_late(coordinator, run, &microbatches);
  give_late(coordinator, run, &chunks);
}

struct reissue *coordinator_reissue_at(struct coordinator *coordinator, struct run *run, uint64_t step,
                                       bool is_proven) {
  struct reissue *reissue = run->reissue;
  if (reissue && step == reissue->step) {
    reissue->is_proven |= is_proven;
    return reissue;
  }
  if (reissue && reissue->is_proven && shows_over(run, reissue->step, step))
    return NULL;
  if (reissue && step > reissue->step && !(is_proven && shows_over(run, step, reissue->step)) &&
      is_fresh(coordinator, reissue))
    return NULL; /* another server is behind */
  coordinator_reissue_free(run);
  reissue = run->reissue = mem_new(sizeof *reissue);
  *reissue = (struct reissue){.number = ++coordinator->reissues_seen,
                              .incarnation = run->incarnation,
                              .step = step,
                              .is_proven = is_proven};
  reissue->n_microbatches = plan_units(&run->plan);
  reissue->n_chunks = run->plan.eval_chunks;
  reissue->microbatches = mem_new(reissue->n_microbatches * sizeof *reissue->microbatches);
  reissue->chunks = mem_new(reissue->n_chunks * sizeof *reissue->chunks);
  reissue->doubts.is_open = mem_new(run->n_blocks * sizeof *reissue->doubts.is_open);
  return reissue;
}

/* Whether a part of `step` shows that a step before is over: who pushed it had all of the version that it is
   computed from. */
static bool shows_over(const struct run *run, uint64_t step, uint64_t before) {
  struct mode mode = mode_of(run->spec);
  return before < mode_proves(&mode, mode_version(&mode, step));
}

/* The server that told of it would have told again if it were late still. */
static bool is_fresh(const struct coordinator *coordinator, const struct reissue *reissue) {
  return reissue->doubts.n_open > 0 ||
         coordinator->now_ms - reissue->told_ms <= 2 * reissue->waited_ms + PATIENCE_MIN_MS;
}

/* Those of a range that there are. Ranges that are not in order are nonsense, and ignored: *end is that of
   the ones before. */
static struct range clip(const struct late_kind *kind, size_t at, uint32_t *end) {
  struct range range = {kind->ranges[at]->begin, kind->ranges[at]->end};
  if (range.begin < *end)
    range.begin = *end;
  if (range.end > kind->n_duties)
    range.end = kind->n_duties;
  if (range.begin >= range.end)
    return (struct range){0, 0};
  *end = range.end;
  return range;
}

static uint32_t count_missing(const struct late_kind *kind) {
  uint32_t count = 0, end = 0;
  for (size_t i = 0; i < kind->n_ranges; i++) {
    struct range range = clip(kind, i, &end);
    count += range.end - range.begin;
  }
  return count;
}

static void give_late(struct coordinator *coordinator, struct run *run, const struct late_kind *kind) {
  const struct reissue *reissue = run->reissue;
  uint64_t patience_ms = reissue->waited_ms > PATIENCE_MIN_MS ? reissue->waited_ms : PATIENCE_MIN_MS;
  uint32_t end = 0, given = 0;
  int n;
  struct helper *helpers = coordinator_helpers(coordinator, run, &n);
  for (size_t i = 0; i < kind->n_ranges && n > 0; i++) {
    struct range range = clip(kind, i, &end);
    for (uint32_t item = range.begin; item < range.end; item++) {
      struct duty *duty = &kind->duties[item];
      duty->missed_ms = coordinator->now_ms;
      bool is_doubted = duty->is_doubted && reissue->doubts.n_open > 0; /* doubts.c sees to it */
      if (is_doubted || coordinator_duty_is_held(coordinator, run, duty))
        continue;
      coordinator_give(coordinator, duty, choose(run, helpers, n, kind, item), patience_ms);
      given++;
    }
  }
  if (given == 0)
    return;
  log_event(LOG_INFO, "coordinator", "late", "run=%s step=%llu waited_ms=%llu %s=%u", run->id,
            (unsigned long long)reissue->step, (unsigned long long)reissue->waited_ms,
            kind->is_chunks ? "chunks" : "microbatches", given);
  coordinator_order_helpers(coordinator, run, helpers, n);
}

static const struct helper *helper_of(const struct helper *helpers, int n, uint64_t key) {
  for (int i = 0; key && i < n; i++)
    if (helpers[i].seat->worker->key == key)
      return &helpers[i];
  return NULL;
}

/* One that is stuck may come to its senses, where nobody else is left. */
static void weigh(struct coordinator *coordinator, struct helper *helpers, int n) {
  struct arena *arena = &coordinator->actions->arena;
  struct seat **seats = arena_new(arena, (size_t)n * sizeof *seats);
  struct assign_worker *speeds;
  for (int i = 0; i < n; i++)
    seats[i] = helpers[i].seat;
  speeds = coordinator_speeds(arena, seats, n);
  for (int i = 0; i < n; i++)
    helpers[i].weight = speeds[i].speed > 0 ? speeds[i].speed : STUCK_WEIGHT;
}

struct helper *coordinator_helpers(struct coordinator *coordinator, const struct run *run, int *n) {
  const struct reissue *reissue = run->reissue;
  struct helper *helpers = arena_new(&coordinator->actions->arena, (size_t)run->n_seats * sizeof *helpers);
  *n = 0;
  for (int i = 0; i < run->n_seats; i++)
    if (run->seats[i]->state == SEAT_READY && !coordinator_is_staged(run->seats[i])) /* a team has to */
      helpers[(*n)++].seat = run->seats[i];
  weigh(coordinator, helpers, *n);
  for (uint32_t i = 0; i < reissue->n_microbatches + reissue->n_chunks; i++) {
    const struct duty *duty = i < reissue->n_microbatches ? &reissue->microbatches[i]
                                                          : &reissue->chunks[i - reissue->n_microbatches];
    struct helper *helper = (struct helper *)helper_of(helpers, *n, duty->worker);
    if (helper)
      helper->load += 1 / helper->weight;
  }
  return helpers;
}

/* Whether the view gives it to this worker, or to the group that it is in. */
static bool is_owner(const struct seat *seat, const struct seat *owner) {
  return seat == owner || (seat->group.number && owner && seat->group.number == owner->group.number);
}

static const struct seat *owner_of(const struct helper *helpers, int n, bool is_chunk, uint32_t item) {
  for (int i = 0; i < n; i++) {
    const struct seat *seat = helpers[i].seat;
    const struct range *share = is_chunk ? &seat->eval_chunks : &seat->microbatches;
    if (share->begin <= item && item < share->end)
      return seat;
  }
  return NULL;
}

/* Who is late with it, by the view or as a helper, comes last, and so does who was too slow with another;
   among the others the one with the least to do. */
static struct helper *choose(const struct run *run, struct helper *helpers, int n,
                             const struct late_kind *kind, uint32_t item) {
  const struct seat *owner = owner_of(helpers, n, kind->is_chunks, item);
  const struct helper *before = helper_of(helpers, n, kind->duties[item].worker);
  struct helper *best = NULL;
  if (before) /* it had its time */
    before->seat->help.slow = run->reissue->number;
  for (int i = 0; i < n; i++) {
    struct helper *helper = &helpers[i];
    const struct seat *seat = helper->seat;
    helper->rank =
        4 * is_owner(seat, owner) + 2 * (helper == before) + (seat->help.slow == run->reissue->number);
    if (!best || helper->rank < best->rank ||
        (helper->rank == best->rank && helper->load + 1 / helper->weight < best->load + 1 / best->weight))
      best = helper;
  }
  return best;
}

void coordinator_give(const struct coordinator *coordinator, struct duty *duty, struct helper *helper,
                      uint64_t patience_ms) {
  duty->worker = helper->seat->worker->key;
  helper->seat->help.given_ms = coordinator->now_ms;
  duty->given_ms = coordinator->now_ms;
  duty->patience_ms = patience_ms;
  helper->load += 1 / helper->weight;
  helper->is_order_due = true;
}

bool coordinator_duty_is_held(const struct coordinator *coordinator, const struct run *run,
                              const struct duty *duty) {
  for (int i = 0; duty->worker && i < run->n_seats; i++) {
    const struct seat *seat = run->seats[i];
    if (seat->worker->key == duty->worker)
      return seat->state == SEAT_READY && coordinator->now_ms - duty->given_ms < duty->patience_ms;
  }
  return false;
}

void coordinator_order_helpers(struct coordinator *coordinator, struct run *run, struct helper *helpers,
                               int n) {
  for (int i = 0; i < n; i++)
    if (helpers[i].is_order_due)
      coordinator_order_reissue(coordinator, run, helpers[i].seat->worker);
}
