/* What sweeps decide, and what they are told of it. */
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
#include "server/coordinator/messages/to_come.h"

/* What a sweep does next, found by the thread `searching`. */
struct decision {
  struct task task;
  struct coordinator_service *shell;
  struct shell_sweep *sweep;
  Weir__SweepRecord *record; /* NULL: nothing, until something is told */
};

static void sweep_turn(struct coordinator_service *shell, struct shell_sweep *sweep);
static void observe(struct coordinator_service *shell, struct shell_sweep *sweep);
static void observe_end(struct shell_sweep *sweep, const struct sweep_trial *trial, uint32_t repeat,
                        const Weir__RunInfo *info, uint64_t earliest);
static void observe_run(struct shell_sweep *sweep, const struct sweep_trial *trial, uint32_t repeat,
                        const Weir__RunInfo *info, bool is_evaluated);
static void decide(struct coordinator_service *shell, struct shell_sweep *sweep);
static void decision_make(struct task *task);
static void decision_take(struct task *task);
static void extension_take(struct coordinator_service *shell, struct shell_sweep *sweep);

struct shell_sweep *shell_find_sweep(struct coordinator_service *shell, const char *id) {
  struct shell_sweep *sweep = shell->sweeps;
  while (sweep && strcmp(sweep->id, id))
    sweep = sweep->next;
  return sweep;
}

char *sweep_run_id(const struct shell_sweep *sweep, uint32_t trial, uint32_t repeat) {
  return repeat ? mem_printf("%s-%04" PRIu32 "-%" PRIu32, sweep->id, trial, repeat)
                : mem_printf("%s-%04" PRIu32, sweep->id, trial);
}

struct trial_run *sweep_run(const struct shell_sweep *sweep, const struct sweep_trial *trial,
                            uint32_t repeat) {
  return &sweep->runs[trial->number * sweep->sweep->spec->repeats + repeat];
}

static void record_take(struct shell_sweep *sweep, Weir__SweepRecord *record) {
  struct err err = ERR_NONE;
  CHECK(sweep_apply(sweep->sweep, record, &err) == 0);
  sweep_add(sweep, record);
}

/* The whole ids of the sweeps that a spec names, which must be of the same tenant. */
static int find_others(struct coordinator_service *shell, Weir__SweepHead *head, struct err *err) {
  const struct viewer viewer = viewer_of_tenant(tenant_or_default(head->tenant));
  Weir__SweepSpec *spec = head->spec;
  for (size_t i = 0; i < spec->n_from; i++) {
    const struct shell_sweep *other = shell_match_sweep(shell, &viewer, spec->from[i], err);
    if (!other) {
      err->code = ERR_INVALID; /* in the spec */
      return err_prefix(err, "from");
    }
    free(spec->from[i]);
    spec->from[i] = mem_strdup(other->id);
    for (size_t before = 0; before < i; before++)
      if (strcmp(spec->from[before], other->id) == 0)
        return err_set(err, ERR_INVALID, "from: '%s' is there twice", other->id);
  }
  return 0;
}

/* Of the sweeps that its spec names. */
static int learn(struct coordinator_service *shell, struct shell_sweep *sweep, struct err *err) {
  const Weir__SweepSpec *spec = sweep->head->spec;
  struct sweep_other *others = mem_new(spec->n_from * sizeof *others + 1);
  Weir__SweepRecord *record = NULL;
  for (size_t i = 0; i < spec->n_from; i++)
    others[i] = (struct sweep_other){spec->from[i], shell_find_sweep(shell, spec->from[i])->sweep};
  if (spec->n_from > 0 && sweep_learn(sweep->sweep, others, (int)spec->n_from, &record, err) == 0)
    record_take(sweep, record);
  free(others);
  return err->code;
}

/* Among the live models of runs; freed by the caller. */
static char *model_holder(const struct shell_sweep *sweep, uint32_t model) {
  return model ? mem_printf("%s/%" PRIu32, sweep->id, model) : mem_strdup(sweep->id);
}

