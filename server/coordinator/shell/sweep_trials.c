/* What sweeps have decided, carried out: their trials are runs of the core. A run's id derives from the sweep
   and the trial's number, so that nothing is made twice. A trial has as many runs as the sweep has repeats.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/agree/spec.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/messages/to_come.h"
#include "server/coordinator/quotas/quota.h"
#include "server/coordinator/shell/sweeps.h"
#include "server/coordinator/state/room.h"

static void trial_drive(struct coordinator_service *shell, struct shell_sweep *sweep,
                        const struct sweep_trial *trial, uint32_t repeat);
static void run_seek(struct coordinator_service *shell, struct shell_sweep *sweep, uint32_t trial,
                     uint32_t repeat);
static void seek_run(struct task *task);
static void seek_done(struct task *task);
static bool run_let_go(struct coordinator_service *shell, const char *id);
static void trial_begin(struct coordinator_service *shell, struct shell_sweep *sweep,
                        const struct sweep_trial *trial, uint32_t repeat, Weir__RunSpec *spec);
static void trial_fork(struct coordinator_service *shell, struct shell_sweep *sweep,
                       const struct sweep_trial *trial, uint32_t repeat, Weir__RunSpec *spec);
static void trial_go_on(struct coordinator_service *shell, struct shell_sweep *sweep,
                        const struct sweep_trial *trial, uint32_t repeat);
static void run_mend(struct coordinator_service *shell, const char *id, const Weir__RunInfo *info);
static bool run_revive(struct coordinator_service *shell, struct shell_sweep *sweep,
                       const struct sweep_trial *trial, uint32_t repeat, const Weir__RunInfo *info);

/* A run that the core has forgotten, read by the jobs. */
struct seek {
  struct task task;
  struct coordinator_service *shell;
  char *sweep, *run;
  uint32_t trial, repeat;
  struct stored_run stored;
  struct err err;
};

/* Where one of a trial's runs fails, the others are not needed. */
static bool is_to_end(const struct sweep *sweep, const struct sweep_trial *trial) {
  return trial->state == SWEEP_TRIAL_STOPPED ||
         (trial->state == SWEEP_TRIAL_FAILED && sweep->spec->repeats > 1);
}

bool shell_sweep_act(struct coordinator_service *shell, struct shell_sweep *sweep) {
  const uint32_t repeats = sweep->sweep->spec->repeats;
  bool is_done = true;
  sweep->quota[0] = '\0';
  for (int i = 0; i < sweep->n_runs && !shell->is_stopping; i++) {
    const struct sweep_trial *trial = &sweep->sweep->trials[(uint32_t)i / repeats];
    const uint32_t repeat = (uint32_t)i % repeats;
    if (trial->state == SWEEP_TRIAL_RUNNING && !trial->is_known) {
      if (!sweep_is_told(trial, repeat))
        trial_drive(shell, sweep, trial, repeat);
    } else if (is_to_end(sweep->sweep, trial) && !sweep->runs[i].is_let_go) {
      char *id = sweep_run_id(sweep, trial->number, repeat);
      sweep->runs[i].is_let_go = !sweep->runs[i].is_forking && run_let_go(shell, id);
      is_done &= sweep->runs[i].is_let_go;
      free(id);
    }
  }
  return is_done;
}

int shell_sweep_check_hold(struct coordinator_service *shell, const Weir__RunInfo *run, struct err *err) {
  const struct shell_sweep *sweep = *run->sweep ? shell_find_sweep(shell, run->sweep) : NULL;
  if (!sweep || sweep_has_ended(sweep))
    return 0;
  return err_set(err, ERR_INVALID,
                 "train.hold: run '%s' is a trial of sweep '%s', which alone says how far its trials go: "
                 "'weir fork %s' begins a run of your own from it, 'weir sweep stop %s' ends the sweep",
                 run->run, sweep->id, run->run, sweep->id);
}

/* Whether its tenant may have no further trial now. */
static bool is_over_quota(struct coordinator_service *shell, struct shell_sweep *sweep) {
  const Weir__SweepHead *head = sweep->head;
  const struct quota_demand demand = {
      .memory_bytes = room_of_blocks(head->run_spec, head->block_elems, (uint32_t)head->n_block_elems)};
  struct err err = ERR_NONE;
  if (quota_admit(shell->core, tenant_or_default(head->tenant), &demand, &err) == 0)
    return false;
  snprintf(sweep->quota, sizeof sweep->quota, "%.*s", (int)sizeof sweep->quota - 1, err.text);
  return true;
}

