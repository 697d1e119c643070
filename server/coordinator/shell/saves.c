/* Runs and members kept in the store: their newest state, written by the jobs and tried again until it is
   there. Events are in saved_events.c. */
#include "server/coordinator/shell/saves.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/message.h"
#include "server/coordinator/shell/fork.h"

enum { RETRY_MS = 1000 };

struct save_job {
  struct task task;
  struct coordinator_service *shell;
  Weir__RunRecord *record;
  uint64_t number; /* the record's */
  bool is_awaited, writes_incarnation;
  bool is_first;           /* record of the run */
  struct run_model *model; /* with the first record; else NULL */
  struct fork_base *base;  /* likewise */
  struct err err;
};

/* The members as the store is to know them. */
struct members_save {
  struct task task; /* while is_saving */
  struct coordinator_service *shell;
  Weir__Members *newest, *saving; /* NULL: none */
  uint64_t retry_ms;
  struct err err;
};

static void start_if_awaited(struct coordinator_service *shell, struct saved_run *run);
static void start_save(struct coordinator_service *shell, struct saved_run *run);
static void save_job_run(struct task *task);
static int write_run(struct save_job *job);
static int put_model(struct save_job *job);
static int put_file(struct coordinator_service *shell, const char *key, const struct buffer *file,
                    struct err *err);
static void save_done(struct task *task);
static void save_failed(struct coordinator_service *shell, struct saved_run *run, struct save_job *job);
static void save_succeeded(struct coordinator_service *shell, struct saved_run *run,
                           const struct save_job *job);
static void refuse_submission(struct coordinator_service *shell, struct saved_run *run,
                              const struct err *err);
static void run_undo(struct coordinator_service *shell, const char *run);
static void start_members(struct coordinator_service *shell);
static void save_members(struct task *task);
static void members_done(struct task *task);

struct saved_run *shell_find_saved(struct coordinator_service *shell, const char *run) {
  struct saved_run *saved = shell->saves;
  while (saved && strcmp(saved->run, run))
    saved = saved->next;
  return saved;
}

static struct saved_run *find_or_add(struct coordinator_service *shell, const char *run) {
  struct saved_run *saved = shell_find_saved(shell, run);
  if (saved)
    return saved;
  saved = mem_new(sizeof *saved);
  saved->run = mem_strdup(run);
  saved->next = shell->saves;
  shell->saves = saved;
  return saved;
}

static void saved_run_forget(struct coordinator_service *shell, struct saved_run *run) {
  struct saved_run **at = &shell->saves;
  while (*at != run)
    at = &(*at)->next;
  *at = run->next;
  message_free(run->record);
  run_model_put(run->model);
  fork_base_free(run->base);
  message_free(run->forked);
  free(run->events.chunks);
  free(run->run);
  free(run);
}

void shell_saves_restored(struct coordinator_service *shell, const struct stored_run *stored) {
  struct saved_run *run;
  if (shell_find_saved(shell, stored->record->run))
    return; /* what is known of it is newer */
  run = find_or_add(shell, stored->record->run);
  run->has_incarnation = true;
  run->incarnation = stored->record->incarnation;
  shell_events_restored(&run->events, stored);
}

void shell_saves_await(struct coordinator_service *shell, const char *run, struct rpc_call *submitter,
                       struct run_model *model) {
  struct saved_run *saved = find_or_add(shell, run);
  saved->submitter = submitter;
  saved->model = run_model_get(model);
}

void shell_saves_await_fork(struct coordinator_service *shell, struct rpc_call *call, struct fork_base *base,
                            const Weir__ForkReply *reply) {
  struct saved_run *saved = find_or_add(shell, reply->run);
  saved->submitter = call;
  saved->base = base;
  saved->forked = message_copy(reply);
}

void shell_saves_await_base(struct coordinator_service *shell, const char *run, struct fork_base *base) {
  find_or_add(shell, run)->base = base;
}

void shell_save(struct coordinator_service *shell, const struct coordinator_action *action) {
  struct saved_run *run = find_or_add(shell, action->record->run);
  message_free(run->record);
  run->record = message_copy(action->record);
  run->newest++;
  run->is_awaited |= action->is_awaited;
  run->retry_ms = 0;
  start_if_awaited(shell, run);
}

