/* Checkpoints in the making: when one is due, what servers answer, and what the store says. Training waits
   for none of it; only the end of a run does. */
#include "server/coordinator/runs/checkpoints.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/modes/mode.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/messages/record.h"
#include "server/coordinator/quotas/quota.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/state/action.h"
#include "server/coordinator/state/checkpointing.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

enum { PAUSE_LEAST_MS = 1000, PAUSE_MOST_MS = 30000, MESSAGE_MAX = 1000, SHA256_LENGTH = 64 };
#define LEAD_MOST (UINT64_C(1) << 16)

static bool is_awaited(struct run *run, bool is_soon);
static void set_for_move(struct run *run, bool is_for_move);
static bool stands_still(const struct run *run, uint64_t newest);
static void checkpoint_stand(struct coordinator *coordinator, struct run *run);
static bool is_due_now(const struct coordinator *coordinator, const struct run *run);
static uint64_t next_boundary(const struct plan *plan, uint64_t from);
static uint64_t next_multiple(uint64_t of, uint64_t from);
static void checkpoint_order(struct coordinator *coordinator, struct run *run, uint64_t step);
static void write_failed(struct coordinator *coordinator, struct run *run, const struct member *member,
                         const Weir__BlocksWritten *written);
static void checkpoint_failed(struct coordinator *coordinator, struct run *run, const char *why);
static bool take_written(struct coordinator *coordinator, struct run *run, const struct member *member,
                         const Weir__BlocksWritten *written);
static bool is_over_quota(struct coordinator *coordinator, struct run *run, uint64_t step);
static void commit_when_written(struct coordinator *coordinator, struct run *run);
static void checkpoint_committed(struct coordinator *coordinator, struct run *run,
                                 const struct checkpoint_result *result);

void coordinator_checkpoint_when_due(struct coordinator *coordinator, struct run *run) {
  struct checkpointing *making = &run->checkpointing;
  uint64_t newest = run->step > making->newest ? run->step : making->newest;
  uint64_t soon = newest + making->lead, step;
  struct mode mode;
  bool is_due, is_beyond = making->step > run->pin; /* where nothing is computed for now */
  if (!coordinator_has_blocks(run) || making->is_committing || coordinator_lost_servers(run) > 0 ||
      coordinator->now_ms < making->retry_ms)
    return;
  if (run->state != WEIR__RUN_STATE__RUNNING) {
    checkpoint_stand(coordinator, run);
    return;
  }
  if (!is_beyond && is_awaited(run, making->step > newest && making->step <= soon))
    return;
  mode = mode_of(run->spec);
  mode.last = run->plan.steps;
  is_due = is_due_now(coordinator, run);
  if (making->step && !is_beyond && !run->is_pausing && !run->is_moving && (!is_due || making->step <= soon))
    return; /* it is on its way */
  step = !is_due ? next_boundary(&run->plan, soon) : stands_still(run, newest) ? newest : soon;
  if (step != UINT64_MAX)
    step = mode_boundary(&mode, step);
  if (step > run->pin) { /* forks wait for that one, and nothing later is computed meanwhile */
    step = run->pin;
    if (coordinator_has_checkpoint(run, step) && !run->is_pausing && !run->is_moving)
      return;
  }
  if (step < coordinator_last_version(run) &&
      step < coordinator_run_hold(run) && /* there it has one in any case */
      !is_over_quota(coordinator, run, step))
    checkpoint_order(coordinator, run, step);
}

/* Only what somebody waits for is checkpointed then: a pause, a move, a fork. */
static bool is_over_quota(struct coordinator *coordinator, struct run *run, uint64_t step) {
  struct err err = ERR_NONE;
  if (run->is_pausing || run->is_moving || step == run->pin ||
      quota_admit_checkpoint(coordinator, run, &err) == 0)
    return false;
  run->checkpointing.step = step;
  checkpoint_failed(coordinator, run, err.text);
  return true;
}

/* Whether the one in the making is what the run waits for, to pause or to move; one that comes soon will do.
 */
static bool is_awaited(struct run *run, bool is_soon) {
  struct checkpointing *making = &run->checkpointing;
  making->is_for_pause |= run->is_pausing && is_soon;
  set_for_move(run, run->is_moving && (making->is_for_move || is_soon));
  return making->is_for_pause || making->is_for_move;
}

static void set_for_move(struct run *run, bool is_for_move) {
  run->is_view_due |= run->checkpointing.is_for_move != is_for_move; /* it has the workers' hold */
  run->checkpointing.is_for_move = is_for_move;
}

/* Nobody computes the next version for now, and the run moves: the newest one will do, unless a block is
   ahead of it. */
static bool stands_still(const struct run *run, uint64_t newest) {
  return run->is_moving && newest > 0 && newest != run->checkpointing.passed &&
         coordinator_count_seats(run, SEAT_READY) == 0;
}

