/* Checkpoints committed and deleted, sweeps: jobs that write the store, and what becomes of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/shell/shell.h"

enum { DROP_RETRY_MS = 1000, REFILL_RETRY_MS = 1000, INCARNATION_SIZE = 24 };

/* A checkpoint to commit. */
struct commit_job {
  struct task task;
  struct coordinator_service *shell;
  Weir__Manifest *manifest;
  bool is_last;
  char sha256[65]; /* of the weights, if it is the last */
  struct err err;
};

/* A checkpoint to delete; between attempts in shell->drops. */
struct drop_job {
  struct task task;
  struct coordinator_service *shell;
  char *run;
  uint64_t step, retry_ms;
  struct err err;
  struct drop_job *next;
};

struct refill_job {
  struct task task;
  struct coordinator_service *shell;
  char identity[STORE_IDENTITY_SIZE]; /* ours; then that of the store */
  struct buffer **models;
  int n_models;
  struct err err;
};

/* A sweep, asked for by a call or (NULL) by ourselves. */
struct sweep_job {
  struct task task;
  struct coordinator_service *shell;
  struct rpc_call *call;
  char **runs; /* to delete first; whole ids once they are found */
  int n_runs, n_deleted;
  Weir__CollectGarbageReply reply;
  struct err err;
};

static void commit_job_run(struct task *task);
static int write_commit(struct commit_job *job);
static void commit_done(struct task *task);
static void drop_job_run(struct task *task);
static void drop_done(struct task *task);
static void refill_job_run(struct task *task);
static int write_refill(struct refill_job *job);
static void refill_done(struct task *task);
static void sweep_job_run(struct task *task);
static int delete_run(struct sweep_job *job, char **run);
static void sweep_done(struct task *task);

bool shell_may_write(const struct coordinator_service *shell, struct err *err) {
  if (shell->gave_up)
    err_set(err, ERR_UNAVAILABLE, "the coordinator is stopping, and its store does not answer");
  return !shell->gave_up;
}

void shell_note_failure(struct coordinator_service *shell, const struct err *err) {
  if (shell_is_ending(shell) && (err_is_retryable(err->code) || err->code == ERR_STALE))
    shell->gave_up = true;
}

/* Reads them where they are not. */
static bool has_refs(struct coordinator_service *shell, struct err *err) {
  char term[LEASE_TERM_SIZE];
  if (shell->refs)
    return true;
  if (!shell_may_write(shell, err) || block_refs_read(shell->store, &shell->refs, err))
    return false;
  block_refs_guard(shell->refs, lease_guard(shell->term, term).name, term);
  return true;
}

void shell_commit(struct coordinator_service *shell, const Weir__Manifest *manifest, bool is_last) {
  struct commit_job *job = mem_new(sizeof *job);
  *job = (struct commit_job){
      .task.run = commit_job_run, .shell = shell, .manifest = message_copy(manifest), .is_last = is_last};
  shell_save_events(shell, manifest->run); /* who resumes from it finds what led to it */
  task_post(shell->jobs, &job->task);      /* one a run */
}

static void commit_job_run(struct task *task) {
  struct commit_job *job = TASK_OWNER(task, struct commit_job, task);
  struct coordinator_service *shell = job->shell;
  if (shell_may_write(shell, &job->err) && has_refs(shell, &job->err) && write_commit(job))
    shell_note_failure(shell, &job->err);
  job->task.run = commit_done;
  task_post(shell->event_loop, &job->task);
}

static int write_commit(struct commit_job *job) {
  struct coordinator_service *shell = job->shell;
  Weir__Manifest committed = *job->manifest;
  char *name = checkpoint_run_name(committed.run, "incarnation");
  char term[LEASE_TERM_SIZE], incarnation[INCARNATION_SIZE];
  size_t length = (size_t)snprintf(incarnation, sizeof incarnation, "%" PRIu64, committed.incarnation);
  struct store_record same = {.name = name, .data = incarnation, .size = length};
  struct store_record guard = lease_guard(shell->term, term);
  int rc = 0;
  guard.guard = &same;
  committed.term = shell->term;
  committed.committed_unix_ms = job->manifest->committed_unix_ms = clock_unix_ms();
  if (job->is_last) {
    rc = checkpoint_weights_sha256(shell->store, job->manifest, job->sha256, &job->err);
    committed.weights_sha256 = job->sha256;
  }
  if (!rc)
    rc = checkpoint_commit(shell->store, shell->refs, &committed, &guard, &job->err);
  free(name);
  return rc;
}

