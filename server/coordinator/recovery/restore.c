/* Runs of a former coordinator, from what the store knew of them. Members that were at work go on meanwhile
   and will come back; what was not surely in the store may still have happened. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "common/base/text.h"
#include "common/modes/mode.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/runs/checkpoints.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/event_log.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/rate.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

enum { GRACE_TIMES = 3, SHA256_LENGTH = 64 };

static int record_check(const struct coordinator *coordinator, const Weir__RunRecord *record,
                        Weir__RunSpec *spec, struct err *err);
static void restore_progress(struct run *run, const struct restored_run *restored);
static void restore_data(struct run *run, const Weir__RunRecord *record);
static void restore_patience(struct run *run, const Weir__Patience *patience);
static void restore_checkpoints(struct coordinator *coordinator, struct run *run,
                                const Weir__RunRecord *record);
static void restore_servers(struct coordinator *coordinator, struct run *run, const Weir__RunRecord *record);
static void restore_ending(struct coordinator *coordinator, struct run *run, Weir__Ending ending);
static void go_on(struct coordinator *coordinator, struct run *run);
static bool has_told_its_end(const struct run *run);

void coordinator_run_restored(struct coordinator *coordinator, const struct restored_run *restored) {
  const Weir__RunRecord *record = restored->record;
  Weir__RunSpec *spec = record->spec ? spec_copy(record->spec) : NULL;
  struct run_submission submission = {.id = record->run,
                                      .spec = spec,
                                      .tenant = record->tenant,
                                      .model_bytes = record->model_bytes,
                                      .model_sha256 = record->model_sha256,
                                      .outline_bytes = record->outline_bytes,
                                      .model_pieces = record->model_pieces,
                                      .outline_sha256 = record->outline_sha256,
                                      .parameters = record->parameters,
                                      .block_elems = record->block_elems,
                                      .n_blocks = (uint32_t)record->n_block_elems,
                                      .submitted_unix_ms = record->submitted_unix_ms,
                                      .origin = {record->parent, record->parent_step, record->slots_step,
                                                 record->parent_incarnation - 1, record->base_to_come},
                                      .sweep = record->sweep,
                                      .trial = record->trial};
  struct err err = ERR_NONE;
  struct run *run;
  if (restored->now_unix_ms)
    coordinator->unix_offset_ms = restored->now_unix_ms - (int64_t)coordinator->now_ms;
  if (record_check(coordinator, record, spec, &err)) {
    log_event(LOG_ERROR, "coordinator", "run_not_restored", "run=\"%.100s\" error=\"%.400s\"", record->run,
              err.text);
    spec_free(spec);
    return;
  }
  run = coordinator_run_new(coordinator, &submission);
  spec_free(spec);
  if (record->key.len == TICKET_KEY_BYTES) /* else a new one: nobody has a ticket of it */
    memcpy(run->key, record->key.data, TICKET_KEY_BYTES);
  run->state = record->state;
  run->is_spilled = record->state == WEIR__RUN_STATE__HELD && record->n_servers == 0;
  coordinator_run_set_message(run, record->message);
  run->is_bad_input = record->bad_input;
  run->has_diverged = record->diverged;
  coordinator->has_pins |= record->base_to_come;
  run->incarnation = record->incarnation;
  run->base_step = record->base_step;
  run->finished_unix_ms = record->finished_unix_ms;
  run->samples_per_second = record->samples_per_second;
  if (strlen(record->weights_sha256) == SHA256_LENGTH)
    memcpy(run->weights_sha256, record->weights_sha256, sizeof run->weights_sha256);
  coordinator_run_add(coordinator, run);
  restore_data(run, record);
  restore_patience(run, record->patience);
  restore_progress(run, restored);
  restore_checkpoints(coordinator, run, record);
  restore_servers(coordinator, run, record);
  restore_ending(coordinator, run, record->ending);
  go_on(coordinator, run);
  log_event(LOG_INFO, "coordinator", "run_restored",
            "run=%s state=%s incarnation=%llu step=%llu checkpoints=%d", run->id,
            coordinator_state_name(run->state), (unsigned long long)run->incarnation,
            (unsigned long long)run->step, run->n_checkpoints);
}

