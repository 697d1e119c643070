/* Runs: their states, from submission to the end. */
#include "server/coordinator/runs/runs.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec_live.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "common/base/text.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/quotas/quota.h"
#include "server/coordinator/runs/checkpoints.h"
#include "server/coordinator/state/action.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/event_log.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/options.h"
#include "server/coordinator/state/reissuing.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

enum { MESSAGE_MAX = 1500, REFERENCE_MAX = 400 };

/* transitions[from] has bit `to`. */
#define TO(state) (1u << WEIR__RUN_STATE__##state)
static const unsigned transitions[] = {
    [WEIR__RUN_STATE__QUEUED] = TO(LOADING) | TO(PAUSED) | TO(FAILED) | TO(CANCELLED),
    [WEIR__RUN_STATE__LOADING] =
        TO(QUEUED) | TO(RUNNING) | TO(PAUSED) | TO(FAILED) | TO(CANCELLED) | TO(HELD),
    [WEIR__RUN_STATE__RUNNING] = TO(LOADING) | TO(FINISHING) | TO(PAUSED) | TO(FAILED) | TO(CANCELLED) |
                                 TO(HELD) | TO(STOPPED), /* LOADING: rolled back */
    [WEIR__RUN_STATE__FINISHING] = TO(LOADING) | TO(DONE) | TO(FAILED) | TO(CANCELLED),
    [WEIR__RUN_STATE__DONE] = 0,
    [WEIR__RUN_STATE__FAILED] = TO(QUEUED) | TO(DONE), /* resumed; DONE: its last version is there */
    [WEIR__RUN_STATE__CANCELLED] = TO(QUEUED) | TO(DONE),
    [WEIR__RUN_STATE__PAUSED] = TO(QUEUED) | TO(DONE) | TO(FAILED) | TO(CANCELLED),
    [WEIR__RUN_STATE__HELD] =
        TO(QUEUED) | TO(LOADING) | TO(RUNNING) | TO(PAUSED) | TO(FAILED) | TO(CANCELLED) | TO(STOPPED),
    [WEIR__RUN_STATE__STOPPED] = 0,
};
#undef TO

static void forget_old_runs(struct coordinator *coordinator);
static void compact_old_events(struct coordinator *coordinator);
static void remove_run(struct coordinator *coordinator, int at);
static void run_release(struct coordinator *coordinator, struct run *run);

void coordinator_run_set_state(struct coordinator *coordinator, struct run *run, Weir__RunState state) {
  CHECK(transitions[run->state] & (1u << state));
  log_event(LOG_INFO, "coordinator", "run_state", "run=%s from=%s to=%s message=\"%s\"", run->id,
            coordinator_state_name(run->state), coordinator_state_name(state), run->message);
  if (!run->is_stop_awaited)
    run->told_state = run->state;
  run->state = state;
  run->is_spilled = false;
  run->is_stop_awaited = coordinator_is_over(run) || state == WEIR__RUN_STATE__PAUSED;
  run->is_info_due = run->is_save_due = true;
  if (!coordinator_is_over(run) && state != WEIR__RUN_STATE__PAUSED && state != WEIR__RUN_STATE__QUEUED)
    return;
  run_release(coordinator, run);
  if (!coordinator_is_over(run))
    return;
  run->finished_unix_ms = coordinator->unix_offset_ms + (int64_t)coordinator->now_ms;
  coordinator_act(coordinator, ACTION_RELEASE)->run = run->id;
  compact_old_events(coordinator);
}

void coordinator_run_saved(struct coordinator *coordinator, const struct saved_state *saved) {
  struct run *run = coordinator_run(coordinator, saved->run);
  if (!run || run->incarnation != saved->incarnation)
    return;
  run->is_save_awaited = false;
  run->is_start_awaited &= saved->state != WEIR__RUN_STATE__RUNNING && saved->state != WEIR__RUN_STATE__HELD;
  if (!run->is_stop_awaited || run->state != saved->state)
    return;
  run->is_stop_awaited = false;
  if (coordinator_has_result(run))
    coordinator_publish_done(coordinator, run);
}

void coordinator_run_fail(struct coordinator *coordinator, struct run *run, enum run_failure failure,
                          const char *format, ...) {
  char message[MESSAGE_MAX];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  coordinator_run_set_message(run, message);
  run->is_bad_input = failure == FAILURE_BAD_INPUT;
  run->has_diverged = failure == FAILURE_DIVERGED;
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__FAILED);
}