static void models_keep(struct coordinator_service *shell, const struct shell_sweep *sweep,
                        struct run_model **models) {
  for (uint32_t i = 0; i <= sweep->head->n_files; i++) {
    char *holder = model_holder(sweep, i);
    shell_keep_model(shell, holder, sweep_head_model(sweep->head, i).model_sha256, run_model_get(models[i]));
    free(holder);
  }
}

static void models_release(struct coordinator_service *shell, const struct shell_sweep *sweep) {
  for (uint32_t i = 0; i <= sweep->head->n_files; i++) {
    char *holder = model_holder(sweep, i);
    shell_release_model(shell, holder);
    free(holder);
  }
}

struct live_model *sweep_find_model(struct coordinator_service *shell, const struct shell_sweep *sweep,
                                    uint32_t model) {
  char *holder = model_holder(sweep, model);
  struct live_model *live = shell_find_model(shell, holder);
  free(holder);
  return live;
}

void shell_sweep_begin(struct coordinator_service *shell, struct rpc_call *call, const Weir__SweepHead *head,
                       struct run_model **models) {
  Weir__SweepHead *copy = message_copy(head);
  struct shell_sweep *sweep;
  struct err err = ERR_NONE;
  if (find_others(shell, copy, &err) || sweep_open(copy, &sweep, &err)) {
    rpc_call_finish(call, &err);
    message_free(copy);
    return;
  }
  if (learn(shell, sweep, &err)) {
    rpc_call_finish(call, &err);
    sweeps_free(sweep);
    return;
  }
  sweep_kind_open(sweep, NULL);
  shell_sweep_kind_begin(shell, sweep);
  sweep->submitter = call;
  sweep->next = shell->sweeps;
  shell->sweeps = sweep;
  models_keep(shell, sweep, models);
  log_event(LOG_INFO, "coordinator", "sweep_submitted", "sweep=%s search=%s schedule=%s concurrency=%" PRIu32,
            sweep->id, head->spec->search->name, head->spec->schedule->name, head->spec->concurrency);
  shell_sweep_save(shell, sweep);
}

/* The client is told to try again, so it must not run: what the store may have of it all the same is deleted.
 */
static void refuse_submission(struct coordinator_service *shell, struct shell_sweep *sweep,
                              const struct err *err) {
  rpc_call_fail(sweep->submitter, ERR_UNAVAILABLE, "the store cannot keep the sweep: %s", err->text);
  sweep->submitter = NULL;
  sweep->is_refused = true;
  models_release(shell, sweep);
}

static void sweep_forget(struct coordinator_service *shell, struct shell_sweep *sweep) {
  struct shell_sweep **at = &shell->sweeps;
  while (*at != sweep)
    at = &(*at)->next;
  *at = sweep->next;
  sweep->next = NULL;
  sweeps_free(sweep);
}