/* Of the version at which nothing more is computed: the last one, or the one at which the run is held. */
static void checkpoint_stand(struct coordinator *coordinator, struct run *run) {
  struct checkpointing *making = &run->checkpointing;
  bool is_held = run->state == WEIR__RUN_STATE__HELD;
  uint64_t step = is_held ? coordinator_run_hold(run) : coordinator_last_version(run);
  bool is_there = is_held && coordinator_newest_checkpoint(run) == step;
  if (is_there)
    coordinator_stop_training(coordinator, run); /* if it is to pause, or to stop */
  if (is_there && !run->is_stopping)
    return;
  if (making->step == step)
    making->is_for_pause |= run->is_pausing;
  else
    checkpoint_order(coordinator, run, step);
}

/* Without waiting for one of the plan's boundaries. */
static bool is_due_now(const struct coordinator *coordinator, const struct run *run) {
  const Weir__CheckpointSpec *spec = run->spec->checkpoint;
  double since_s = (double)(coordinator->now_ms - run->checkpointing.since_ms) / 1000;
  return run->is_pausing || run->is_moving || run->checkpointing.is_missed ||
         (spec->has_every_seconds && since_s >= spec->every_seconds);
}

/* The smallest version from `from` on that the plan has checkpointed, the last one aside; else UINT64_MAX. */
static uint64_t next_boundary(const struct plan *plan, uint64_t from) {
  uint64_t by_steps = next_multiple(plan->checkpoint_every_steps, from);
  uint64_t by_eval = plan->checkpoints_evaluated ? plan_next_evaluated(plan, from) : UINT64_MAX;
  return by_steps < by_eval ? by_steps : by_eval;
}

static uint64_t next_multiple(uint64_t of, uint64_t from) {
  uint64_t rest = of ? from % of : 0;
  if (of == 0 || (rest && of - rest > UINT64_MAX - from))
    return UINT64_MAX;
  return rest ? from + (of - rest) : from;
}

static void checkpoint_order(struct coordinator *coordinator, struct run *run, uint64_t step) {
  struct checkpointing *making = &run->checkpointing;
  making->step = step;
  making->is_for_pause = run->is_pausing;
  set_for_move(run, run->is_moving);
  making->written_bytes = 0;
  memset(making->written, 0, run->n_blocks * sizeof *making->written);
  log_event(LOG_DEBUG, "coordinator", "checkpoint_ordered", "run=%s step=%llu newest=%llu", run->id,
            (unsigned long long)step, (unsigned long long)run->step);
  for (int i = 0; i < run->n_servers; i++) {
    run->servers[i].is_written = false;
    coordinator_order_write(coordinator, run, run->servers[i].member);
  }
}

void coordinator_checkpoint_abandon(struct run *run) {
  run->checkpointing.step = 0;
  run->checkpointing.is_committing = run->checkpointing.is_for_pause = false;
  set_for_move(run, false);
}

void coordinator_written(struct coordinator *coordinator, struct member *member,
                         const Weir__BlocksWritten *written) {
  struct run *run = coordinator_reporting_run(coordinator, member, written->run, written->incarnation);
  struct run_server *server = run ? coordinator_run_server(run, member) : NULL;
  if (!run || !run->checkpointing.step || written->step != run->checkpointing.step || server->is_written)
    return; /* of an order that another has replaced */
  if (*written->error)
    write_failed(coordinator, run, member, written);
  else if (take_written(coordinator, run, member, written) && written->is_last) {
    server->is_written = true;
    run->checkpointing.written_bytes += written->written_bytes;
    commit_when_written(coordinator, run);
  }
}

/* Too late is no failure: the next order is given further ahead. */
static void write_failed(struct coordinator *coordinator, struct run *run, const struct member *member,
                         const Weir__BlocksWritten *written) {
  struct checkpointing *making = &run->checkpointing;
  char *why;
  if (written->is_too_late && run->state == WEIR__RUN_STATE__RUNNING) {
    making->passed = making->step;
    making->lead = making->lead * 2 < LEAD_MOST ? making->lead * 2 : LEAD_MOST;
    log_event(LOG_INFO, "coordinator", "checkpoint_too_late", "run=%s step=%llu id=%s lead=%llu", run->id,
              (unsigned long long)making->step, member->id, (unsigned long long)making->lead);
    coordinator_checkpoint_abandon(run);
    return;
  }
  why = mem_printf("%s (%s): %.600s", member->id, member->address, written->error);
  checkpoint_failed(coordinator, run, why);
  free(why);
}

static void checkpoint_failed(struct coordinator *coordinator, struct run *run, const char *why) {
  struct checkpointing *making = &run->checkpointing;
  char *message = mem_printf("the checkpoint of step %llu failed: %s", (unsigned long long)making->step, why);
  log_event(LOG_WARN, "coordinator", "checkpoint_failed", "run=%s step=%llu error=\"%.600s\"", run->id,
            (unsigned long long)making->step, why);
  free(making->message);
  making->message = text_copy_clean(message, MESSAGE_MAX);
  free(message);
  making->pause_ms = making->pause_ms == 0                  ? PAUSE_LEAST_MS
                     : making->pause_ms < PAUSE_MOST_MS / 2 ? making->pause_ms * 2
                                                            : PAUSE_MOST_MS;
  making->retry_ms = coordinator->now_ms + making->pause_ms;
  making->is_missed = run->is_info_due = true;
  run->is_save_due = true; /* the store may have forgotten the run */
  coordinator_checkpoint_abandon(run);
}

