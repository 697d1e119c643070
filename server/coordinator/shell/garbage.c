/* A store that was emptied is filled again; what nothing refers to any more is swept out of it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/shell/sweeps.h"

enum { REFILL_RETRY_MS = 1000 };

struct refill_job {
  struct task task;
  struct coordinator_service *shell;
  char identity[STORE_IDENTITY_SIZE]; /* ours; then that of the store */
  struct run_model **models;
  int n_models;
  struct err err;
};

/* A collection, asked for by a call or (NULL) by ourselves. */
struct garbage_job {
  struct task task;
  struct coordinator_service *shell;
  struct rpc_call *call;
  char **runs; /* to delete first; whole ids once they are found */
  int n_runs, n_deleted;
  struct viewer viewer; /* who asks */
  char *sweep;          /* to delete with them, which may be gone; NULL: none */
  int n_records;        /* of its log */
  Weir__CollectGarbageReply reply;
  struct err err;
};

static void refill_job_run(struct task *task);
static int write_refill(struct refill_job *job);
static void refill_done(struct task *task);
static void garbage_job_run(struct task *task);
static int find_runs(struct garbage_job *job);
static int delete_runs(struct garbage_job *job);
static int delete_run(struct garbage_job *job, const char *run);
static int delete_sweep(struct garbage_job *job);
static void sweep_store(struct garbage_job *job);
static void garbage_done(struct task *task);
static void garbage_forget(struct garbage_job *job);