void shell_saves_hurry(struct coordinator_service *shell, const char *run) {
  struct saved_run *saved = shell_find_saved(shell, run);
  if (saved)
    start_save(shell, saved);
}

uint64_t shell_saves_newest(struct coordinator_service *shell, const char *run) {
  const struct saved_run *saved = shell_find_saved(shell, run);
  return saved ? saved->newest : 0;
}

enum save_state shell_saves_state(struct coordinator_service *shell, const char *run, uint64_t record) {
  const struct saved_run *saved = shell_find_saved(shell, run);
  if (!saved || saved->stored >= record)
    return SAVE_DONE;
  return saved->retry_ms ? SAVE_FAILED : SAVE_UNDER_WAY;
}

void shell_saves_published(struct coordinator_service *shell, const char *run) {
  struct saved_run *saved = shell_find_saved(shell, run);
  if (saved)
    saved->events.are_new = true;
}

void shell_save_events(struct coordinator_service *shell, const char *run) {
  struct saved_run *saved = shell_find_saved(shell, run);
  if (saved && !saved->is_deleting)
    shell_events_write(shell, saved);
}

void shell_saves_turn(struct coordinator_service *shell, uint64_t now_ms) {
  for (struct saved_run *run = shell->saves; run; run = run->next) {
    if (now_ms >= run->retry_ms)
      start_save(shell, run);
    if (run->events.are_new && now_ms >= run->events.due_ms && run->events.jobs == 0 && !run->is_deleting)
      shell_events_write(shell, run);
  }
  if (shell->members && now_ms >= shell->members->retry_ms)
    start_members(shell);
}

void shell_saves_emptied(struct coordinator_service *shell) {
  for (struct saved_run *run = shell->saves; run; run = run->next) {
    run->has_incarnation = false;
    shell_events_emptied(&run->events);
  }
}

void shell_saves_each(struct coordinator_service *shell,
                      void (*each)(struct coordinator_service *shell, const char *run)) {
  for (struct saved_run *run = shell->saves; run; run = run->next)
    each(shell, run->run);
}

void shell_saves_deleting(struct coordinator_service *shell, const char *run) {
  struct saved_run *saved = shell_find_saved(shell, run);
  if (saved)
    saved->is_deleting = true;
}

bool shell_saves_is_deleting(struct coordinator_service *shell, const char *run) {
  const struct saved_run *saved = shell_find_saved(shell, run);
  return saved && saved->is_deleting;
}

void shell_saves_deleted(struct coordinator_service *shell, const char *run, bool is_deleted) {
  struct saved_run *saved = shell_find_saved(shell, run);
  if (saved && is_deleted)
    saved_run_forget(shell, saved);
  else if (saved)
    saved->is_deleting = false;
}

void shell_saves_stop(struct coordinator_service *shell, bool is_deposed) {
  for (struct saved_run *run = shell->saves; run; run = run->next) {
    if (run->submitter)
      rpc_call_fail(run->submitter, ERR_UNAVAILABLE, "the coordinator is stopping");
    run->submitter = NULL;
    run->is_saving = false; /* the newest one goes behind what is under way */
    if (!is_deposed)
      start_save(shell, run);
    if (!is_deposed && run->events.are_new && !run->is_deleting)
      shell_events_write(shell, run);
  }
  if (shell->members && !is_deposed && !shell->members->saving)
    start_members(shell);
}

void shell_saves_fini(struct coordinator_service *shell) {
  while (shell->saves)
    saved_run_forget(shell, shell->saves);
  if (shell->members) {
    message_free(shell->members->newest);
    message_free(shell->members->saving);
    free(shell->members);
  }
}

/* What nobody waits for is written at the next tick, unless a newer record has come by then: a short run
   passes through most of its states in less. */
static void start_if_awaited(struct coordinator_service *shell, struct saved_run *run) {
  if (run->is_awaited || run->submitter || run->base)
    start_save(shell, run);
}

