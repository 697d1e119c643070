/* Runs stopped and taken up again at people's wish. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "server/coordinator/runs/checkpoints.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

enum { SHA256_LENGTH = 64 };

static void clear_kind(struct run *run);

static bool can_checkpoint(const struct run *run) {
  return run->state == WEIR__RUN_STATE__RUNNING || run->state == WEIR__RUN_STATE__HELD;
}

static void end_soon(struct coordinator *coordinator, struct run *run) {
  run->is_pausing = run->is_info_due = run->is_save_due = true;
  run->checkpointing.retry_ms = 0; /* whoever asks now wants to know now */
  run->idle_ms = coordinator->now_ms;
}

void coordinator_run_cancelled(struct coordinator *coordinator, const char *id) {
  struct run *run = coordinator_run(coordinator, id);
  if (!run || coordinator_is_over(run))
    return;
  coordinator_run_set_message(run, "");
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__CANCELLED);
}

void coordinator_run_paused(struct coordinator *coordinator, const char *id) {
  struct run *run = coordinator_run(coordinator, id);
  if (!run)
    return;
  if (run->state == WEIR__RUN_STATE__QUEUED || run->state == WEIR__RUN_STATE__LOADING)
    coordinator_pause_now(coordinator, run);
  else if (can_checkpoint(run) && !run->is_pausing)
    end_soon(coordinator, run);
}

void coordinator_run_stopped(struct coordinator *coordinator, const char *id) {
  struct run *run = coordinator_run(coordinator, id);
  if (!run || !can_checkpoint(run) || run->is_stopping)
    return;
  run->is_stopping = true;
  end_soon(coordinator, run);
}

/* A checkpoint that has no hash of its weights is made once more, at a later version or, of a run that is
   held, at the same one. */
void coordinator_stop_training(struct coordinator *coordinator, struct run *run) {
  const Weir__CheckpointInfo *newest = coordinator_newest_info(run);
  if (!run->is_pausing)
    return;
  if (!run->is_stopping)
    coordinator_pause_now(coordinator, run);
  else if (newest && strlen(newest->weights_sha256) == SHA256_LENGTH)
    coordinator_run_end(coordinator, run, newest, WEIR__RUN_STATE__STOPPED);
}

void coordinator_pause_now(struct coordinator *coordinator, struct run *run) {
  uint64_t step = run->origin.is_to_come ? run->origin.step : coordinator_newest_checkpoint(run);
  char message[64];
  if (coordinator_has_lost_base(run)) {
    coordinator_fail_without_base(coordinator, run, "it cannot be paused");
    return;
  }
  coordinator_progress_reset(run, step);
  snprintf(message, sizeof message, "paused at step %llu", (unsigned long long)step);
  coordinator_run_set_message(run, message);
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__PAUSED);
}

void coordinator_pause_when_idle(struct coordinator *coordinator, struct run *run) {
  if (!run->is_pausing || run->is_stopping || run->state != WEIR__RUN_STATE__RUNNING ||
      run->checkpointing.is_committing)
    return;
  if (coordinator_count_seats(run, SEAT_READY) > 0)
    run->idle_ms = coordinator->now_ms;
  else if (coordinator->now_ms - run->idle_ms >= coordinator->options.server_grace_ms)
    coordinator_pause_now(coordinator, run);
}

void coordinator_run_resumed(struct coordinator *coordinator, const char *id, uint64_t step) {
  struct run *run = coordinator_run(coordinator, id);
  if (!run || (run->state != WEIR__RUN_STATE__PAUSED && run->state != WEIR__RUN_STATE__FAILED &&
               run->state != WEIR__RUN_STATE__CANCELLED))
    return;
  if (step < run->origin.step ||
      (step > 0 && !run->origin.is_to_come && !coordinator_has_checkpoint(run, step))) {
    log_event(LOG_WARN, "coordinator", "resume_ignored", "run=%s step=%llu: no such checkpoint", run->id,
              (unsigned long long)step);
    return;
  }
  if (step == coordinator_last_version(run) && coordinator_is_complete(run)) {
    run->is_bad_input = run->has_diverged = false;
    coordinator_run_done(coordinator, run); /* it was stopped when all was done */
    return;
  }
  coordinator_checkpoints_drop_above(coordinator, run, step);
  coordinator_new_incarnation(coordinator, run, step);
  clear_kind(run);
  run->is_begun = run->is_bad_input = run->has_diverged = false;
  run->finished_unix_ms = 0;
  run->n_refused = run->reloads = 0;
  run->reload_ms = 0;
  free(run->refusal);
  run->refusal = NULL;
  coordinator->has_pins |= run->origin.is_to_come;
  *run->cause = 0;
  coordinator_run_set_message(run, "");
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__QUEUED);
}

/* It may go on under another build, but not with other data; without a plan it never began. */
static void clear_kind(struct run *run) {
  struct reference *reference = &run->reference;
  free(reference->fingerprint);
  free(reference->probe_sha256);
  free(reference->server);
  free(reference->server_fingerprint);
  reference->fingerprint = reference->probe_sha256 = reference->server = reference->server_fingerprint = NULL;
  if (plan_is_known(&run->plan))
    return;
  free(reference->worker);
  free(reference->dataset_sha256);
  *reference = (struct reference){0};
}