static bool take_written(struct coordinator *coordinator, struct run *run, const struct member *member,
                         const Weir__BlocksWritten *written) {
  for (size_t i = 0; i < written->n_blocks; i++) {
    const Weir__WrittenBlock *block = written->blocks[i];
    struct written_block *slot;
    if (block->block >= run->n_blocks || strlen(block->sha256) != SHA256_LENGTH ||
        !coordinator_owns_block(run, member, block->block)) {
      coordinator_run_fail(coordinator, run, FAILURE_OURS,
                           "%s (%s) wrote block %u of %u, key '%.64s': not its to write", member->id,
                           member->address, block->block, run->n_blocks, block->sha256);
      return false;
    }
    slot = &run->checkpointing.written[block->block];
    memcpy(slot->sha256, block->sha256, sizeof slot->sha256);
    slot->bytes = block->bytes;
  }
  return true;
}

static void commit_when_written(struct coordinator *coordinator, struct run *run) {
  for (int i = 0; i < run->n_servers; i++)
    if (!run->servers[i].is_written)
      return;
  for (uint32_t block = 0; block < run->n_blocks; block++)
    if (!*run->checkpointing.written[block].sha256) {
      coordinator_run_fail(coordinator, run, FAILURE_OURS, "no server wrote block %u of %u of the checkpoint",
                           block, run->n_blocks);
      return;
    }
  run->checkpointing.is_committing = true;
  coordinator_commit(coordinator, run);
}

void coordinator_commit_finished(struct coordinator *coordinator, const struct checkpoint_result *result) {
  struct run *run = coordinator_run(coordinator, result->run);
  struct coordinator_action *action;
  bool is_present, is_awaited;
  if (!run)
    return;
  is_present = run->incarnation == result->incarnation;
  is_awaited = is_present && run->checkpointing.is_committing && run->checkpointing.step == result->step;
  if (result->error) {
    if (is_awaited)
      checkpoint_failed(coordinator, run, result->error);
    return;
  }
  CHECK(result->info);
  if (result->info->committed_unix_ms)
    coordinator->unix_offset_ms = result->info->committed_unix_ms - (int64_t)coordinator->now_ms;
  if (is_awaited)
    checkpoint_committed(coordinator, run, result);
  else if (is_present || result->step <= run->base_step) { /* it was stopped meanwhile */
    coordinator_checkpoint_add(run, result->info);
    coordinator_checkpoints_retain(coordinator, run);
  } else { /* and resumed from before: this one will come again */
    action = coordinator_act(coordinator, ACTION_DROP);
    action->run = run->id;
    action->step = result->step;
  }
}

static void checkpoint_committed(struct coordinator *coordinator, struct run *run,
                                 const struct checkpoint_result *result) {
  struct checkpointing *making = &run->checkpointing;
  bool is_for_pause = making->is_for_pause;
  run->is_move_due |= making->is_for_move;
  coordinator_checkpoint_add(run, result->info);
  coordinator_checkpoints_retain(coordinator, run);
  coordinator_checkpoint_abandon(run);
  making->retry_ms = making->pause_ms = 0;
  making->is_missed = false;
  making->since_ms = coordinator->now_ms;
  *making->message = 0;
  if (run->state == WEIR__RUN_STATE__FINISHING && coordinator_is_complete(run))
    coordinator_run_done(coordinator, run);
  else if (is_for_pause)
    coordinator_stop_training(coordinator, run);
}

void coordinator_store_told(struct coordinator *coordinator, const char *message) {
  if (strcmp(coordinator->store_message, message) == 0)
    return;
  free(coordinator->store_message);
  coordinator->store_message = text_copy_clean(message, MESSAGE_MAX);
  for (int i = 0; i < coordinator->n_runs; i++) {
    struct run *run = coordinator->runs[i];
    run->is_info_due |= !coordinator_is_over(run);
    if (!*message)
      run->checkpointing.retry_ms = 0; /* it is well again: no need to wait */
  }
}

void coordinator_store_emptied(struct coordinator *coordinator) {
  log_event(LOG_WARN, "coordinator", "store_emptied", "runs=%d", coordinator->n_runs);
  coordinator->is_members_due = true;
  for (int i = 0; i < coordinator->n_runs; i++) {
    struct run *run = coordinator->runs[i];
    coordinator_checkpoints_forget(run);
    run->is_save_due = true;
    run->checkpointing.is_missed = run->step > 0;
    run->checkpointing.retry_ms = 0;
    if (!run->is_load_due || coordinator_is_over(run) || run->origin.is_to_come)
      continue;
    if (run->origin.step) {
      coordinator_fail_without_base(coordinator, run, "the store was emptied");
      continue;
    }
    run->base_step = 0; /* no server was told to load what is gone */
    coordinator_progress_reset(run, 0);
    if (run->state == WEIR__RUN_STATE__PAUSED)
      coordinator_run_set_message(run, "paused at step 0");
  }
}