/* One at a time of each run, so that its retries never bring an older state back. */
static void start_save(struct coordinator_service *shell, struct saved_run *run) {
  struct save_job *job;
  if (!run->record || run->is_saving || run->is_deleting)
    return;
  job = mem_new(sizeof *job);
  *job = (struct save_job){.task.run = save_job_run,
                           .shell = shell,
                           .record = run->record,
                           .number = run->newest,
                           .is_awaited = run->is_awaited,
                           .writes_incarnation =
                               !run->has_incarnation || run->incarnation != run->record->incarnation,
                           .is_first = !run->has_incarnation,
                           .model = run->model,
                           .base = run->base};
  run->record = NULL;
  run->model = NULL;
  run->base = NULL;
  run->is_awaited = false;
  run->is_saving = true;
  task_post(shell->jobs, &job->task); /* one a run */
}

static void save_job_run(struct task *task) {
  struct save_job *job = TASK_OWNER(task, struct save_job, task);
  if (shell_may_write(job->shell, &job->err) && write_run(job))
    shell_note_failure(job->shell, &job->err);
  job->task.run = save_done;
  task_post(job->shell->event_loop, &job->task);
}

/* The incarnation first: a record must never tell of one that the run's checkpoints are not yet guarded by.
 */
static int write_run(struct save_job *job) {
  struct coordinator_service *shell = job->shell;
  const struct onnx_outline no_pieces = {0}; /* as a trial's model */
  char term[LEASE_TERM_SIZE], text[24];
  char *incarnation = checkpoint_run_name(job->record->run, "incarnation");
  char *name = checkpoint_run_name(job->record->run, "run");
  struct store_record guard = lease_guard(shell->term, term);
  int length = snprintf(text, sizeof text, "%" PRIu64, job->record->incarnation);
  int rc = job->model ? put_model(job) : 0;
  if (!rc && job->writes_incarnation)
    rc = store_put_record(shell->store, &(struct store_record){incarnation, text, (size_t)length, &guard},
                          &job->err);
  if (!rc)
    rc = job->base ? fork_base_write(shell, job->base, job->record, &job->err)
                   : checkpoint_write_record(shell->store, name, job->record, &guard, &job->err);
  if (!rc && job->is_first && !job->base && shell->refs)
    block_refs_add_run(shell->refs, job->record, job->model ? &job->model->pieces : &no_pieces);
  free(incarnation);
  free(name);
  return rc;
}

/* The upload has put it; but until the record names it, a sweep may have taken it away. */
static int put_model(struct save_job *job) {
  struct coordinator_service *shell = job->shell;
  const Weir__RunRecord *record = job->record;
  if (put_file(shell, record->model_sha256, job->model->file, &job->err))
    return job->err.code;
  return *record->outline_sha256 ? put_file(shell, record->outline_sha256, job->model->outline, &job->err)
                                 : 0;
}

static int put_file(struct coordinator_service *shell, const char *key, const struct buffer *file,
                    struct err *err) {
  char again[STORE_KEY_SIZE];
  bool has;
  if (store_has_blocks(shell->store, &key, 1, &has, err))
    return err->code;
  return has ? 0 : store_put(shell->store, file->data, file->size_bytes, again, err);
}

static void save_done(struct task *task) {
  struct save_job *job = TASK_OWNER(task, struct save_job, task);
  struct coordinator_service *shell = job->shell;
  struct saved_run *run = shell_find_saved(shell, job->record->run);
  if (run && !shell->is_stopping) {
    run->is_saving = false;
    if (job->err.code)
      save_failed(shell, run, job);
    else
      save_succeeded(shell, run, job);
  }
  message_free(job->record);
  run_model_put(job->model);
  fork_base_free(job->base);
  free(job);
}

static void save_failed(struct coordinator_service *shell, struct saved_run *run, struct save_job *job) {
  bool is_gone = job->base && job->err.code == ERR_NOT_FOUND; /* what was to be forked, not the store */
  run->is_awaited |= job->is_awaited;
  run->retry_ms = shell_now_ms() + RETRY_MS;
  if (job->err.code != ERR_STALE && !is_gone) /* stale: the lease finds out what has happened */
    shell_store_message(shell, shell->save_message, job->err.text);
  if (run->submitter) {
    refuse_submission(shell, run, &job->err);
    return;
  }
  if (is_gone && job->base->is_late) {
    shell_step(shell, &(struct coordinator_event){.kind = EVENT_RUN_BASED,
                                                  .based = {.run = run->run, .error = job->err.text}});
    return;
  }
  if (is_gone) { /* a trial's: its sweep finds out */
    run_undo(shell, run->run);
    return;
  }
  if (!run->record) { /* nothing newer came meanwhile */
    run->record = message_copy(job->record);
    run->model = job->model;
    run->base = job->base;
    job->model = NULL;
    job->base = NULL;
  }
}

