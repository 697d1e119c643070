/* Answers about sweeps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/shell/sweeps.h"

/* Of the trials, and of the records, of one reply, but for the last of each. */
enum { REPLY_BYTES = 256 * 1024 };

static bool sees_sweep(const struct viewer *viewer, const struct shell_sweep *sweep) {
  return viewer_sees(viewer, tenant_or_default(sweep->head->tenant));
}

struct shell_sweep *shell_match_sweep(struct coordinator_service *shell, const struct viewer *viewer,
                                      const char *prefix, struct err *err) {
  struct shell_sweep *found = NULL;
  char matches[512] = "";
  int n = 0;
  for (struct shell_sweep *sweep = shell->sweeps; sweep; sweep = sweep->next) {
    size_t length = strlen(matches);
    if (sweep->is_refused || !sees_sweep(viewer, sweep) || strncmp(sweep->id, prefix, strlen(prefix)) != 0)
      continue;
    found = sweep;
    n++;
    if (strcmp(sweep->id, prefix) == 0)
      return sweep;
    snprintf(matches + length, sizeof matches - length, "%s%s", length ? ", " : "", sweep->id);
  }
  if (n == 1 && *prefix)
    return found;
  if (!*prefix)
    err_set(err, ERR_INVALID, "no sweep is named");
  else if (n == 0)
    err_set(err, ERR_NOT_FOUND, "no sweep '%.100s'", prefix);
  else
    err_set(err, ERR_INVALID, "sweep '%.100s' is ambiguous: it may be %s", prefix, matches);
  return NULL;
}

static void add_others(const struct sweep *sweep, const struct sweep_trial *trial, struct arena *arena,
                       Weir__SweepTrial *info) {
  info->others = arena_new(arena, (size_t)sweep->n_objectives * sizeof *info->others);
  for (int o = 1; o < sweep->n_objectives; o++) {
    Weir__SweepResults *other = info->others[info->n_others++] = arena_new(arena, sizeof *other);
    weir__sweep_results__init(other);
    other->results = arena_new(arena, (size_t)trial->n_results * sizeof *other->results + 1);
    for (int i = 0; i < trial->n_results; i++)
      other->results[other->n_results++] = sweep_value_of(sweep, trial, i, o);
  }
}

static Weir__SweepTrial *trial_info(const struct shell_sweep *sweep, const struct sweep_trial *trial,
                                    struct arena *arena) {
  const struct space *space = sweep->sweep->space;
  Weir__SweepTrial *info = arena_new(arena, sizeof *info);
  weir__sweep_trial__init(info);
  info->number = trial->number;
  info->run = arena_printf(arena, "%s-%04u", sweep->id, trial->number);
  info->state = (char *)sweep_state_name(trial->state);
  if (trial->failure)
    info->failure = trial->failure;
  info->batch = sweep->sweep->unit != SWEEP_STEPS ? trial->batch : 0;
  info->train_samples = trial->train_samples;
  info->has_parent = trial->parent >= 0;
  if (info->has_parent) {
    info->parent = (uint32_t)trial->parent;
    info->parent_rung = (uint32_t)trial->begin - 1;
  }
  info->values = arena_new(arena, (size_t)space->n * sizeof *info->values + 1);
  for (int i = 0; i < space->n; i++) {
    Weir__SweepValue *value;
    if (!trial->values[i])
      continue;
    value = info->values[info->n_values++] = arena_new(arena, sizeof *value);
    weir__sweep_value__init(value);
    value->path = (char *)space->dimensions[i].path;
    value->value = trial->values[i];
  }
  info->n_results = (size_t)trial->n_results;
  info->results = arena_new(arena, info->n_results * sizeof *info->results + 1);
  for (int i = 0; i < trial->n_results; i++)
    info->results[i] = sweep_value(sweep->sweep, trial, i);
  add_others(sweep->sweep, trial, arena, info);
  return info;
}

static void add_front(const struct sweep *sweep, struct arena *arena, Weir__SweepInfo *info) {
  const struct sweep_front *front = &sweep->front;
  info->front = arena_new(arena, (size_t)front->n * sizeof *info->front + 1);
  for (int i = 0; i < front->n; i++)
    info->front[info->n_front++] = (uint32_t)front->trials[i];
}