static void trial_drive(struct coordinator_service *shell, struct shell_sweep *sweep,
                        const struct sweep_trial *trial, uint32_t repeat) {
  const struct trial_run *run = sweep_run(sweep, trial, repeat);
  char *id = sweep_run_id(sweep, trial->number, repeat);
  Weir__RunSpec *spec = NULL;
  struct err err = ERR_NONE;
  if (coordinator_run_spec(shell->core, id)) {
    trial_go_on(shell, sweep, trial, repeat);
  } else if (run->may_be_stored) {
    run_seek(shell, sweep, trial->number, repeat);
  } else if (coordinator_live_runs(shell->core) >= LIMIT_RUNS || run->is_forking ||
             is_over_quota(shell, sweep)) {
    ; /* at a later tick */
  } else if (run->is_refused || sweep_repeat_spec(sweep->sweep, trial, repeat, &spec, &err)) {
    if (err.code)
      log_event(LOG_WARN, "coordinator", "trial_refused", "run=%s reason=\"%s\"", id, err.text);
    shell_sweep_tell(sweep, trial,
                     &(struct sweep_outcome){
                         .repeat = repeat, .failure = "its values cannot be used", .is_bad_input = true});
    sweep->is_due = true;
  } else if (trial->parent >= 0) {
    trial_fork(shell, sweep, trial, repeat, spec);
  } else {
    trial_begin(shell, sweep, trial, repeat, spec);
  }
  free(id);
}

/* Whether it is over. */
static bool run_let_go(struct coordinator_service *shell, const char *id) {
  bool is_over = coordinator_run_is_over(shell->core, id);
  if (!is_over)
    shell_step(shell, &(struct coordinator_event){.kind = EVENT_RUN_CANCELLED, .run = id});
  return is_over;
}

/* Takes the spec. */
static void trial_begin(struct coordinator_service *shell, struct shell_sweep *sweep,
                        const struct sweep_trial *trial, uint32_t repeat, Weir__RunSpec *spec) {
  const uint32_t which = sweep_trial_model(sweep->sweep, trial);
  const Weir__SweepModel model = sweep_head_model(sweep->head, which);
  const struct live_model *live = sweep_find_model(shell, sweep, which);
  char *id = sweep_run_id(sweep, trial->number, repeat);
  struct run_submission submission = {.id = id,
                                      .tenant = sweep->head->tenant,
                                      .spec = spec,
                                      .model_bytes = model.model_bytes,
                                      .model_sha256 = model.model_sha256,
                                      .outline_bytes = model.outline_bytes,
                                      .outline_sha256 = model.outline_sha256,
                                      .parameters = model.parameters,
                                      .block_elems = model.block_elems,
                                      .n_blocks = (uint32_t)model.n_block_elems,
                                      .submitted_unix_ms = clock_unix_ms(),
                                      .sweep = sweep->id,
                                      .trial = trial->number};
  if (live)
    shell_keep_model(shell, id, model.model_sha256, run_model_get(live->model));
  shell_step(shell, &(struct coordinator_event){.kind = EVENT_RUN_SUBMITTED, .submission = &submission});
  shell_fetch_model(shell, id); /* where this coordinator is not the one that the sweep was sent to */
  spec_free(spec);
  free(id);
}

/* Of the parent's same repeat, which waits at the rung. Its checkpoint of that version may be still in the
   making. Only people end such a run. Takes the spec. */