static void save_succeeded(struct coordinator_service *shell, struct saved_run *run,
                           const struct save_job *job) {
  const Weir__RunRecord *record = job->record;
  struct coordinator_event event = {
      .kind = EVENT_RUN_SAVED,
      .saved = {.run = record->run, .incarnation = record->incarnation, .state = record->state}};
  run->has_incarnation = true;
  run->incarnation = record->incarnation;
  run->stored = job->number;
  run->retry_ms = 0;
  if (run->submitter) {
    Weir__SubmitReply reply = WEIR__SUBMIT_REPLY__INIT;
    reply.run = run->run;
    rpc_call_reply(run->submitter, run->forked ? (void *)run->forked : (void *)&reply, NULL);
    run->submitter = NULL;
  }
  start_if_awaited(shell, run);
  shell_store_message(shell, shell->save_message, "");
  if (job->is_awaited)
    shell_step(shell, &event);
}

/* Whoever submitted it is told to try again, so it must not run; its record may be in the store all the same,
   when the answer alone was lost. */
static void refuse_submission(struct coordinator_service *shell, struct saved_run *run,
                              const struct err *err) {
  if (run->forked && err->code == ERR_NOT_FOUND)
    rpc_call_finish(run->submitter, err);
  else
    rpc_call_fail(run->submitter, ERR_UNAVAILABLE, "the store cannot keep the run: %s", err->text);
  run->submitter = NULL;
  run_undo(shell, run->run);
}

static void run_undo(struct coordinator_service *shell, const char *run) {
  char *id = mem_strdup(run), **runs = mem_new(sizeof *runs);
  runs[0] = mem_strdup(id);
  shell_step(shell, &(struct coordinator_event){.kind = EVENT_RUN_CANCELLED, .run = id});
  shell_step(shell, &(struct coordinator_event){.kind = EVENT_RUN_FORGOTTEN, .run = id});
  saved_run_forget(shell, shell_find_saved(shell, id));
  shell_collect_garbage(shell, NULL, &viewer_of_all, runs, 1);
  free(id);
}

void shell_save_members(struct coordinator_service *shell, const Weir__Members *members) {
  if (!shell->members) {
    shell->members = mem_new(sizeof *shell->members);
    shell->members->shell = shell;
  }
  message_free(shell->members->newest);
  shell->members->newest = message_copy(members);
  shell->members->retry_ms = 0;
}

static void start_members(struct coordinator_service *shell) {
  struct members_save *members = shell->members;
  if (!members->newest || members->saving)
    return;
  members->saving = members->newest;
  members->newest = NULL;
  members->task.run = save_members;
  task_post(shell->jobs, &members->task); /* one at a time */
}

static void save_members(struct task *task) {
  struct members_save *members = TASK_OWNER(task, struct members_save, task);
  struct coordinator_service *shell = members->shell;
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  members->err = ERR_NONE;
  if (shell_may_write(shell, &members->err) &&
      checkpoint_write_record(shell->store, MEMBERS_RECORD, members->saving, &guard, &members->err))
    shell_note_failure(shell, &members->err);
  members->task.run = members_done;
  task_post(shell->event_loop, &members->task);
}

static void members_done(struct task *task) {
  struct members_save *members = TASK_OWNER(task, struct members_save, task);
  struct coordinator_service *shell = members->shell;
  if (members->err.code && !members->newest)
    members->newest = members->saving;
  else
    message_free(members->saving);
  members->saving = NULL;
  if (members->err.code)
    members->retry_ms = shell_now_ms() + RETRY_MS;
  else if (shell->is_stopping)
    start_members(shell);
}
