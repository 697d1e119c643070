/* Doubted parts: finite siblings whose sum overflows. A server lets go of both and tells; the microbatches
   are computed anew, and the server compares bits. A part that had other bits than others compute is wrong,
   and its sender's device is put into quarantine. Nothing is concluded from a sum that overflows again:
   whoever computed it anew may be the one that is wrong, so another is asked. Where nothing changes, whoever
   computes it, the training diverges. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/tree.h"
#include "common/base/log.h"
#include "common/modes/mode.h"
#include "server/coordinator/quarantine/verdict.h"
#include "server/coordinator/reissue/reissue.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/state/event_log.h"
#include "server/coordinator/state/groups_past.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/quarantines.h"
#include "server/coordinator/state/reissuing.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

/* GATHER_MS: a part that is wrong is wrong in many blocks, which are doubted one after the other.
   A worker that computes a whole step's share alone is given twice the time that all need for it together. */
enum {
  GATHER_MS = 50,
  PATIENCE_MIN_MS = 1000,
  PATIENCE_UNKNOWN_MS = 10000,
  PATIENCE_MAX_MS = 3600000,
  PATIENCE_DOUBLINGS_MAX = 5,
  WAIT_DOUBLINGS_MAX = 8,
  ROUNDS_MAX = 64,
  MARKS_PER_MICROBATCH = 16
};

/* Who is asked: the least of tier + ASKED + SLOW. Of those that may be among the wrong ones, one alone
   computes everything: what several do would be as doubtful, and no one could be told by it. */
enum { TIER_DEVICE = 1, TIER_GROUP, TIER_SENDER, ASKED, SLOW = 2 * ASKED };

static void doubt_parts(struct run *run, const Weir__Doubted *doubted);
static void doubt_duty(const struct run *run, struct duty *duty, const Weir__PushedPart *part);
static void add_sender(struct doubts *doubts, const Weir__PushedPart *part);
static void overflows_again(struct coordinator *coordinator, struct run *run, const Weir__Judged *judged);
static bool is_confirmed(const struct coordinator *coordinator, const struct run *run,
                         const Weir__Judged *judged);
static bool is_near_a_sender(const struct coordinator *coordinator, const struct run *run,
                             const struct seat *seat);
static void end_doubts(struct reissue *reissue);
static bool has_to_be_given(const struct coordinator *coordinator, const struct run *run);
static bool is_over(const struct run *run, uint64_t step);
static int tier_of(const struct coordinator *coordinator, const struct run *run, const struct seat *seat);
static int keep_best(const struct coordinator *coordinator, const struct run *run, struct helper *helpers,
                     int n);
static bool is_another_awaited(const struct coordinator *coordinator, const struct run *run,
                               const struct seat *best);
static uint64_t patience_of(const struct run *run, int n_ready);

static struct run *doubting_run(struct coordinator *coordinator, struct member *server,
                                const Weir__Doubted *doubted) {
  struct run *run = coordinator_reporting_run(coordinator, server, doubted->run, doubted->incarnation);
  bool is_sound = run && run->state == WEIR__RUN_STATE__RUNNING && doubted->step < run->plan.steps &&
                  doubted->block < run->n_blocks && coordinator_owns_block(run, server, doubted->block);
  return is_sound ? run : NULL;
}

void coordinator_doubted(struct coordinator *coordinator, struct member *server,
                         const Weir__Doubted *doubted) {
  struct run *run = doubting_run(coordinator, server, doubted);
  struct reissue *reissue = run ? coordinator_reissue_at(coordinator, run, doubted->step, true) : NULL;
  struct doubts *doubts;
  if (!reissue)
    return;
  doubts = &reissue->doubts;
  log_event(LOG_WARN, "coordinator", "doubted", "run=%s step=%llu block=%u parts=%zu", run->id,
            (unsigned long long)doubted->step, doubted->block, doubted->n_parts);
  reissue->told_ms = coordinator->now_ms;
  if (doubts->n_open == 0)
    doubts->due_ms = coordinator->now_ms + GATHER_MS;
  doubts->n_open += !doubts->is_open[doubted->block];
  doubts->is_open[doubted->block] = true;
  doubt_parts(run, doubted);
}