static void trial_fork(struct coordinator_service *shell, struct shell_sweep *sweep,
                       const struct sweep_trial *trial, uint32_t repeat, Weir__RunSpec *spec) {
  char *id = sweep_run_id(sweep, trial->number, repeat);
  char *parent = sweep_run_id(sweep, (uint32_t)trial->parent, repeat);
  Weir__RunInfo info;
  bool is_there = coordinator_run_info(shell->core, parent, shell_now_ms(), &info) &&
                  !shell_saves_is_deleting(shell, parent);
  bool is_forgotten = !is_there && !coordinator_run_spec(shell->core, parent) &&
                      sweep_run(sweep, &sweep->sweep->trials[trial->parent], repeat)->may_be_stored;
  struct err err = ERR_NONE;
  uint64_t found, step = 0;
  if (is_there)
    step = sweep_rung_step(sweep->sweep, trial, trial->begin - 1, info.train_samples);
  if (is_forgotten) {
    run_seek(shell, sweep, (uint32_t)trial->parent, repeat);
  } else if (is_there && shell_pick_checkpoint(shell, parent, &step, &found, &err)) {
    const struct trial_fork fork = {id, parent, step, spec, sweep->id, trial->number, repeat};
    sweep_run(sweep, trial, repeat)->is_forking = shell_fork_trial(shell, &fork, &err) == 0;
    spec = NULL;
  } else if (is_there && info.state == WEIR__RUN_STATE__FAILED && !info.bad_input && !info.diverged) {
    run_mend(shell, parent, &info);
  } else if (is_there && run_revive(shell, sweep, &sweep->sweep->trials[trial->parent], repeat, &info)) {
    ; /* it stands there again before long */
  } else if (!is_there || coordinator_run_is_over(shell->core, parent)) {
    shell_sweep_tell(sweep, trial,
                     &(struct sweep_outcome){.repeat = repeat, .failure = "what it goes on from is gone"});
    sweep->is_due = true;
  }
  spec_free(spec);
  free(id);
  free(parent);
}

/* Its record may be on the way to the store: then at a later tick. */
static void run_seek(struct coordinator_service *shell, struct shell_sweep *sweep, uint32_t trial,
                     uint32_t repeat) {
  struct trial_run *run = sweep_run(sweep, &sweep->sweep->trials[trial], repeat);
  char *id = sweep_run_id(sweep, trial, repeat);
  struct seek *seek;
  if (run->is_sought || shell_saves_state(shell, id, shell_saves_newest(shell, id)) != SAVE_DONE) {
    free(id);
    return;
  }
  run->is_sought = true;
  seek = mem_new(sizeof *seek);
  *seek = (struct seek){.task.run = seek_run,
                        .shell = shell,
                        .sweep = mem_strdup(sweep->id),
                        .run = id,
                        .trial = trial,
                        .repeat = repeat};
  task_post(shell->jobs, &seek->task); /* one a run */
}

static void seek_run(struct task *task) {
  struct seek *seek = TASK_OWNER(task, struct seek, task);
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(seek->shell->term, term);
  if (shell_may_write(seek->shell, &seek->err))
    stored_runs_find(seek->shell->store, &guard, seek->run, &seek->stored, &seek->err);
  seek->task.run = seek_done;
  task_post(seek->shell->event_loop, &seek->task);
}

/* One that ended with its sweep goes on at once: being over, it would be the first to be forgotten again. */
static void seek_take(struct seek *seek, struct shell_sweep *sweep) {
  struct coordinator_service *shell = seek->shell;
  const struct sweep_trial *trial = &sweep->sweep->trials[seek->trial];
  struct trial_run *run = sweep_run(sweep, trial, seek->repeat);
  enum err_code code = seek->err.code;
  Weir__RunInfo info;
  run->is_sought = false;
  if (!code && !coordinator_run_spec(shell->core, seek->run))
    shell_run_restore(shell, &seek->stored);
  if (coordinator_run_info(shell->core, seek->run, shell_now_ms(), &info))
    run_revive(shell, sweep, trial, seek->repeat, &info);
  else
    run->may_be_stored = code && code != ERR_NOT_FOUND && code != ERR_CORRUPT;
  sweep->is_due |= !code || !run->may_be_stored; /* else at the next tick */
}

static void seek_done(struct task *task) {
  struct seek *seek = TASK_OWNER(task, struct seek, task);
  struct coordinator_service *shell = seek->shell;
  struct shell_sweep *sweep = shell->is_stopping ? NULL : shell_find_sweep(shell, seek->sweep);
  if (sweep)
    seek_take(seek, sweep);
  if (seek->err.code && seek->err.code != ERR_NOT_FOUND)
    log_event(LOG_WARN, "coordinator", "trial_not_read", "run=%s reason=\"%s\"", seek->run, seek->err.text);
  stored_runs_release(&seek->stored);
  free(seek->sweep);
  free(seek->run);
  free(seek);
}