static int record_check(const struct coordinator *coordinator, const Weir__RunRecord *record,
                        Weir__RunSpec *spec, struct err *err) {
  if (!*record->run || coordinator_run(coordinator, record->run))
    return err_set(err, ERR_EXISTS, "the run is there already");
  if (record->state < WEIR__RUN_STATE__QUEUED || record->state > WEIR__RUN_STATE__STOPPED)
    return err_set(err, ERR_CORRUPT, "its record names state %d", (int)record->state);
  if (!spec || record->n_block_elems == 0)
    return err_set(err, ERR_CORRUPT, "its record has no %s", spec ? "blocks" : "spec");
  return spec_check(spec, err) ? (int)err->code : mode_check(spec, err);
}

static char *copy_unless_empty(const char *text) {
  return *text ? mem_strdup(text) : NULL;
}

static void restore_data(struct run *run, const Weir__RunRecord *record) {
  const Weir__RunReference *reference = record->reference;
  struct err err;
  if (record->plan &&
      plan_init(&run->plan, run->spec, record->plan->train_samples, record->plan->eval_samples, &err))
    run->plan = (struct plan){0}; /* the first worker will tell */
  if (!plan_is_known(&run->plan) || !reference)
    return;
  plan_fix_hold(&run->plan, run->spec->train);
  run->reference.worker = mem_strdup(reference->worker);
  run->reference.dataset_sha256 = mem_strdup(reference->dataset_sha256);
  run->reference.fingerprint = copy_unless_empty(reference->fingerprint);
  run->reference.probe_sha256 = run->reference.fingerprint ? mem_strdup(reference->probe_sha256) : NULL;
  run->reference.server_fingerprint = copy_unless_empty(reference->server_fingerprint);
  run->reference.server = run->reference.server_fingerprint ? mem_strdup(reference->server) : NULL;
}

/* Tells it again, where the record is newer than the events: of a run that is over nobody else would. */
static void restore_evaluation(struct run *run, const Weir__EvalEvent *evaluation, uint64_t step) {
  struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_EVAL};
  const struct logged_event *newest = event_log_newest(&run->events, WEIR__RUN_EVENT__EVENT_EVAL, UINT64_MAX);
  const struct logged_event *last = event_log_last(&run->events);
  if (last && last->kind == WEIR__RUN_EVENT__EVENT_DONE)
    return;
  if (!evaluation || evaluation->incarnation != run->incarnation || evaluation->step > step ||
      (newest && newest->eval->incarnation == run->incarnation && newest->eval->step >= evaluation->step))
    return;
  event.eval = message_copy(evaluation);
  event_log_add(&run->events, &event);
}

static void restore_patience(struct run *run, const Weir__Patience *patience) {
  if (!patience)
    return;
  run->patience.step = patience->step;
  run->patience.best = patience->best;
  run->patience.best_step = patience->best_step;
  run->patience.waited = patience->waited;
  run->patience.last_step = patience->last_step;
}

/* Where it stood, by what it had told in its present incarnation. Evaluations that are newer than the record
   have counted, too. */
static void restore_progress(struct run *run, const struct restored_run *restored) {
  uint64_t step = run->base_step;
  double seconds = 0;
  for (size_t i = 0; i < restored->n_events; i++) {
    const Weir__RunEvent *event = restored->events[i];
    event_log_restore(&run->events, event);
    if (event->event_case == WEIR__RUN_EVENT__EVENT_EVAL)
      coordinator_patience_evaluated(run, event->eval);
    if (event->event_case != WEIR__RUN_EVENT__EVENT_STEP)
      continue;
    run->is_begun = true;
    seconds += isfinite(event->step->seconds) ? event->step->seconds : 0;
    if (event->step->incarnation == run->incarnation && event->step->step >= step)
      step = event->step->step + 1;
  }
  if (plan_is_known(&run->plan) &&
      (step > coordinator_last_version(run) || run->state == WEIR__RUN_STATE__DONE))
    step = coordinator_last_version(run);
  restore_evaluation(run, restored->record->evaluation, step);
  coordinator_progress_reset(run, step);
  run->is_begun |= run->base_step > run->origin.step || coordinator_has_blocks(run);
  run->trained_seconds = restored->record->train_seconds;
  if (seconds > run->trained_seconds && !coordinator_is_over(run))
    run->trained_seconds = seconds; /* the record is older than the newest events */
}

/* A manifest of a former incarnation above the step at which this one begins was to be deleted, unless it was
   passed over: that version comes again. */