static void commit_done(struct task *task) {
  struct commit_job *job = TASK_OWNER(task, struct commit_job, task);
  struct coordinator_service *shell = job->shell;
  Weir__CheckpointInfo info;
  struct coordinator_event event = {.kind = EVENT_CHECKPOINT,
                                    .checkpoint = {.run = job->manifest->run,
                                                   .incarnation = job->manifest->incarnation,
                                                   .step = job->manifest->step,
                                                   .info = &info,
                                                   .error = job->err.code ? job->err.text : NULL}};
  checkpoint_info(job->manifest, &info);
  info.weights_sha256 = job->sha256;
  if ((job->err.code == ERR_NOT_FOUND || job->err.code == ERR_STALE) && !shell->is_stopping) {
    /* A store that lost its last seconds may have kept the term, and forgotten the run or its model. */
    shell_refill(shell);
    shell_saves_emptied(shell);
  }
  shell_step(shell, &event);
  message_free(job->manifest);
  free(job);
}

void shell_drop(struct coordinator_service *shell, const char *run, uint64_t step) {
  struct drop_job *job = mem_new(sizeof *job);
  *job = (struct drop_job){.task.run = drop_job_run, .shell = shell, .run = mem_strdup(run), .step = step};
  task_post(shell->jobs, &job->task); /* one a checkpoint */
}

static void drop_job_run(struct task *task) {
  struct drop_job *job = TASK_OWNER(task, struct drop_job, task);
  struct coordinator_service *shell = job->shell;
  char *name = checkpoint_name(job->run, job->step), term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  job->err = ERR_NONE;
  if (shell_may_write(shell, &job->err) && has_refs(shell, &job->err) &&
      checkpoint_delete(shell->store, shell->refs, name, &guard, &job->err))
    shell_note_failure(shell, &job->err);
  free(name);
  job->task.run = drop_done;
  task_post(shell->event_loop, &job->task);
}

static void drop_done(struct task *task) {
  struct drop_job *job = TASK_OWNER(task, struct drop_job, task);
  struct coordinator_service *shell = job->shell;
  if (job->err.code && !shell->is_stopping) { /* the record may be there still, and would come back */
    log_event(LOG_WARN, "coordinator", "checkpoint_not_deleted", "run=%s step=%" PRIu64 " reason=\"%s\"",
              job->run, job->step, job->err.text);
    job->retry_ms = shell_now_ms() + DROP_RETRY_MS;
    job->next = shell->drops;
    shell->drops = job;
    return;
  }
  shell_step(shell, &(struct coordinator_event){.kind = EVENT_CHECKPOINT_DROPPED,
                                                .dropped = {.run = job->run, .step = job->step}});
  free(job->run);
  free(job);
}

void shell_upkeep_turn(struct coordinator_service *shell, uint64_t now_ms) {
  struct drop_job **at = &shell->drops, *job;
  if (shell->refill_ms && now_ms >= shell->refill_ms)
    shell_refill(shell);
  if (shell->fetch_ms && now_ms >= shell->fetch_ms)
    shell_fetch_models(shell);
  while ((job = *at)) {
    if (now_ms < job->retry_ms) {
      at = &job->next;
      continue;
    }
    *at = job->next;
    job->task.run = drop_job_run;
    task_post(shell->jobs, &job->task);
  }
}

void shell_upkeep_fini(struct coordinator_service *shell) {
  struct drop_job *job;
  while ((job = shell->drops)) {
    shell->drops = job->next;
    free(job->run);
    free(job);
  }
  block_refs_free(shell->refs);
}

void shell_refill(struct coordinator_service *shell) {
  struct refill_job *job = mem_new(sizeof *job);
  int capacity = 0;
  *job = (struct refill_job){.task.run = refill_job_run, .shell = shell};
  memcpy(job->identity, shell->identity, sizeof job->identity);
  for (struct live_model *model = shell->models; model; model = model->next) {
    array_reserve((void **)&job->models, &capacity, job->n_models, sizeof *job->models);
    job->models[job->n_models++] = buffer_get(model->onnx);
  }
  shell->refill_ms = 0;
  task_post(shell->jobs, &job->task); /* one a second at most, and one a model that was read late */
}

/* What was counted is gone with the store's content. */
static void refill_job_run(struct task *task) {
  struct refill_job *job = TASK_OWNER(task, struct refill_job, task);
  struct coordinator_service *shell = job->shell;
  block_refs_free(shell->refs);
  shell->refs = NULL;
  if (!shell_is_ending(shell) && shell_may_write(shell, &job->err) && write_refill(job)) {
    log_event(LOG_ERROR, "coordinator", "store_not_refilled", "reason=\"%s\"", job->err.text);
    shell_note_failure(shell, &job->err);
  }
  job->task.run = refill_done;
  task_post(shell->event_loop, &job->task);
}