void shell_sweep_saved(struct coordinator_service *shell, struct shell_sweep *sweep, const struct err *err) {
  if (err->code && err->code != ERR_STALE)
    shell_store_message(shell, shell->save_message, err->text);
  else if (!err->code)
    shell_store_message(shell, shell->save_message, "");
  if (!err->code && sweep->is_refused) {
    sweep_forget(shell, sweep);
    return;
  }
  if (err->code && sweep->submitter) {
    refuse_submission(shell, sweep, err);
  } else if (!err->code && sweep->submitter) {
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
    sweep->emptied++;
    sweep->is_head_written = false;
    sweep->n_written = 0;
    sweep->kind_changes++;
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

/* Since when its budget.seconds count. */
static int64_t passed_ms(const struct shell_sweep *sweep, int64_t now_unix_ms) {
  int64_t from_ms = sweep->sweep->from_unix_ms;
  return now_unix_ms - (from_ms ? from_ms : sweep->head->submitted_unix_ms);
}

static bool have_seconds_passed(const struct shell_sweep *sweep, int64_t now_unix_ms) {
  const Weir__SweepBudget *budget = sweep->sweep->spec->budget;
  return budget->has_seconds && (double)passed_ms(sweep, now_unix_ms) / 1e3 >= budget->seconds;
}

/* The log first, then what it says. */
static void sweep_turn(struct coordinator_service *shell, struct shell_sweep *sweep) {
  if (sweep->is_refused || !sweep->is_head_written) {
    shell_sweep_save(shell, sweep);
    return;
  }
  if (sweep->is_deciding)
    return; /* the turn comes when that is done */
  if (have_seconds_passed(sweep, clock_unix_ms()))
    shell_sweep_end(shell, sweep, "budget.seconds have passed");
  observe(shell, sweep);
  shell_sweep_kind_note(shell, sweep);
  if (!sweep->is_waiting && !sweep->sweep->end && sweep_kind_fits(sweep)) {
    decide(shell, sweep);
    return;
  }
  shell_sweep_save(shell, sweep);
  if (sweep->n_written == sweep->n_log && shell_sweep_act(shell, sweep) && sweep->sweep->end) {
    sweep->is_settled = true;
    models_release(shell, sweep);
  }
}

/* What has become of the trials that run. */
static void observe(struct coordinator_service *shell, struct shell_sweep *sweep) {
  const uint32_t repeats = sweep->sweep->spec->repeats;
  for (int i = 0; i < sweep->n_runs; i++) {
    const struct sweep_trial *trial = &sweep->sweep->trials[(uint32_t)i / repeats];
    const uint32_t repeat = (uint32_t)i % repeats;
    Weir__RunInfo info;
    char *id;
    if (trial->state != SWEEP_TRIAL_RUNNING || trial->is_known || sweep_is_told(trial, repeat))
      continue;
    id = sweep_run_id(sweep, trial->number, repeat);
    if (coordinator_run_info(shell->core, id, shell_now_ms(), &info)) {
      if (trial->may_end_early)
        observe_end(sweep, trial, repeat, &info, coordinator_earliest_end(shell->core, id));
      observe_run(sweep, trial, repeat, &info, coordinator_run_is_evaluated(shell->core, id));
    }
    free(id);
  }
}

/* Of its newest evaluation. */
static double metric_value(const Weir__RunInfo *info, const char *metric) {
  if (strcmp(metric, "loss") == 0)
    return info->eval_loss;
  if (strcmp(metric, "accuracy") == 0)
    return info->accuracy;
  for (size_t i = 0; i < info->n_metrics; i++)
    if (strcmp(info->metrics[i]->name, metric) == 0)
      return info->metrics[i]->value;
  return NAN;
}

void shell_sweep_tell(struct shell_sweep *sweep, const struct sweep_trial *trial,
                      const struct sweep_outcome *outcome) {
  sweep_tell(sweep->sweep, trial->number, trial->n_results, outcome);
  sweep->is_waiting = false;
}

/* Words that do not depend on the cluster: they go into the log. */
static const char *failure_of(const Weir__RunInfo *info) {
  if (info->state == WEIR__RUN_STATE__CANCELLED || info->state == WEIR__RUN_STATE__STOPPED)
    return "its run was ended";
  return info->bad_input ? "its values cannot be used" : "its training diverges";
}

/* Whether the run has a value for the rung: one that has ended early has its last for all rungs to come. */
static bool has_come(const Weir__RunInfo *info, uint64_t rung, bool is_last) {
  if (info->state == WEIR__RUN_STATE__HELD)
    return info->step == rung;
  return is_last || (info->patience && info->patience->last_step > 0);
}

/* Whether the run will never stand at the rung: people have raised its hold while the sweep was over. */
static bool has_passed(const Weir__RunInfo *info, uint64_t rung, bool is_last) {
  if (info->state == WEIR__RUN_STATE__HELD)
    return rung > 0 && info->step > rung;
  return info->state == WEIR__RUN_STATE__DONE && !has_come(info, rung, is_last);
}

/* The share of its way to the trial's next rung that the run has yet to compute at a version. */
static double share_behind(const struct sweep *sweep, const struct sweep_trial *trial,
                           const Weir__RunInfo *info, uint64_t version) {
  int rung = trial->n_results;
  uint64_t from = rung > 0 ? sweep_rung_step(sweep, trial, rung - 1, info->train_samples) : 0;
  uint64_t to = sweep_rung_step(sweep, trial, rung, info->train_samples);
  to = to ? to : info->steps;
  if (version >= to)
    return 0;
  return version > from ? (double)(to - version) / (double)(to - from) : 1;
}

/* The run does not end before that version; 0: that is not known. */
static void observe_end(struct shell_sweep *sweep, const struct sweep_trial *trial, uint32_t repeat,
                        const Weir__RunInfo *info, uint64_t earliest) {
  if (earliest > 0 && sweep_tell_left(sweep->sweep, trial->number, trial->n_results, repeat,
                                      share_behind(sweep->sweep, trial, info, earliest)))
    sweep->is_waiting = false;
}

static void observe_run(struct shell_sweep *sweep, const struct sweep_trial *trial, uint32_t repeat,
                        const Weir__RunInfo *info, bool is_evaluated) {
  const Weir__SweepSpec *spec = sweep->head->spec;
  struct sweep_outcome outcome = {.repeat = repeat, .train_samples = info->train_samples};
  uint64_t rung = sweep_rung_step(sweep->sweep, trial, trial->n_results, info->train_samples);
  bool is_last = trial->n_results == sweep->sweep->n_rungs - 1;
  switch (info->state) {
  case WEIR__RUN_STATE__DONE:
  case WEIR__RUN_STATE__HELD:
    if (has_passed(info, rung, is_last)) {
      outcome.failure = "its run went past the rung";
      break;
    }
    if (!is_evaluated || !has_come(info, rung, is_last))
      return;
    if (info->patience && info->patience->last_step)
      outcome.spared = share_behind(sweep->sweep, trial, info, info->patience->last_step);
    outcome.value = metric_value(info, spec->objective->metric);
    for (size_t i = 1; i < spec->n_objectives; i++)
      outcome.others[i - 1] = metric_value(info, spec->objectives[i]->metric);
    outcome.bounded = spec->constraint ? metric_value(info, spec->constraint->metric) : NAN;
    break;
  case WEIR__RUN_STATE__FAILED:
    if (!info->bad_input && !info->diverged)
      return; /* it is tried again */
    outcome.failure = failure_of(info);
    outcome.is_bad_input = info->bad_input;
    break;
  case WEIR__RUN_STATE__CANCELLED:
  case WEIR__RUN_STATE__STOPPED:
    if (trial->is_revived && !sweep_run(sweep, trial, repeat)->is_resumed)
      return; /* it ended with the sweep */
    outcome.failure = failure_of(info);
    break;
  default:
    return;
  }
  shell_sweep_tell(sweep, trial, &outcome);
}

/* What the sweep has used of its budget.seconds; the time after they had passed is not of it. */
static int64_t used_ms(const struct shell_sweep *sweep, int64_t now_unix_ms) {
  return have_seconds_passed(sweep, now_unix_ms) ? (int64_t)(sweep->sweep->spec->budget->seconds * 1e3)
                                                 : passed_ms(sweep, now_unix_ms);
}

int shell_sweep_extend(struct coordinator_service *shell, struct shell_sweep *sweep,
                       const Weir__ExtendSweepRequest *request, struct err *err) {
  const Weir__SweepBudget none = WEIR__SWEEP_BUDGET__INIT;
  const Weir__SweepBudget *budget = request->budget ? request->budget : &none;
  const int64_t now_unix_ms = clock_unix_ms();
  Weir__SweepExtension extension = WEIR__SWEEP_EXTENSION__INIT;
  Weir__SweepRecord record = WEIR__SWEEP_RECORD__INIT;
  if (sweep->extension || sweep->is_deleting)
    return err_set(err, ERR_BUSY, "sweep '%s' is being %s", sweep->id,
                   sweep->is_deleting ? "deleted" : "extended");
  if (sweep_check_extension(sweep->sweep, budget, err))
    return err->code;
  if (!budget->has_seconds && have_seconds_passed(sweep, now_unix_ms))
    return err_set(err, ERR_INVALID, "the budget.seconds of sweep '%s' have passed: %s", sweep->id,
                   request->counts_used ? "raise them, too" : "give it as many as it is to go on for, too");
  extension.budget = (Weir__SweepBudget *)budget;
  extension.has_from_unix_ms = budget->has_seconds;
  extension.from_unix_ms = now_unix_ms - (request->counts_used ? used_ms(sweep, now_unix_ms) : 0);
  record.extension = &extension;
  sweep->extension = message_copy(&record);
  if (!sweep->is_deciding)
    extension_take(shell, sweep);
  return 0;
}

/* It goes on, as a successor would. */
static void extension_take(struct coordinator_service *shell, struct shell_sweep *sweep) {
  if (sweep->sweep->end)
    shell_sweep_kind_reopen(shell, sweep);
  record_take(sweep, sweep->extension);
  sweep->extension = NULL;
  sweep->n_extended = sweep->n_log;
  sweep->end_asked = NULL;
  sweep->is_settled = sweep->is_waiting = false;
  sweep->is_due = true;
  for (int i = 0; i < sweep->n_runs; i++) {
    sweep->runs[i].is_let_go = sweep->runs[i].is_resumed = false;
    sweep->runs[i].may_be_stored = true;
  }
  shell_sweep_save(shell, sweep);
}

void shell_sweep_deleted(struct coordinator_service *shell, const char *id) {
  struct shell_sweep *sweep = shell_find_sweep(shell, id);
  if (sweep) {
    models_release(shell, sweep);
    shell_sweep_kind_forget(shell, id);
    sweep_forget(shell, sweep);
  }
}

/* A searcher may take its time: the event loop does not wait for it. */
static void decide(struct coordinator_service *shell, struct shell_sweep *sweep) {
  struct decision *decision = mem_new(sizeof *decision);
  *decision = (struct decision){.task.run = decision_make, .shell = shell, .sweep = sweep};
  sweep->is_deciding = true;
  task_post(shell->searching, &decision->task); /* one a sweep */
}

static void decision_make(struct task *task) {
  struct decision *decision = TASK_OWNER(task, struct decision, task);
  sweep_next(decision->sweep->sweep, &decision->record);
  decision->task.run = decision_take;
  task_post(decision->shell->event_loop, &decision->task);
}

static void decision_take(struct task *task) {
  struct decision *decision = TASK_OWNER(task, struct decision, task);
  struct shell_sweep *sweep = decision->sweep;
  sweep->is_deciding = false;
  sweep->is_waiting = !decision->record;
  sweep->is_due = true;
  if (sweep->end_asked)
    message_free(decision->record);
  else if (decision->record)
    record_take(sweep, decision->record);
  if (sweep->end_asked && !decision->shell->is_stopping)
    shell_sweep_end(decision->shell, sweep, sweep->end_asked);
  if (sweep->extension && !decision->shell->is_stopping)
    extension_take(decision->shell, sweep);
  free(decision);
}

bool sweep_has_ended(const struct shell_sweep *sweep) {
  return sweep->sweep->end && sweep->n_written == sweep->n_log;
}

void shell_sweep_end(struct coordinator_service *shell, struct shell_sweep *sweep, const char *reason) {
  Weir__SweepEnd end = WEIR__SWEEP_END__INIT;
  Weir__SweepRecord record = WEIR__SWEEP_RECORD__INIT;
  sweep->end_asked = reason;
  if (sweep->sweep->end || sweep->is_deciding)
    return;
  end.reason = (char *)reason;
  record.end = &end;
  record_take(sweep, message_copy(&record));
  shell_sweep_save(shell, sweep);
}