void coordinator_fail_without_base(struct coordinator *coordinator, struct run *run, const char *cause) {
  coordinator_run_fail(
      coordinator, run, FAILURE_OURS,
      "the store has lost the checkpoint of step %llu at which this fork of %s began: %.700s: fork "
      "it anew",
      (unsigned long long)run->origin.step, run->origin.parent, cause);
}

void coordinator_model_lost(struct coordinator *coordinator, const char *id, const char *reason) {
  struct run *run = coordinator_run(coordinator, id);
  if (run && !coordinator_is_over(run))
    coordinator_run_fail(coordinator, run, FAILURE_OURS,
                         "the store has lost the model: %s: submit the run anew", reason);
}

/* No server is told to load it before its base is in the store, which comes there with its first record. */
static void run_inherit(struct coordinator *coordinator, struct run *run,
                        const struct run_inheritance *inheritance) {
  const Weir__Plan *plan = inheritance->plan;
  struct err err;
  CHECK(plan_init(&run->plan, run->spec, plan->train_samples, plan->eval_samples, &err) == 0);
  run->reference.worker = text_copy_clean(inheritance->reference->worker, REFERENCE_MAX);
  run->reference.dataset_sha256 = text_copy_clean(inheritance->reference->dataset_sha256, REFERENCE_MAX);
  if (inheritance->base)
    coordinator_checkpoint_add(run, inheritance->base);
  run->is_adopting = inheritance->base && *run->sweep;
  coordinator->has_pins |= run->origin.is_to_come || run->is_adopting;
  run->is_save_awaited = true;
  run->awaited_ms = coordinator->now_ms;
  log_event(LOG_INFO, "coordinator", "run_forked", "run=%s parent=%s step=%llu slots_step=%llu", run->id,
            run->origin.parent, (unsigned long long)run->origin.step,
            (unsigned long long)run->origin.slots_step);
}

void coordinator_run_submitted(struct coordinator *coordinator, const struct run_submission *submission) {
  struct run *run = coordinator_run_new(coordinator, submission);
  coordinator->unix_offset_ms = submission->submitted_unix_ms - (int64_t)coordinator->now_ms;
  coordinator_run_add(coordinator, run);
  if (submission->inheritance)
    run_inherit(coordinator, run, submission->inheritance);
  log_event(LOG_INFO, "coordinator", "run_submitted", "run=%s model_bytes=%llu parameters=%llu blocks=%u",
            run->id, (unsigned long long)run->model_bytes, (unsigned long long)run->parameters,
            run->n_blocks);
}

void coordinator_run_set(struct coordinator *coordinator, const char *id, const Weir__RunSpec *spec) {
  struct run *run = coordinator_run(coordinator, id);
  if (!run || coordinator_is_over(run))
    return;
  run->turn.is_in_line &= spec->priority == run->spec->priority;
  coordinator_raise_hold(coordinator, run, spec->train->has_hold ? spec->train->hold : 0);
  spec_take_live(run->spec, spec);
  run->is_info_due = run->is_save_due = true;
}

void coordinator_run_add(struct coordinator *coordinator, struct run *run) {
  CHECK(!coordinator_run(coordinator, run->id));
  forget_old_runs(coordinator);
  compact_old_events(coordinator);
  coordinator->has_tenants |=
      coordinator->n_runs > 0 && strcmp(run->tenant, coordinator->runs[0]->tenant) != 0;
  array_reserve((void **)&coordinator->runs, &coordinator->runs_capacity, coordinator->n_runs,
                sizeof *coordinator->runs);
  coordinator->runs[coordinator->n_runs++] = run;
  quota_confine(coordinator, run);
}

void coordinator_run_forgotten(struct coordinator *coordinator, const char *id) {
  for (int i = 0; i < coordinator->n_runs; i++)
    if (strcmp(coordinator->runs[i]->id, id) == 0 && coordinator_is_over(coordinator->runs[i])) {
      remove_run(coordinator, i);
      return;
    }
}

static bool is_kept_trial(const struct run *run) {
  return *run->sweep && coordinator_has_result(run);
}

/* Of the runs of this kind that are over: the oldest, of trials one without a result first. -1: they are not
   too many, or none may go. */
static int find_excess(const struct coordinator *coordinator, bool is_trial) {
  int n = 0, oldest = -1;
  for (int i = 0; i < coordinator->n_runs; i++) {
    const struct run *run = coordinator->runs[i];
    if (!coordinator_is_over(run) || run->is_stop_awaited || (*run->sweep != 0) != is_trial)
      continue;
    n++;
    if (oldest < 0 || (is_kept_trial(coordinator->runs[oldest]) && !is_kept_trial(run)))
      oldest = i;
  }
  return n > (is_trial ? TRIALS_KEPT : RUNS_KEPT) ? oldest : -1;
}