/* Those of a block are disjoint or nested: what names more than that is nonsense. */
static void doubt_parts(struct run *run, const Weir__Doubted *doubted) {
  struct reissue *reissue = run->reissue;
  uint32_t marks = 0;
  for (size_t i = 0; i < doubted->n_parts; i++) {
    const Weir__PushedPart *part = doubted->parts[i];
    struct tree_node node = {part->first, part->level};
    if (!tree_node_is_valid(node, reissue->n_microbatches) ||
        marks > MARKS_PER_MICROBATCH * reissue->n_microbatches)
      continue;
    add_sender(&reissue->doubts, part);
    for (uint32_t m = node.first; m < tree_node_end(node, reissue->n_microbatches); m++, marks++)
      doubt_duty(run, &reissue->microbatches[m], part);
  }
}

/* Who has it as a duplicate has to compute it again if this part was its own, or of before the doubt. */
static void doubt_duty(const struct run *run, struct duty *duty, const Weir__PushedPart *part) {
  for (int i = 0; duty->worker && i < run->n_seats; i++) {
    struct seat *seat = run->seats[i];
    if (seat->worker->key != duty->worker || seat->worker->number != part->worker)
      continue;
    seat->help.asked = run->reissue->number;
    duty->worker = 0;
  }
  if (!duty->is_doubted)
    duty->worker = 0;
  duty->is_doubted = true;
}

static void add_sender(struct doubts *doubts, const Weir__PushedPart *part) {
  for (int i = 0; i < doubts->n_senders; i++)
    if (doubts->senders[i].worker == part->worker && doubts->senders[i].view == part->view)
      return;
  if (doubts->n_senders < SENDERS_MAX)
    doubts->senders[doubts->n_senders++] = (struct sender){part->worker, part->view};
}

void coordinator_judged(struct coordinator *coordinator, struct member *server, const Weir__Judged *judged) {
  Weir__Doubted about = WEIR__DOUBTED__INIT;
  struct reissue *reissue;
  struct run *run;
  about.run = judged->run;
  about.incarnation = judged->incarnation;
  about.step = judged->step;
  about.block = judged->block;
  run = doubting_run(coordinator, server, &about);
  reissue = run ? coordinator_reissue_at(coordinator, run, judged->step, true) : NULL;
  if (!reissue)
    return;
  log_event(LOG_INFO, "coordinator", "judged", "run=%s step=%llu block=%u changed=%zu overflows=%d", run->id,
            (unsigned long long)judged->step, judged->block, judged->n_changed, judged->overflows);
  reissue->doubts.n_open -= reissue->doubts.is_open[judged->block];
  reissue->doubts.is_open[judged->block] = false;
  if (judged->overflows) {
    overflows_again(coordinator, run, judged);
    return;
  }
  if (reissue->doubts.n_open == 0)
    end_doubts(reissue);
  if (run->spec->train->deterministic) /* else honest workers differ, too */
    coordinator_convict(coordinator, run, judged);
}

static void end_doubts(struct reissue *reissue) {
  reissue->doubts.n_senders = reissue->doubts.rounds = 0;
  for (uint32_t m = 0; m < reissue->n_microbatches; m++)
    if (reissue->microbatches[m].is_doubted)
      reissue->microbatches[m] = (struct duty){0};
}

static bool names(const Weir__Judged *judged, uint32_t worker) {
  for (size_t i = 0; i < judged->n_computed_by; i++)
    if (judged->computed_by[i] == worker)
      return true;
  return false;
}

/* Unless that is final, the server doubts what came now, too, and tells so next. A sum that several computed
   says nothing of any one of them. */
static void overflows_again(struct coordinator *coordinator, struct run *run, const Weir__Judged *judged) {
  const struct reissue *reissue = run->reissue;
  for (int i = 0; i < run->n_seats; i++) {
    struct seat *seat = run->seats[i];
    if (!names(judged, seat->worker->number))
      continue;
    seat->help.asked = reissue->number;
    if (judged->n_computed_by == 1)
      seat->help.overflowed = reissue->number;
  }
  if ((judged->n_changed > 0 || !is_confirmed(coordinator, run, judged)) && run->spec->train->deterministic &&
      reissue->doubts.rounds < ROUNDS_MAX)
    return;
  coordinator_run_fail(coordinator, run, FAILURE_DIVERGED,
                       "the sum of step %llu's gradients of block %u is not finite, whoever computes it: the "
                       "training diverges; try a lower train.optimizer.lr, or look for extreme values in the "
                       "data",
                       (unsigned long long)judged->step, judged->block);
}

