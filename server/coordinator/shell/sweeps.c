/* What sweeps decide, carried out: their trials are runs of the core. */
#include "server/coordinator/shell/sweeps.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"

static void sweep_turn(struct coordinator_service *shell, struct shell_sweep *sweep);
static void observe(struct coordinator_service *shell, struct shell_sweep *sweep);
static void observe_run(struct shell_sweep *sweep, const struct sweep_trial *trial,
                        const Weir__RunInfo *info);
static void decide(struct shell_sweep *sweep);
static bool act(struct coordinator_service *shell, struct shell_sweep *sweep);
static void trial_begin(struct coordinator_service *shell, struct shell_sweep *sweep,
                        const struct sweep_trial *trial, const char *id);
static void trial_go_on(struct coordinator_service *shell, const struct shell_sweep *sweep,
                        const struct sweep_trial *trial, const char *id);

struct shell_sweep *shell_find_sweep(struct coordinator_service *shell, const char *id) {
  struct shell_sweep *sweep = shell->sweeps;
  while (sweep && strcmp(sweep->id, id))
    sweep = sweep->next;
  return sweep;
}

char *sweep_run_id(const struct shell_sweep *sweep, uint32_t trial) {
  return mem_printf("%s-%04" PRIu32, sweep->id, trial);
}

void shell_sweep_begin(struct coordinator_service *shell, struct rpc_call *call, const Weir__SweepHead *head,
                       struct run_model *model) {
  Weir__SweepHead *copy = message_copy(head);
  struct shell_sweep *sweep;
  struct err err = ERR_NONE;
  if (sweep_open(copy, &sweep, &err)) {
    rpc_call_finish(call, &err);
    message_free(copy);
    return;
  }
  sweep->submitter = call;
  sweep->next = shell->sweeps;
  shell->sweeps = sweep;
  shell_keep_model(shell, sweep->id, run_model_get(model));
  log_event(LOG_INFO, "coordinator", "sweep_submitted", "sweep=%s search=%s schedule=%s concurrency=%" PRIu32,
            sweep->id, head->spec->search->name, head->spec->schedule->name, head->spec->concurrency);
  shell_sweep_save(shell, sweep);
}

/* The client is told to try again; what the store may have got of the sweep all the same has no records. */
static void refuse_submission(struct coordinator_service *shell, struct shell_sweep *sweep,
                              const struct err *err) {
  struct shell_sweep **at = &shell->sweeps;
  rpc_call_fail(sweep->submitter, ERR_UNAVAILABLE, "the store cannot keep the sweep: %s", err->text);
  while (*at != sweep)
    at = &(*at)->next;
  *at = sweep->next;
  sweep->next = NULL;
  shell_release_model(shell, sweep->id);
  sweeps_free(sweep);
}

void shell_sweep_saved(struct coordinator_service *shell, struct shell_sweep *sweep, const struct err *err) {
  if (err->code && err->code != ERR_STALE)
    shell_store_message(shell, shell->save_message, err->text);
  else if (!err->code)
    shell_store_message(shell, shell->save_message, "");
  if (err->code && sweep->submitter) {
    refuse_submission(shell, sweep, err);
    return;
  }
  if (!err->code && sweep->submitter) {
    Weir__SubmitReply reply = WEIR__SUBMIT_REPLY__INIT;
    reply.run = sweep->id;
    rpc_call_reply(sweep->submitter, &reply, NULL);
    sweep->submitter = NULL;
  }
  sweep->is_due = true; /* the turn comes at the end of this batch of tasks */
}

void shell_sweeps_published(struct coordinator_service *shell, const char *run) {
  for (struct shell_sweep *sweep = shell->sweeps; sweep; sweep = sweep->next)
    if (!sweep->is_settled && strncmp(run, sweep->id, strlen(sweep->id)) == 0)
      sweep->is_due = true;
}

void shell_sweeps_turn(struct coordinator_service *shell, bool is_tick) {
  for (struct shell_sweep *sweep = shell->sweeps; sweep && !shell->is_stopping; sweep = sweep->next)
    if (!sweep->is_settled && (sweep->is_due || is_tick)) {
      sweep->is_due = false;
      sweep_turn(shell, sweep);
    }
}

void shell_sweeps_emptied(struct coordinator_service *shell) {
  for (struct shell_sweep *sweep = shell->sweeps; sweep; sweep = sweep->next) {
    sweep->is_head_written = false;
    sweep->n_written = 0;
    shell_sweep_save(shell, sweep);
  }
}