static void forget_old_runs(struct coordinator *coordinator) {
  for (int is_trial = 0; is_trial <= 1; is_trial++)
    for (int at; (at = find_excess(coordinator, is_trial)) >= 0;)
      remove_run(coordinator, at);
}

/* The events of runs that are over take so many bytes together: beyond it those of the oldest are fewer.
   The store has all of them. */
static void compact_old_events(struct coordinator *coordinator) {
  size_t bytes = 0, most = coordinator->options.events_old_bytes;
  if (!most)
    most = EVENTS_OLD_BYTES;
  for (int i = 0; i < coordinator->n_runs; i++)
    if (coordinator_is_over(coordinator->runs[i]))
      bytes += event_log_bytes(&coordinator->runs[i]->events);
  for (int i = 0; i < coordinator->n_runs && bytes > most; i++) {
    struct event_log *events = &coordinator->runs[i]->events;
    if (!coordinator_is_over(coordinator->runs[i]) ||
        coordinator->runs[i]->is_stop_awaited) /* it is just told */
      continue;
    bytes -= event_log_bytes(events);
    event_log_compact(events);
    bytes += event_log_bytes(events);
  }
}

static void remove_run(struct coordinator *coordinator, int at) {
  for (int i = 0; i < coordinator->n_members; i++) {
    loaded_remove(&coordinator->members[i]->loaded, coordinator->runs[at]);
    loaded_remove(&coordinator->members[i]->crowded, coordinator->runs[at]);
  }
  coordinator_run_free(coordinator->runs[at]);
  memmove(coordinator->runs + at, coordinator->runs + at + 1,
          (size_t)(coordinator->n_runs - at - 1) * sizeof *coordinator->runs);
  coordinator->n_runs--;
}

/* All members of a run that holds none any more are told so and are free again. */
static void run_release(struct coordinator *coordinator, struct run *run) {
  const char *reason = *run->message ? run->message : coordinator_state_name(run->state);
  while (run->n_seats > 0) {
    coordinator_order_unload(coordinator, run->id, run->seats[0]->worker, reason);
    coordinator_seat_end(run->seats[0]);
  }
  for (int i = 0; i < run->n_servers; i++)
    if (run->servers[i].member)
      coordinator_order_unload(coordinator, run->id, run->servers[i].member, reason);
  coordinator_run_free_servers(run);
  coordinator_checkpoint_abandon(run);
  coordinator_reissue_free(run);
  coordinator_clock_stop(coordinator, run);
  run->is_view_due = run->is_pausing = run->is_stopping = run->is_moving = run->is_move_due = false;
  run->is_load_due = true;
}

void coordinator_publish_done(struct coordinator *coordinator, struct run *run) {
  struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_DONE};
  Weir__DoneEvent done = WEIR__DONE_EVENT__INIT;
  Weir__RunInfo info;
  coordinator_info_fill(coordinator, run, coordinator->now_ms, &info);
  done.steps = run->step;
  done.accuracy = info.accuracy;
  done.loss = info.eval_loss;
  done.metrics = info.metrics;
  done.n_metrics = info.n_metrics;
  done.weights_sha256 = run->weights_sha256;
  done.samples_per_second = info.samples_per_second;
  if (run->patience.last_step)
    done.reason = run->message;
  event.done = message_copy(&done);
  event_log_add(&run->events, &event);
  coordinator_act(coordinator, ACTION_PUBLISH)->run = run->id;
  run->is_info_due = false;
}

/* Which servers its workers had not reached, and were cut off from, is over: it has others from now on. */
static void reach_anew(struct run *run) {
  for (int i = 0; i < run->n_seats; i++) {
    coordinator_reach_forget(run->seats[i]);
    if (run->seats[i]->state == SEAT_CUT_OFF)
      coordinator_seat_set_state(run->seats[i], SEAT_READY);
  }
}

void coordinator_new_incarnation(struct coordinator *coordinator, struct run *run, uint64_t step) {
  run->incarnation++;
  run->base_step = step;
  if (run->uncut_step > step + 1)
    run->uncut_step = step + 1;
  run->is_load_due = true;
  run->is_moving = run->is_move_due = false;
  run->is_save_awaited = run->is_save_due = run->is_info_due = true;
  run->is_start_awaited = false;
  run->awaited_ms = coordinator->now_ms;
  free(run->distrust);
  run->distrust = NULL;
  coordinator_checkpoint_abandon(run);
  run->checkpointing.passed = 0;
  coordinator_progress_reset(run, step);
  reach_anew(run);
}