void shell_trial_forked(struct coordinator_service *shell, const struct trial_fork *fork,
                        const struct err *err) {
  struct shell_sweep *sweep = shell_find_sweep(shell, fork->sweep);
  struct trial_run *run;
  if (!sweep)
    return;
  run = sweep_run(sweep, &sweep->sweep->trials[fork->trial], fork->repeat);
  run->is_forking = false;
  run->is_refused = err->code == ERR_INVALID; /* `searching` may read the sweep just now */
  if (err->code)
    log_event(LOG_WARN, "coordinator", "trial_not_forked", "sweep=%s trial=%" PRIu32 " reason=\"%s\"",
              sweep->id, fork->trial, err->text);
  sweep->is_due |= !err->code || err->code == ERR_INVALID; /* else at the next tick */
}

/* Whether the version of one of a trial's runs is no longer needed where it stands: the forks that begin with
   it have loaded it. */
static bool are_children_there(struct coordinator_service *shell, const struct shell_sweep *sweep,
                               const struct sweep_trial *trial, uint32_t repeat) {
  bool are_there = true;
  for (int i = 0; i < sweep->sweep->n_trials && are_there; i++) {
    const struct sweep_trial *child = &sweep->sweep->trials[i];
    char *id;
    if (child->parent != (int)trial->number || child->begin != trial->n_results ||
        child->state != SWEEP_TRIAL_RUNNING || child->is_known)
      continue;
    id = sweep_run_id(sweep, child->number, repeat);
    are_there = coordinator_run_spec(shell->core, id) && !coordinator_needs_parent(shell->core, id);
    free(id);
  }
  return are_there;
}

/* One that is held short of its next rung; one that failed for a reason that is not its own. */
static void trial_go_on(struct coordinator_service *shell, struct shell_sweep *sweep,
                        const struct sweep_trial *trial, uint32_t repeat) {
  const struct sweep *of = sweep->sweep;
  bool is_last = trial->n_results == of->n_rungs - 1;
  char *id = sweep_run_id(sweep, trial->number, repeat);
  Weir__RunInfo info;
  uint64_t rung;
  CHECK(coordinator_run_info(shell->core, id, shell_now_ms(), &info));
  rung = sweep_rung_step(of, trial, trial->n_results, info.train_samples);
  if (run_revive(shell, sweep, trial, repeat, &info)) {
    ; /* it stands there again before long */
  } else if (info.hold > 0 && (is_last || info.hold < rung)) {
    if (are_children_there(shell, sweep, trial, repeat))
      shell_step(shell,
                 &(struct coordinator_event){.kind = EVENT_RUN_HOLD, .hold = {id, is_last ? 0 : rung}});
  } else if (info.state == WEIR__RUN_STATE__FAILED && info.checkpoint_step < info.parent_step) {
    shell_sweep_tell(sweep, trial,
                     &(struct sweep_outcome){.repeat = repeat, .failure = "what it goes on from is gone"});
    sweep->is_due = true;
  } else if (info.state == WEIR__RUN_STATE__FAILED && !info.bad_input && !info.diverged) {
    run_mend(shell, id, &info);
  }
  free(id);
}

static void run_mend(struct coordinator_service *shell, const char *id, const Weir__RunInfo *info) {
  shell_step(shell,
             &(struct coordinator_event){.kind = EVENT_RUN_RESUMED, .resumed = {id, info->checkpoint_step}});
  shell_fetch_model(shell, id);
}

/* One that ended with the sweep goes on from its checkpoint once the sweep is extended. */
static bool run_revive(struct coordinator_service *shell, struct shell_sweep *sweep,
                       const struct sweep_trial *trial, uint32_t repeat, const Weir__RunInfo *info) {
  struct trial_run *run = sweep_run(sweep, trial, repeat);
  if (!trial->is_revived || run->is_resumed || info->state != WEIR__RUN_STATE__CANCELLED)
    return false;
  run->is_resumed = true;
  sweep->is_due = true;
  run_mend(shell, info->run, info);
  return true;
}