void shell_sweeps_stop(struct coordinator_service *shell, const char *why) {
  for (struct shell_sweep *sweep = shell->sweeps; sweep; sweep = sweep->next) {
    if (sweep->submitter)
      rpc_call_fail(sweep->submitter, ERR_UNAVAILABLE, "%s", why);
    sweep->submitter = NULL;
  }
}

void shell_sweeps_fini(struct coordinator_service *shell) {
  sweeps_free(shell->sweeps);
  shell->sweeps = NULL;
}

/* The log first, then what it says. */
static void sweep_turn(struct coordinator_service *shell, struct shell_sweep *sweep) {
  const Weir__SweepBudget *budget = sweep->head->spec->budget;
  if (!sweep->is_head_written) {
    shell_sweep_save(shell, sweep);
    return;
  }
  observe(shell, sweep);
  decide(sweep);
  if (budget->has_seconds && !sweep->sweep->end &&
      (double)(clock_unix_ms() - sweep->head->submitted_unix_ms) / 1e3 >= budget->seconds)
    shell_sweep_end(shell, sweep, "budget.seconds have passed");
  shell_sweep_save(shell, sweep);
  if (sweep->n_written == sweep->n_log && act(shell, sweep) && sweep->sweep->end) {
    sweep->is_settled = true;
    shell_release_model(shell, sweep->id);
  }
}

/* What has become of the trials that run. */
static void observe(struct coordinator_service *shell, struct shell_sweep *sweep) {
  for (int i = 0; i < sweep->sweep->n_trials; i++) {
    const struct sweep_trial *trial = &sweep->sweep->trials[i];
    Weir__RunInfo info;
    char *id;
    if (trial->state != SWEEP_TRIAL_RUNNING || trial->is_known)
      continue;
    id = sweep_run_id(sweep, trial->number);
    if (coordinator_run_info(shell->core, id, shell_now_ms(), &info))
      observe_run(sweep, trial, &info);
    free(id);
  }
}

static double objective_value(const struct shell_sweep *sweep, const Weir__RunInfo *info) {
  const char *metric = sweep->head->spec->objective->metric;
  if (strcmp(metric, "loss") == 0)
    return info->eval_loss;
  if (strcmp(metric, "accuracy") == 0)
    return info->accuracy;
  for (size_t i = 0; i < info->n_metrics; i++)
    if (strcmp(info->metrics[i]->name, metric) == 0)
      return info->metrics[i]->value;
  return NAN;
}

/* Words that do not depend on the cluster: they go into the log. */
static const char *failure_of(const Weir__RunInfo *info) {
  if (info->state == WEIR__RUN_STATE__CANCELLED || info->state == WEIR__RUN_STATE__STOPPED)
    return "its run was ended";
  return info->bad_input ? "its values cannot be used" : "its training diverges";
}

static void observe_run(struct shell_sweep *sweep, const struct sweep_trial *trial,
                        const Weir__RunInfo *info) {
  struct sweep_outcome outcome = {0};
  uint64_t rung = sweep->sweep->rungs[trial->n_results];
  bool is_last = trial->n_results == sweep->sweep->n_rungs - 1;
  switch (info->state) {
  case WEIR__RUN_STATE__DONE:
  case WEIR__RUN_STATE__HELD:
    if (info->state == WEIR__RUN_STATE__HELD ? info->step != rung : !is_last)
      return;
    outcome.value = objective_value(sweep, info);
    break;
  case WEIR__RUN_STATE__FAILED:
    if (!info->bad_input && !info->diverged)
      return; /* it is tried again */
    outcome.failure = failure_of(info);
    outcome.is_bad_input = info->bad_input;
    break;
  case WEIR__RUN_STATE__CANCELLED:
  case WEIR__RUN_STATE__STOPPED:
    outcome.failure = failure_of(info);
    break;
  default:
    return;
  }
  sweep_tell(sweep->sweep, trial->number, trial->n_results, &outcome);
}

static void record_take(struct shell_sweep *sweep, Weir__SweepRecord *record) {
  struct err err = ERR_NONE;
  CHECK(sweep_apply(sweep->sweep, record, &err) == 0);
  sweep_add(sweep, record);
}

static void decide(struct shell_sweep *sweep) {
  Weir__SweepRecord *record;
  while (sweep_next(sweep->sweep, &record) == SWEEP_DECIDED)
    record_take(sweep, record);
}