/* Whether the worker is about to compute for the run. */
static bool is_coming(const struct seat *seat) {
  return !coordinator_is_staged(seat) &&
         (seat->state == SEAT_LOADING || (seat->state == SEAT_FOLLOWING && !seat->following.is_stuck));
}

/* Whether others than those whose parts were doubted came to the same bits, or nobody is left to ask. */
static bool is_confirmed(const struct coordinator *coordinator, const struct run *run,
                         const Weir__Judged *judged) {
  const uint64_t number = run->reissue->number;
  bool is_by_others = true, is_one_left = run->claim.held < run->claim.share;
  for (int i = 0; i < run->n_seats; i++) {
    const struct seat *seat = run->seats[i];
    is_one_left |= is_coming(seat);
    if (seat->state != SEAT_READY)
      continue;
    is_by_others &= !names(judged, seat->worker->number) || !is_near_a_sender(coordinator, run, seat);
    is_one_left |=
        !coordinator_is_staged(seat) && seat->help.overflowed != number && seat->help.slow != number;
  }
  return is_by_others || !is_one_left;
}

/* Whether only teams of workers compute, of which none computes a microbatch alone. */
static bool is_left_to_teams(const struct run *run) {
  bool is_any = false;
  for (int i = 0; i < run->n_seats; i++) {
    const struct seat *seat = run->seats[i];
    is_any |= coordinator_is_staged(seat) && seat->state == SEAT_READY;
    if (is_coming(seat))
      return false;
  }
  return is_any;
}

void coordinator_doubts_when_due(struct coordinator *coordinator, struct run *run) {
  struct reissue *reissue = run->reissue;
  struct helper *helpers;
  uint64_t patience_ms;
  int n, best = 0;
  if (!reissue)
    return;
  if (reissue->incarnation != run->incarnation || is_over(run, reissue->step)) {
    coordinator_reissue_free(run);
    return;
  }
  if (run->state != WEIR__RUN_STATE__RUNNING || reissue->doubts.n_open == 0 ||
      coordinator->now_ms < reissue->doubts.due_ms || !has_to_be_given(coordinator, run))
    return;
  helpers = coordinator_helpers(coordinator, run, &n);
  if (n == 0 && is_left_to_teams(run)) {
    coordinator_run_fail(
        coordinator, run, FAILURE_DIVERGED,
        "step %llu: the sum of gradients that are finite overflows: the training diverges; try "
        "a lower train.optimizer.lr, or look for extreme values in the data",
        (unsigned long long)reissue->step);
    return;
  }
  patience_ms = patience_of(run, n);
  n = keep_best(coordinator, run, helpers, n);
  if (n == 0 || is_another_awaited(coordinator, run, helpers[0].seat))
    return;
  for (uint32_t m = 0; m < reissue->n_microbatches; m++) {
    struct duty *duty = &reissue->microbatches[m];
    if (!duty->is_doubted || coordinator_duty_is_held(coordinator, run, duty))
      continue;
    for (int i = best = 0; i < n; i++)
      if (helpers[i].load < helpers[best].load)
        best = i;
    coordinator_give(coordinator, duty, &helpers[best], patience_ms);
  }
  reissue->doubts.rounds++;
  coordinator_order_helpers(coordinator, run, helpers, n);
}

/* A step is complete on every server once a later one that is computed from a version behind it is complete
   somewhere. */
static bool is_over(const struct run *run, uint64_t step) {
  struct mode mode = mode_of(run->spec);
  uint64_t proof = step;
  while (proof < run->plan.steps && mode_version(&mode, proof) <= step)
    proof = mode_next(&mode, proof);
  return run->step > proof;
}

/* Who has come to a sum that overflows is asked once more after a while, if meanwhile nobody else has come.
 */