void shell_refill(struct coordinator_service *shell) {
  struct refill_job *job = mem_new(sizeof *job);
  int capacity = 0;
  *job = (struct refill_job){.task.run = refill_job_run, .shell = shell};
  memcpy(job->identity, shell->identity, sizeof job->identity);
  for (struct live_model *model = shell->models; model; model = model->next) {
    int other = 0;
    while (other < job->n_models && job->models[other] != model->model)
      other++;
    if (other < job->n_models)
      continue;
    array_reserve((void **)&job->models, &capacity, job->n_models, sizeof *job->models);
    job->models[job->n_models++] = run_model_get(model->model);
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
  for (int i = 0; i < job->n_models && !rc; i++) {
    const struct buffer *file = job->models[i]->file, *outline = job->models[i]->outline;
    rc = store_put(shell->store, file->data, file->size_bytes, key, &job->err);
    if (!rc && outline != file)
      rc = store_put(shell->store, outline->data, outline->size_bytes, key, &job->err);
  }
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
    run_model_put(job->models[i]);
  free(job->models);
  free(job);
}

/* Takes what the job points to. */
static void garbage_start(const struct garbage_job *wanted) {
  struct garbage_job *job = mem_new(sizeof *job);
  *job = *wanted;
  weir__collect_garbage_reply__init(&job->reply);
  job->task.run = garbage_job_run;
  task_post(job->shell->jobs, &job->task); /* one a call */
}

/* Of a name that only the store may know, or another tenant's run, the saves are let alone. */
static bool knows(struct coordinator_service *shell, const struct viewer *viewer, const char *run) {
  struct err err = ERR_NONE;
  const char *id;
  return coordinator_find_run(shell->core, viewer, run, &id, &err) == 0;
}

int shell_refuse_read(struct coordinator_service *shell, const char *run, struct err *err) {
  if (!reads_hold_any(&shell->reads, run))
    return ERR_OK;
  return err_set(err, ERR_BUSY, "run '%s' is being downloaded or verified: try again when that is over", run);
}

void shell_collect_all(struct coordinator_service *shell) {
  garbage_start(&(struct garbage_job){.shell = shell, .viewer = viewer_of_all});
}

void shell_collect_sweep(struct coordinator_service *shell, struct rpc_call *call,
                         const struct viewer *viewer, struct shell_sweep *sweep) {
  const uint32_t repeats = sweep->sweep->spec->repeats;
  struct garbage_job job = {.shell = shell,
                            .call = call,
                            .viewer = *viewer,
                            .runs = mem_new((size_t)sweep->n_runs * sizeof *job.runs + 1),
                            .n_runs = sweep->n_runs,
                            .sweep = mem_strdup(sweep->id),
                            .n_records = sweep->n_log};
  for (int i = 0; i < sweep->n_runs; i++) {
    job.runs[i] = sweep_run_id(sweep, (uint32_t)i / repeats, (uint32_t)i % repeats);
    if (!job.err.code)
      shell_refuse_read(shell, job.runs[i], &job.err);
  }
  if (job.err.code) {
    rpc_call_finish(call, &job.err);
    garbage_forget(&job);
    return;
  }
  for (int i = 0; i < sweep->n_runs; i++)
    shell_saves_deleting(shell, job.runs[i]);
  sweep->is_deleting = true;
  garbage_start(&job);
}

void shell_collect_garbage(struct coordinator_service *shell, struct rpc_call *call,
                           const struct viewer *viewer, char **runs, int n_runs) {
  for (int i = 0; i < n_runs; i++)
    if (knows(shell, viewer, runs[i]))
      shell_saves_deleting(shell, runs[i]);
  garbage_start(
      &(struct garbage_job){.shell = shell, .call = call, .viewer = *viewer, .runs = runs, .n_runs = n_runs});
}

static void garbage_job_run(struct task *task) {
  struct garbage_job *job = TASK_OWNER(task, struct garbage_job, task);
  struct coordinator_service *shell = job->shell;
  if (shell_is_ending(shell))
    err_set(&job->err, ERR_UNAVAILABLE, "the coordinator is stopping");
  else if (find_runs(job) == 0)
    delete_runs(job);
  if (job->sweep && !job->err.code)
    delete_sweep(job);
  if (!job->err.code && job->viewer.sees_all) /* what nothing refers to is nobody's */
    sweep_store(job);
  if (job->err.code)
    checkpoint_tell_deleted(job->runs, job->n_deleted, &job->err);
  job->reply.runs = (uint64_t)job->n_deleted;
  job->task.run = garbage_done;
  task_post(shell->event_loop, &job->task);
}

/* Those who do not see all tenants name a run that the coordinator has forgotten by its whole id, and learn
   nothing of others. */
static int find_stored(struct garbage_job *job, const char *run, Weir__RunRecord **record) {
  int rc = checkpoint_find_run(job->shell->store, run, record, &job->err);
  bool is_seen = rc == 0 && strcmp((*record)->run, run) == 0 &&
                 viewer_sees(&job->viewer, tenant_or_default((*record)->tenant));
  bool is_own = is_seen || (rc == ERR_CORRUPT && job->sweep); /* that of its trial */
  if (job->viewer.sees_all || is_own || err_is_retryable(job->err.code))
    return rc;
  message_free(*record);
  *record = NULL;
  return err_set(&job->err, ERR_NOT_FOUND, "no run '%.100s' in the store", run);
}

/* Whether the record of that run is there, whatever it holds. */
static bool has_record(struct store *store, const char *run) {
  char *name = checkpoint_run_name(run, "run");
  struct err ignored = ERR_NONE;
  void *data;
  size_t size;
  bool has = store_get_record(store, name, &data, &size, &ignored) == 0;
  if (has)
    free(data);
  free(name);
  return has;
}

/* Puts the whole id in the place of the name. */
static int find_run(struct garbage_job *job, char **run) {
  Weir__RunRecord *record;
  int rc = find_stored(job, *run, &record);
  if (!rc) {
    free(*run);
    *run = mem_strdup(record->run);
  } else if (rc == ERR_CORRUPT && !has_record(job->shell->store, *run)) {
    err_append(&job->err, "; such a run is deleted by its whole id");
  } else if (rc == ERR_CORRUPT || (rc == ERR_NOT_FOUND && job->sweep)) { /* it never began, or was deleted */
    job->err = ERR_NONE;
  }
  message_free(record);
  return job->err.code;
}

/* All of them, before the first is deleted. None is there twice then; trials have ids of their own. */
static int find_runs(struct garbage_job *job) {
  int n = 0;
  for (int i = 0; i < job->n_runs; i++)
    if (find_run(job, &job->runs[i]))
      return job->err.code;
  for (int i = 0; i < job->n_runs && !job->sweep; i++) {
    char *run = job->runs[i];
    int at = 0;
    while (at < n && strcmp(job->runs[at], run) != 0)
      at++;
    if (at < n)
      free(run);
    else
      job->runs[n++] = run;
  }
  if (!job->sweep)
    job->n_runs = n;
  return 0;
}

static int delete_runs(struct garbage_job *job) {
  while (job->n_deleted < job->n_runs && shell_has_refs(job->shell, &job->err) &&
         delete_run(job, job->runs[job->n_deleted]) == 0)
    job->n_deleted++;
  return job->err.code;
}

static int delete_run(struct garbage_job *job, const char *run) {
  struct coordinator_service *shell = job->shell;
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  struct block_tally before = block_refs_deleted(shell->refs), freed;
  int rc = checkpoint_delete_run(shell->store, shell->refs, run, &guard, &job->err);
  freed = block_refs_deleted(shell->refs);
  freed.blocks -= before.blocks;
  freed.bytes -= before.bytes;
  job->reply.blocks += freed.blocks;
  job->reply.bytes += freed.bytes;
  if (!rc)
    log_event(LOG_INFO, "coordinator", "run_deleted", "run=%s blocks=%" PRIu64 " bytes=%" PRIu64, run,
              freed.blocks, freed.bytes);
  else if (rc == ERR_NOT_FOUND && job->sweep) /* it never began, or was deleted before */
    job->err = ERR_NONE;
  return job->err.code;
}

/* The head first: without it nobody goes on with a log of which a part is gone. */
static int delete_sweep(struct garbage_job *job) {
  struct coordinator_service *shell = job->shell;
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  sweep_delete_head(shell->store, job->sweep, &guard, &job->err);
  for (int i = 0; i < job->n_records && !job->err.code; i++) {
    char *name = mem_printf("sweeps/%s/log/%020d", job->sweep, i);
    store_delete_record(shell->store, name, &guard, &job->err);
    free(name);
  }
  return job->err.code;
}

/* The references are counted anew: a collection is rare, and what it deletes is lost. */
static void sweep_store(struct garbage_job *job) {
  struct coordinator_service *shell = job->shell;
  Weir__CollectGarbageReply swept = WEIR__COLLECT_GARBAGE_REPLY__INIT;
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  block_refs_free(shell->refs);
  shell->refs = NULL;
  if (shell_has_refs(shell, &job->err) &&
      checkpoint_delete_orphans(shell->store, shell->refs, &guard, &job->err) == 0)
    checkpoint_sweep(shell->store, shell->refs, &swept, &job->err);
  job->reply.blocks += swept.blocks;
  job->reply.bytes += swept.bytes;
  job->reply.kept_blocks = swept.kept_blocks;
  job->reply.kept_bytes = swept.kept_bytes;
}

static void sweep_collected(struct garbage_job *job) {
  struct shell_sweep *sweep = shell_find_sweep(job->shell, job->sweep);
  if (!job->err.code)
    shell_sweep_deleted(job->shell, job->sweep);
  else if (sweep)
    sweep->is_deleting = false;
}

static void garbage_done(struct task *task) {
  struct garbage_job *job = TASK_OWNER(task, struct garbage_job, task);
  struct coordinator_service *shell = job->shell;
  log_event(job->err.code ? LOG_WARN : LOG_INFO, "coordinator", "store_swept",
            "blocks=%" PRIu64 " bytes=%" PRIu64 " runs=%" PRIu64 " kept_blocks=%" PRIu64 " error=\"%s\"",
            job->reply.blocks, job->reply.bytes, job->reply.runs, job->reply.kept_blocks, job->err.text);
  for (int i = 0; i < job->n_runs; i++) {
    bool is_deleted = i < job->n_deleted;
    if (is_deleted)
      shell_step(shell, &(struct coordinator_event){.kind = EVENT_RUN_FORGOTTEN, .run = job->runs[i]});
    if (is_deleted || knows(shell, &job->viewer, job->runs[i]))
      shell_saves_deleted(shell, job->runs[i], is_deleted);
  }
  if (job->sweep)
    sweep_collected(job);
  if (job->call && job->err.code)
    rpc_call_finish(job->call, &job->err);
  else if (job->call)
    rpc_call_reply(job->call, &job->reply, NULL);
  garbage_forget(job);
  free(job);
}

static void garbage_forget(struct garbage_job *job) {
  for (int i = 0; i < job->n_runs; i++)
    free(job->runs[i]);
  free(job->runs);
  free(job->sweep);
}