void shell_sweep_end(struct coordinator_service *shell, struct shell_sweep *sweep, const char *reason) {
  Weir__SweepEnd end = WEIR__SWEEP_END__INIT;
  Weir__SweepRecord record = WEIR__SWEEP_RECORD__INIT;
  if (sweep->sweep->end)
    return;
  end.reason = (char *)reason;
  record.end = &end;
  record_take(sweep, message_copy(&record));
  shell_sweep_save(shell, sweep);
}

/* Brings the runs to where their trials are. Whether nothing is left to be done. */
static bool act(struct coordinator_service *shell, struct shell_sweep *sweep) {
  bool is_done = true;
  for (int i = 0; i < sweep->sweep->n_trials && !shell->is_stopping; i++) {
    const struct sweep_trial *trial = &sweep->sweep->trials[i];
    bool is_running = trial->state == SWEEP_TRIAL_RUNNING && !trial->is_known;
    Weir__RunInfo info;
    char *id;
    if (!is_running && trial->state != SWEEP_TRIAL_STOPPED)
      continue;
    id = sweep_run_id(sweep, trial->number);
    if (!coordinator_run_info(shell->core, id, shell_now_ms(), &info)) {
      if (is_running)
        trial_begin(shell, sweep, trial, id);
    } else if (is_running) {
      trial_go_on(shell, sweep, trial, id);
    } else if (!coordinator_run_is_over(shell->core, id)) {
      shell_step(shell, &(struct coordinator_event){.kind = EVENT_RUN_CANCELLED, .run = id});
      is_done = false;
    }
    free(id);
  }
  return is_done;
}

static void trial_begin(struct coordinator_service *shell, struct shell_sweep *sweep,
                        const struct sweep_trial *trial, const char *id) {
  const Weir__SweepHead *head = sweep->head;
  struct live_model *live = shell_find_model(shell, sweep->id);
  struct run_submission submission = {.id = id,
                                      .model_bytes = head->model_bytes,
                                      .model_sha256 = head->model_sha256,
                                      .outline_bytes = head->outline_bytes,
                                      .outline_sha256 = head->outline_sha256,
                                      .parameters = head->parameters,
                                      .block_elems = head->block_elems,
                                      .n_blocks = (uint32_t)head->n_block_elems,
                                      .submitted_unix_ms = clock_unix_ms(),
                                      .sweep = sweep->id,
                                      .trial = trial->number};
  Weir__RunSpec *spec = NULL;
  struct err err = ERR_NONE;
  if (sweep_trial_spec(sweep->sweep, trial, &spec, &err)) {
    log_event(LOG_WARN, "coordinator", "trial_refused", "run=%s reason=\"%s\"", id, err.text);
    sweep_tell(sweep->sweep, trial->number, trial->n_results,
               &(struct sweep_outcome){.failure = "its values cannot be used", .is_bad_input = true});
    sweep->is_due = true;
    return;
  }
  if (coordinator_live_runs(shell->core) < RUNS_LIVE_MAX) { /* else at a later tick */
    submission.spec = spec;
    if (live)
      shell_keep_model(shell, id, run_model_get(live->model));
    shell_step(shell, &(struct coordinator_event){.kind = EVENT_RUN_SUBMITTED, .submission = &submission});
    shell_fetch_model(shell, id); /* where this coordinator is not the one that the sweep was sent to */
  }
  spec_free(spec);
}

/* One that is held short of its next rung; one that failed for a reason that is not its own. */
static void trial_go_on(struct coordinator_service *shell, const struct shell_sweep *sweep,
                        const struct sweep_trial *trial, const char *id) {
  const struct sweep *of = sweep->sweep;
  uint64_t rung = of->rungs[trial->n_results];
  bool is_last = trial->n_results == of->n_rungs - 1;
  Weir__RunInfo info;
  CHECK(coordinator_run_info(shell->core, id, shell_now_ms(), &info));
  if (info.hold > 0 && (is_last || info.hold < rung)) {
    shell_step(shell, &(struct coordinator_event){.kind = EVENT_RUN_HOLD, .hold = {id, is_last ? 0 : rung}});
  } else if (info.state == WEIR__RUN_STATE__FAILED && !info.bad_input && !info.diverged) {
    shell_step(shell,
               &(struct coordinator_event){.kind = EVENT_RUN_RESUMED, .resumed = {id, info.checkpoint_step}});
    shell_fetch_model(shell, id);
  }
}