static bool is_another_awaited(const struct coordinator *coordinator, const struct run *run,
                               const struct seat *best) {
  int rounds = run->reissue->doubts.rounds;
  uint64_t wait_ms = GATHER_MS << (rounds < WAIT_DOUBLINGS_MAX ? rounds : WAIT_DOUBLINGS_MAX);
  bool is_any = false;
  for (int i = 0; i < run->n_seats; i++)
    is_any |= is_coming(run->seats[i]);
  return is_any && best->help.overflowed == run->reissue->number &&
         coordinator->now_ms - best->help.given_ms < wait_ms;
}

/* Who had the time and has not done it is slow. */
static bool has_to_be_given(const struct coordinator *coordinator, const struct run *run) {
  const struct reissue *reissue = run->reissue;
  bool is_any = false;
  for (uint32_t m = 0; m < reissue->n_microbatches; m++) {
    const struct duty *duty = &reissue->microbatches[m];
    if (!duty->is_doubted || coordinator_duty_is_held(coordinator, run, duty))
      continue;
    is_any = true;
    for (int i = 0; duty->worker && i < run->n_seats; i++)
      if (run->seats[i]->worker->key == duty->worker)
        run->seats[i]->help.slow = reissue->number;
  }
  return is_any;
}

/* 3: it pushed a doubted part; 2: it was in a group with one that did; 1: it is on such a worker's device. */
static int tier_of(const struct coordinator *coordinator, const struct run *run, const struct seat *seat) {
  const struct doubts *doubts = &run->reissue->doubts;
  const struct worker_identity own = coordinator_identity(seat->worker);
  int tier = 0;
  for (int i = 0; i < doubts->n_senders && tier < TIER_SENDER; i++) {
    const struct sender *sender = &doubts->senders[i];
    struct worker_identity other;
    if (sender->worker == seat->worker->number)
      tier = TIER_SENDER;
    else if (coordinator_were_in_group(run, seat->worker->number, sender->worker, sender->view))
      tier = TIER_GROUP;
    else if (tier == 0 && coordinator_identify(coordinator, sender->worker, &other) &&
             coordinator_is_same_device(&own, &other))
      tier = TIER_DEVICE;
  }
  return tier;
}

static bool is_near_a_sender(const struct coordinator *coordinator, const struct run *run,
                             const struct seat *seat) {
  return tier_of(coordinator, run, seat) >= TIER_GROUP;
}

/* Those that are asked come to the front; how many. The slow ones are asked last, before them those that were
   asked already; of one's equals the one that was given nothing for the longest time. */
static int keep_best(const struct coordinator *coordinator, const struct run *run, struct helper *helpers,
                     int n) {
  uint64_t number = run->reissue->number;
  int best_rank = 0, kept = 0;
  for (int i = 0; i < n; i++) {
    const struct seat *seat = helpers[i].seat;
    helpers[i].rank = SLOW * (seat->help.slow == number) + ASKED * (seat->help.asked == number) +
                      tier_of(coordinator, run, seat);
    if (i == 0 || helpers[i].rank < best_rank)
      best_rank = helpers[i].rank;
  }
  for (int i = 0; i < n; i++) {
    if (helpers[i].rank != best_rank)
      continue;
    if (best_rank % ASKED < TIER_GROUP)
      helpers[kept++] = helpers[i];
    else if (kept++ == 0 || helpers[i].seat->help.given_ms < helpers[0].seat->help.given_ms)
      helpers[0] = helpers[i];
  }
  return best_rank % ASKED < TIER_GROUP || n == 0 ? kept : 1;
}

static uint64_t patience_of(const struct run *run, int n_ready) {
  const struct logged_event *newest = event_log_newest(&run->events, WEIR__RUN_EVENT__EVENT_STEP, UINT64_MAX);
  int rounds = run->reissue->doubts.rounds;
  double ms = newest ? 2000 * newest->step.seconds * n_ready : PATIENCE_UNKNOWN_MS;
  if (!(ms > PATIENCE_MIN_MS))
    ms = PATIENCE_MIN_MS;
  if (ms > PATIENCE_MAX_MS)
    ms = PATIENCE_MAX_MS;
  return (uint64_t)ms << (rounds < PATIENCE_DOUBLINGS_MAX ? rounds : PATIENCE_DOUBLINGS_MAX);
}