static void restore_checkpoints(struct coordinator *coordinator, struct run *run,
                                const Weir__RunRecord *record) {
  for (size_t i = 0; i < record->n_checkpoints; i++)
    coordinator_checkpoint_add(run, record->checkpoints[i]);
  for (int i = run->n_checkpoints - 1; i >= 0; i--)
    if (run->checkpoints[i]->step > run->base_step && run->checkpoints[i]->incarnation < run->incarnation &&
        !run->checkpoints[i]->unreadable)
      coordinator_checkpoint_drop(coordinator, run, run->checkpoints[i]->step);
  coordinator_checkpoints_retain(coordinator, run);
}

static void restore_servers(struct coordinator *coordinator, struct run *run, const Weir__RunRecord *record) {
  int n = (int)record->n_servers;
  for (int i = 0; i < n; i++)
    coordinator_id_seen(coordinator, record->servers[i]->id);
  if (!coordinator_has_blocks(run) || n == 0 || !plan_is_known(&run->plan))
    return;
  run->servers = mem_new((size_t)n * sizeof *run->servers);
  for (int i = 0; i < n; i++) {
    struct run_server *server = &run->servers[run->n_servers++];
    server->id = text_copy_clean(record->servers[i]->id, 255);
    server->address = text_copy_clean(record->servers[i]->address, 255);
    server->holder = text_copy_clean(record->servers[i]->holder, 255);
    if (*record->servers[i]->share_host)
      server->share_host = text_copy_clean(record->servers[i]->share_host, 255);
    server->is_loaded = true;
  }
  run->is_load_due = false;
  coordinator_place_blocks(run);
}

/* What it was to come to at its next checkpoint it is to come to still. */
static void restore_ending(struct coordinator *coordinator, struct run *run, Weir__Ending ending) {
  if (run->state != WEIR__RUN_STATE__LOADING && run->state != WEIR__RUN_STATE__RUNNING &&
      run->state != WEIR__RUN_STATE__HELD)
    return;
  run->is_stopping = ending == WEIR__ENDING__STOPPING;
  run->is_pausing = run->is_stopping || ending == WEIR__ENDING__PAUSING;
  run->idle_ms = coordinator->now_ms;
}

static void go_on(struct coordinator *coordinator, struct run *run) {
  if (run->state == WEIR__RUN_STATE__STOPPED || run->state == WEIR__RUN_STATE__PAUSED)
    coordinator_progress_reset(run, coordinator_newest_checkpoint(run));
  if (coordinator_has_blocks(run) && coordinator_is_complete(run)) { /* it was about to say so */
    if (run->state == WEIR__RUN_STATE__HELD) /* its hold was raised, as its record had yet to say */
      coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__RUNNING);
    if (run->state == WEIR__RUN_STATE__RUNNING)
      coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__FINISHING);
    coordinator_run_done(coordinator, run);
  } else if (coordinator_has_blocks(run) && !run->is_load_due) {
    for (int i = 0; i < run->n_servers; i++) { /* everybody has to notice and come back */
      run->servers[i].lost_ms = coordinator->now_ms;
      run->servers[i].grace_ms = GRACE_TIMES * coordinator->options.server_grace_ms;
    }
    free(run->loss_cause);
    run->loss_cause = mem_strdup("the coordinator was restarted: waiting for the servers");
    rate_add(&run->rate, coordinator->now_ms, 0);
    run->reported_ms = run->checkpointing.since_ms = coordinator->now_ms;
    if (run->state == WEIR__RUN_STATE__RUNNING)
      coordinator_clock_start(coordinator, run);
  } else if (coordinator_has_blocks(run) || run->state == WEIR__RUN_STATE__LOADING)
    coordinator_roll_back(coordinator, run, "the coordinator was restarted");
  else if (run->origin.step && coordinator_has_lost_base(run) && !coordinator_is_over(run))
    coordinator_fail_without_base(coordinator, run, "its record has none");
  else if (run->state == WEIR__RUN_STATE__QUEUED) /* servers may have been told to load it */
    coordinator_new_incarnation(coordinator, run, run->base_step);
  else if (run->state != WEIR__RUN_STATE__PAUSED && has_told_its_end(run))
    run->is_info_due = false;
  else if (coordinator_has_result(run))
    coordinator_publish_done(coordinator, run);
}

static bool has_told_its_end(const struct run *run) {
  const struct logged_event *last = event_log_last(&run->events);
  if (!last || coordinator_has_result(run))
    return last && last->kind == WEIR__RUN_EVENT__EVENT_DONE;
  return last->kind == WEIR__RUN_EVENT__EVENT_INFO && last->info->state == run->state;
}