/* The identity first: without it no server loads a run. */
static int write_refill(struct refill_job *job) {
  struct coordinator_service *shell = job->shell;
  char term[LEASE_TERM_SIZE], key[STORE_KEY_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  int rc;
  rc = store_identity_settle(shell->store, &guard, job->identity, &job->err);
  for (int i = 0; i < job->n_models && !rc; i++)
    rc = store_put(shell->store, job->models[i]->data, job->models[i]->size_bytes, key, &job->err);
  return rc;
}

/* STALE: it was emptied once more, or another leads; either is told. It may have got another identity: what
   it lost its content to was a store before. */
static void refill_done(struct task *task) {
  struct refill_job *job = TASK_OWNER(task, struct refill_job, task);
  if (job->err.code && job->err.code != ERR_STALE)
    job->shell->refill_ms = shell_now_ms() + REFILL_RETRY_MS;
  else if (!job->err.code)
    memcpy(job->shell->identity, job->identity, sizeof job->identity);
  for (int i = 0; i < job->n_models; i++)
    buffer_put(job->models[i]);
  free(job->models);
  free(job);
}

static void sweep_start(struct coordinator_service *shell, struct rpc_call *call, char **runs, int n_runs) {
  struct sweep_job *job = mem_new(sizeof *job);
  *job = (struct sweep_job){
      .task.run = sweep_job_run, .shell = shell, .call = call, .runs = runs, .n_runs = n_runs};
  task_post(shell->jobs, &job->task); /* one a call */
}

void shell_sweep(struct coordinator_service *shell) {
  sweep_start(shell, NULL, NULL, 0);
}

void shell_collect_garbage(struct coordinator_service *shell, struct rpc_call *call, char **runs,
                           int n_runs) {
  sweep_start(shell, call, runs, n_runs);
}

/* The references are counted anew: a sweep is rare, and what it deletes is lost. */
static void sweep_job_run(struct task *task) {
  struct sweep_job *job = TASK_OWNER(task, struct sweep_job, task);
  struct coordinator_service *shell = job->shell;
  if (shell_is_ending(shell))
    err_set(&job->err, ERR_UNAVAILABLE, "the coordinator is stopping");
  for (int i = 0; i < job->n_runs && !job->err.code && has_refs(shell, &job->err); i++)
    job->n_deleted += delete_run(job, &job->runs[i]) == 0;
  if (!job->err.code) {
    block_refs_free(shell->refs);
    shell->refs = NULL;
    if (has_refs(shell, &job->err))
      checkpoint_sweep(shell->store, shell->refs, &job->reply, &job->err);
    job->reply.runs = (uint64_t)job->n_deleted;
  }
  job->task.run = sweep_done;
  task_post(shell->event_loop, &job->task);
}

static int delete_run(struct sweep_job *job, char **run) {
  struct coordinator_service *shell = job->shell;
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  Weir__RunRecord *record;
  int rc = checkpoint_find_run(shell->store, *run, &record, &job->err);
  if (!rc) {
    free(*run);
    *run = mem_strdup(record->run);
    rc = checkpoint_delete_run(shell->store, shell->refs, *run, &guard, &job->err);
  } else if (rc == ERR_CORRUPT) { /* by its whole id */
    job->err = ERR_NONE;
    rc = checkpoint_delete_run(shell->store, shell->refs, *run, &guard, &job->err);
  }
  message_free(record);
  return rc;
}

static void sweep_done(struct task *task) {
  struct sweep_job *job = TASK_OWNER(task, struct sweep_job, task);
  struct coordinator_service *shell = job->shell;
  log_event(job->err.code ? LOG_WARN : LOG_INFO, "coordinator", "store_swept",
            "blocks=%" PRIu64 " bytes=%" PRIu64 " runs=%" PRIu64 " kept_blocks=%" PRIu64 " error=\"%s\"",
            job->reply.blocks, job->reply.bytes, job->reply.runs, job->reply.kept_blocks, job->err.text);
  for (int i = 0; i < job->n_runs; i++) {
    bool is_deleted = i < job->n_deleted;
    if (is_deleted)
      shell_step(shell, &(struct coordinator_event){.kind = EVENT_RUN_FORGOTTEN, .run = job->runs[i]});
    shell_saves_deleted(shell, job->runs[i], is_deleted);
    free(job->runs[i]);
  }
  if (job->call && job->err.code)
    rpc_call_finish(job->call, &job->err);
  else if (job->call)
    rpc_call_reply(job->call, &job->reply, NULL);
  free(job->runs);
  free(job);
}