/* Without specs and trials. */
static void info_fill(const struct shell_sweep *of, struct arena *arena, Weir__SweepInfo *info) {
  const struct sweep *sweep = of->sweep;
  const struct sweep_trial *best = sweep_best(sweep);
  char *trouble = sweep_kind_trouble(of, arena);
  weir__sweep_info__init(info);
  info->sweep = of->id;
  info->name = sweep->spec->name;
  info->tenant = (char *)tenant_or_default(of->head->tenant);
  info->end = sweep_has_ended(of) ? sweep->end : (char *)"";
  if (of->n_written < of->n_log)
    info->message = (char *)"waits for the store";
  else if (trouble)
    info->message = trouble;
  else if (*of->quota)
    info->message = arena_strdup(arena, of->quota);
  if (of->kind) {
    info->worker_fingerprint = of->kind->fingerprint;
    info->server_fingerprint = of->kind->server_fingerprint;
  }
  info->begun = (uint32_t)sweep->n_trials;
  info->running = (uint32_t)sweep->n_running;
  info->earlier = (uint32_t)sweep->n_earlier;
  for (int i = 0; i < sweep->n_trials; i++)
    info->failed += sweep->trials[i].state == SWEEP_TRIAL_FAILED;
  info->log_records = (uint64_t)of->n_written;
  info->begun_steps = sweep->begun_steps;
  if (!sweep->end)
    info->seconds = (double)(clock_unix_ms() - of->head->submitted_unix_ms) / 1e3;
  info->submitted_unix_ms = of->head->submitted_unix_ms;
  info->has_best = best != NULL;
  info->best = best ? best->number : 0;
  info->best_value = best ? sweep_value(sweep, best, best->n_results - 1) : 0;
  add_front(sweep, arena, info);
}

static Weir__SweepProgress *progress_of(const struct sweep_trial *trial, const Weir__RunInfo *run,
                                        struct arena *arena) {
  Weir__SweepProgress *progress = arena_new(arena, sizeof *progress);
  weir__sweep_progress__init(progress);
  progress->trial = trial->number;
  progress->state = run->state;
  progress->step = run->step;
  progress->steps = run->steps;
  progress->train_samples = run->train_samples;
  progress->loss = run->loss;
  progress->workers = run->workers;
  progress->samples_per_second = run->samples_per_second;
  progress->message = run->message;
  progress->is_ready = trial->is_known;
  return progress;
}

/* The first of a trial's runs that has not come to its rung. */
static uint32_t find_repeat(const struct sweep *sweep, const struct sweep_trial *trial) {
  uint32_t repeat = 0;
  while (repeat + 1 < sweep->spec->repeats && sweep_is_told(trial, repeat))
    repeat++;
  return repeat;
}

/* Of the trials whose runs have begun. */
static void add_progress(struct coordinator_service *shell, const struct shell_sweep *of,
                         Weir__SweepInfo *info, struct arena *arena) {
  const struct sweep *sweep = of->sweep;
  info->progress = arena_new(arena, (size_t)sweep->n_running * sizeof *info->progress + 1);
  for (int i = 0; i < sweep->n_trials; i++) {
    const struct sweep_trial *trial = &sweep->trials[i];
    char *id = trial->state == SWEEP_TRIAL_RUNNING
                   ? sweep_run_id(of, trial->number, find_repeat(sweep, trial))
                   : NULL;
    Weir__RunInfo run;
    if (id && coordinator_run_info(shell->core, id, shell_now_ms(), &run))
      info->progress[info->n_progress++] = progress_of(trial, &run, arena);
    free(id);
  }
}

/* As many as fit, and at least one that is there. */
static void add_trials(const struct shell_sweep *sweep, uint32_t first, Weir__SweepInfo *info,
                       struct arena *arena) {
  uint32_t n = (uint32_t)sweep->sweep->n_trials;
  size_t bytes = 0;
  if (first >= n)
    return;
  info->trials = arena_new(arena, (n - first) * sizeof *info->trials);
  for (uint32_t i = first; i < n && bytes < REPLY_BYTES; i++) {
    Weir__SweepTrial *trial = trial_info(sweep, &sweep->sweep->trials[i], arena);
    info->trials[info->n_trials++] = trial;
    bytes += weir__sweep_trial__get_packed_size(trial);
  }
}

/* The trial that a record has made or changed; -1: any, or none. */
static int64_t trial_of(const Weir__SweepRecord *record) {
  if (record->suggestion)
    return record->suggestion->trial;
  if (record->promotion)
    return record->promotion->trial;
  if (record->result)
    return record->result->trial;
  if (record->stop)
    return record->stop->trial;
  return record->fork ? (int64_t)record->fork->trial : -1;
}

/* [trials] which of them the records from `from` on have changed, those that the store does not have yet
   among them: a trial is told as the newest record says. Freed by the caller. */
static bool *find_changed(const struct shell_sweep *sweep, uint64_t from) {
  size_t n = (size_t)sweep->sweep->n_trials;
  bool *changed = mem_new(n * sizeof *changed + 1);
  for (uint64_t i = from; i < (uint64_t)sweep->n_log; i++) {
    const Weir__SweepRecord *record = sweep->log[i];
    int64_t trial = trial_of(record);
    if (trial < 0) /* an end or an extension: of all that were not over */
      memset(changed, true, n * sizeof *changed);
    else
      changed[trial] = true;
    if (record->fork)
      changed[record->fork->replaced] = true;
  }
  return changed;
}

