/* Checkpoints committed and deleted: jobs that write the store, and what becomes of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "common/metrics/metric.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/shell/piece_hold.h"
#include "server/coordinator/shell/shell.h"

enum { DROP_RETRY_MS = 1000, INCARNATION_SIZE = 24 };

/* A checkpoint to commit. */
struct commit_job {
  struct task task;
  struct coordinator_service *shell;
  Weir__Manifest *manifest;
  bool is_last;
  char sha256[65]; /* of the weights, if it is the last */
  struct err err;
};

/* A checkpoint to delete, in shell->drops until it is. */
struct drop_job {
  struct task task;
  struct coordinator_service *shell;
  char *run;
  uint64_t step, retry_ms;
  bool is_under_way;
  bool is_replaced; /* another is being committed in its name, which cancels this */
  struct err err;
  struct drop_job *next;
};

static void commit_job_run(struct task *task);
static int write_commit(struct commit_job *job);
static void commit_done(struct task *task);
static void drops_replace(struct coordinator_service *shell, const Weir__Manifest *by);
static void drops_replaced(struct coordinator_service *shell, const Weir__Manifest *by, bool is_committed);
static void drop_start(struct drop_job *job);
static void drop_job_run(struct task *task);
static void drop_done(struct task *task);

bool shell_may_write(const struct coordinator_service *shell, struct err *err) {
  if (shell->gave_up)
    err_set(err, ERR_UNAVAILABLE, "the coordinator is stopping, and its store does not answer");
  return !shell->gave_up;
}

void shell_note_failure(struct coordinator_service *shell, const struct err *err) {
  if (shell_is_ending(shell) && (err_is_retryable(err->code) || err->code == ERR_STALE))
    shell->gave_up = true;
}

bool shell_has_refs(struct coordinator_service *shell, struct err *err) {
  char term[LEASE_TERM_SIZE];
  if (shell->refs)
    return true;
  if (!shell_may_write(shell, err) || block_refs_read(shell->store, &shell->refs, err))
    return false;
  block_refs_guard(shell->refs, lease_guard(shell->term, term).name, term);
  piece_holds_recount(shell);
  return true;
}

void shell_commit(struct coordinator_service *shell, const Weir__Manifest *manifest, bool is_last) {
  struct commit_job *job = mem_new(sizeof *job);
  *job = (struct commit_job){
      .task.run = commit_job_run, .shell = shell, .manifest = message_copy(manifest), .is_last = is_last};
  drops_replace(shell, manifest);
  shell_save_events(shell, manifest->run); /* who resumes from it finds what led to it */
  task_post(shell->jobs, &job->task);      /* one a run */
}

static void commit_job_run(struct task *task) {
  struct commit_job *job = TASK_OWNER(task, struct commit_job, task);
  struct coordinator_service *shell = job->shell;
  if (shell_may_write(shell, &job->err) && shell_has_refs(shell, &job->err) && write_commit(job))
    shell_note_failure(shell, &job->err);
  job->task.run = commit_done;
  task_post(shell->event_loop, &job->task);
}

/* To the run's tenant: which blocks others have brought is not told. */
static uint64_t new_bytes(struct block_refs *refs, const Weir__Manifest *manifest) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < manifest->n_blocks; i++)
    if (!block_refs_has(refs, manifest->tenant, manifest->blocks[i]->sha256))
      bytes += manifest->blocks[i]->bytes;
  return bytes;
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
  if (block_refs_are_shared(shell->refs))
    committed.written_bytes = job->manifest->written_bytes = new_bytes(shell->refs, job->manifest);
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
  drops_replaced(shell, job->manifest, !job->err.code);
  if (!job->err.code)
    metric_add(METRIC_CHECKPOINTS, 1);
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
  *job = (struct drop_job){.shell = shell, .run = mem_strdup(run), .step = step, .next = shell->drops};
  shell->drops = job;
  drop_start(job);
}

/* Later, if somebody reads it, or if servers write that version again: they find its blocks in the store. */
static void drop_start(struct drop_job *job) {
  struct coordinator_service *shell = job->shell;
  if (reads_hold(&shell->reads, job->run, job->step) ||
      coordinator_makes_checkpoint(shell->core, job->run, job->step))
    return;
  job->is_under_way = true;
  job->task.run = drop_job_run;
  task_post(shell->jobs, &job->task); /* one a checkpoint */
}

static void drop_job_run(struct task *task) {
  struct drop_job *job = TASK_OWNER(task, struct drop_job, task);
  struct coordinator_service *shell = job->shell;
  char *name = checkpoint_name(job->run, job->step), term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  job->err = ERR_NONE;
  if (shell_may_write(shell, &job->err) && shell_has_refs(shell, &job->err) &&
      checkpoint_delete(shell->store, shell->refs, name, &guard, &job->err))
    shell_note_failure(shell, &job->err);
  free(name);
  job->task.run = drop_done;
  task_post(shell->event_loop, &job->task);
}

static void drop_remove(struct drop_job *job) {
  struct drop_job **at = &job->shell->drops;
  while (*at != job)
    at = &(*at)->next;
  *at = job->next;
  free(job->run);
  free(job);
}

static void drop_done(struct task *task) {
  struct drop_job *job = TASK_OWNER(task, struct drop_job, task);
  struct coordinator_service *shell = job->shell;
  job->is_under_way = false;
  if (job->err.code && !shell->is_stopping) { /* the record may be there still, and would come back */
    log_event(LOG_WARN, "coordinator", "checkpoint_not_deleted", "run=%s step=%" PRIu64 " reason=\"%s\"",
              job->run, job->step, job->err.text);
    job->retry_ms = shell_now_ms() + DROP_RETRY_MS;
    return;
  }
  shell_step(shell, &(struct coordinator_event){.kind = EVENT_CHECKPOINT_DROPPED,
                                                .dropped = {.run = job->run, .step = job->step}});
  drop_remove(job);
}

void shell_drops_turn(struct coordinator_service *shell, uint64_t now_ms) {
  for (struct drop_job *job = shell->drops; job; job = job->next)
    if (!job->is_under_way && !job->is_replaced && now_ms >= job->retry_ms)
      drop_start(job);
}

static bool is_of(const struct drop_job *job, const Weir__Manifest *manifest) {
  return job->step == manifest->step && strcmp(job->run, manifest->run) == 0;
}

/* A deletion that waits would take the new checkpoint of the same name with it. */
static void drops_replace(struct coordinator_service *shell, const Weir__Manifest *by) {
  for (struct drop_job *job = shell->drops; job; job = job->next)
    job->is_replaced |= is_of(job, by);
}

/* Deletions that were under way have ended: the jobs come in turn, and a run commits one version at a time.
 */
static void drops_replaced(struct coordinator_service *shell, const Weir__Manifest *by, bool is_committed) {
  for (struct drop_job *job = shell->drops, *next; job; job = next) {
    next = job->next;
    if (!job->is_replaced || !is_of(job, by))
      continue;
    job->is_replaced = false;
    if (is_committed)
      drop_remove(job);
  }
}

void shell_drops_fini(struct coordinator_service *shell) {
  while (shell->drops)
    drop_remove(shell->drops);
}