/* As add_trials. */
static void add_changes(const struct shell_sweep *sweep, const Weir__GetSweepRequest *request,
                        Weir__SweepInfo *info, struct arena *arena) {
  uint32_t n = (uint32_t)sweep->sweep->n_trials, i = request->first_trial;
  bool *changed = find_changed(sweep, request->changed_from);
  size_t bytes = 0;
  info->only_changes = true;
  info->trials = arena_new(arena, (i < n ? n - i : 0) * sizeof *info->trials + 1);
  for (; i < n && bytes < REPLY_BYTES; i++)
    if (changed[i]) {
      Weir__SweepTrial *trial = trial_info(sweep, &sweep->sweep->trials[i], arena);
      info->trials[info->n_trials++] = trial;
      bytes += weir__sweep_trial__get_packed_size(trial);
    }
  info->next_trial = i < n ? i : 0;
  free(changed);
}

static void add_records(const struct shell_sweep *sweep, uint64_t first, Weir__SweepInfo *info) {
  size_t bytes = 0;
  if (first >= (uint64_t)sweep->n_written)
    return;
  info->records = sweep->log + first;
  for (uint64_t i = first; i < (uint64_t)sweep->n_written && bytes < REPLY_BYTES; i++) {
    info->n_records++;
    bytes += weir__sweep_record__get_packed_size(sweep->log[i]);
  }
}

void shell_reply_sweep(struct coordinator_service *shell, struct rpc_call *call,
                       const struct shell_sweep *sweep, const Weir__GetSweepRequest *request) {
  Weir__SweepInfo info;
  struct arena arena;
  arena_init(&arena);
  info_fill(sweep, &arena, &info);
  if (request->first_trial == 0) {
    info.spec = sweep->sweep->spec; /* with the budget that it has now */
    info.run_spec = sweep->head->run_spec;
  }
  add_progress(shell, sweep, &info, &arena);
  if (request->only_changes)
    add_changes(sweep, request, &info, &arena);
  else
    add_trials(sweep, request->first_trial, &info, &arena);
  if (request->has_records)
    add_records(sweep, request->first_record, &info);
  rpc_call_reply(call, &info, NULL);
  arena_fini(&arena);
}

static void list_sweeps(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  Weir__ListSweepsReply reply = WEIR__LIST_SWEEPS_REPLY__INIT;
  struct arena arena;
  int capacity = 0;
  arena_init(&arena);
  for (struct shell_sweep *sweep = shell->sweeps; sweep; sweep = sweep->next) {
    if (sweep->is_refused || !sees_sweep(&asked->viewer, sweep))
      continue;
    array_reserve((void **)&reply.sweeps, &capacity, (int)reply.n_sweeps, sizeof *reply.sweeps);
    reply.sweeps[reply.n_sweeps] = arena_new(&arena, sizeof **reply.sweeps);
    info_fill(sweep, &arena, reply.sweeps[reply.n_sweeps++]);
  }
  rpc_call_reply(call, &reply, NULL);
  free(reply.sweeps);
  arena_fini(&arena);
}

static void get_sweep(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  shell_reply_sweep(shell, call, asked->sweep, asked->message);
}

static void stop_sweep(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  shell_wish_end(shell, call, asked->sweep, "it was stopped");
}

static void extend_sweep(struct coordinator_service *shell, struct rpc_call *call,
                         const struct asked *asked) {
  shell_wish_extension(shell, call, asked->sweep, asked->message);
}

static void delete_sweep(struct coordinator_service *shell, struct rpc_call *call,
                         const struct asked *asked) {
  struct shell_sweep *sweep = asked->sweep;
  if (sweep->is_deleting)
    rpc_call_fail(call, ERR_BUSY, "sweep '%s' is being deleted", sweep->id);
  else if (!sweep->sweep->end)
    rpc_call_fail(call, ERR_INVALID, "sweep '%s' is not over: 'weir sweep stop' ends it", sweep->id);
  else if (!sweep->is_settled || sweep->is_saving)
    rpc_call_fail(call, ERR_BUSY, "the runs of sweep '%s' are ending: try again", sweep->id);
  else
    shell_collect_sweep(shell, call, &asked->viewer, sweep);
}

void shell_list_sweeps_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, list_sweeps);
}

void shell_get_sweep_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, get_sweep);
}

void shell_stop_sweep_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, stop_sweep);
}

void shell_extend_sweep_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, extend_sweep);
}

void shell_delete_sweep_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, delete_sweep);
}
