/* The events of runs kept in the store, in chunks. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/messages/info.h"
#include "server/coordinator/shell/saves.h"

enum {
  CHUNK_EVENTS = 1024,
  CHUNKS_MAX = 1000, /* of a run: about as many events as the core keeps */
  CHUNKS_A_TIME = 32,
  EVERY_MS = 1000,
};

struct chunk_job {
  struct task task;
  struct coordinator_service *shell;
  char *run;
  uint64_t first;
  uint8_t *packed;
  size_t size;
  uint64_t oldest; /* a chunk to delete; UINT64_MAX: none */
  struct err err;
};

static bool write_chunk(struct coordinator_service *shell, struct saved_run *run);
static void post_chunk(struct coordinator_service *shell, struct saved_run *run, struct run_event_view *views,
                       int n);
static void chunk_write(struct task *task);
static void chunk_done(struct task *task);

void shell_events_restored(struct saved_events *events, const struct stored_run *stored) {
  for (int i = 0; i < stored->n_chunks; i++) {
    array_reserve((void **)&events->chunks, &events->chunks_capacity, events->n_chunks,
                  sizeof *events->chunks);
    events->chunks[events->n_chunks++] = stored->chunks[i];
  }
  if (stored->n_events)
    events->open = events->next = stored->events[stored->n_events - 1]->number + 1;
}

void shell_events_emptied(struct saved_events *events) {
  events->are_new = true;
  events->open = events->next = events->due_ms = 0;
  events->n_chunks = 0;
}

void shell_events_write(struct coordinator_service *shell, struct saved_run *run) {
  int chunks = 0;
  run->events.due_ms = shell_now_ms() + EVERY_MS;
  while (chunks < CHUNKS_A_TIME && write_chunk(shell, run))
    chunks++;
  run->events.are_new = chunks == CHUNKS_A_TIME;
}

/* Gives the open chunk to the jobs. True if it was full, so that there may be more. */
static bool write_chunk(struct coordinator_service *shell, struct saved_run *run) {
  struct run_event_view *views, newest;
  uint64_t number = run->events.open;
  int n = 0;
  if (!shell->core || !coordinator_run_event(shell->core, run->run, run->events.next, &newest))
    return false;
  views = mem_new(CHUNK_EVENTS * sizeof *views);
  while (n < CHUNK_EVENTS && coordinator_run_event(shell->core, run->run, number, &views[n]))
    number = views[n++].event.number + 1;
  post_chunk(shell, run, views, n);
  run->events.open = n == CHUNK_EVENTS ? number : views[0].event.number;
  run->events.next = number;
  free(views);
  return n == CHUNK_EVENTS;
}

static void post_chunk(struct coordinator_service *shell, struct saved_run *run, struct run_event_view *views,
                       int n) {
  struct saved_events *events = &run->events;
  struct chunk_job *job = mem_new(sizeof *job);
  Weir__EventChunk chunk = WEIR__EVENT_CHUNK__INIT;
  *job = (struct chunk_job){.task.run = chunk_write,
                            .shell = shell,
                            .run = mem_strdup(run->run),
                            .first = views[0].event.number,
                            .oldest = UINT64_MAX};
  chunk.events = mem_new((size_t)n * sizeof *chunk.events);
  for (chunk.n_events = 0; chunk.n_events < (size_t)n; chunk.n_events++)
    chunk.events[chunk.n_events] = &views[chunk.n_events].event;
  job->size = weir__event_chunk__get_packed_size(&chunk);
  job->packed = mem_new(job->size);
  weir__event_chunk__pack(&chunk, job->packed);
  free(chunk.events);
  if (events->n_chunks == 0 || events->chunks[events->n_chunks - 1] < job->first) {
    array_reserve((void **)&events->chunks, &events->chunks_capacity, events->n_chunks,
                  sizeof *events->chunks);
    events->chunks[events->n_chunks++] = job->first;
  }
  if (events->n_chunks > CHUNKS_MAX) {
    job->oldest = events->chunks[0];
    memmove(events->chunks, events->chunks + 1, (size_t)--events->n_chunks * sizeof *events->chunks);
  }
  events->jobs++;
  task_post(shell->jobs, &job->task); /* a few a run and second */
}

static void chunk_write(struct task *task) {
  struct chunk_job *job = TASK_OWNER(task, struct chunk_job, task);
  struct coordinator_service *shell = job->shell;
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  char *name = mem_printf("runs/%s/events/%020" PRIu64, job->run, job->first);
  char *oldest = mem_printf("runs/%s/events/%020" PRIu64, job->run, job->oldest);
  int rc = 0;
  if (shell_may_write(shell, &job->err))
    rc = store_put_record(shell->store, &(struct store_record){name, job->packed, job->size, &guard},
                          &job->err);
  if (rc)
    shell_note_failure(shell, &job->err);
  else if (!job->err.code && job->oldest != UINT64_MAX) {
    struct err err = ERR_NONE;
    store_delete_record(shell->store, oldest, &guard, &err); /* one too many does no harm */
  }
  free(oldest);
  free(name);
  job->task.run = chunk_done;
  task_post(shell->event_loop, &job->task);
}

static void chunk_done(struct task *task) {
  struct chunk_job *job = TASK_OWNER(task, struct chunk_job, task);
  struct coordinator_service *shell = job->shell;
  struct saved_run *run = shell_find_saved(shell, job->run);
  if (run)
    run->events.jobs--;
  if (run && job->err.code) { /* from there again */
    if (job->first < run->events.open)
      run->events.open = job->first;
    run->events.next = run->events.open;
    run->events.are_new = true;
  }
  if (job->err.code != ERR_STALE && !shell->is_stopping)
    shell_store_message(shell, shell->save_message, job->err.text);
  free(job->run);
  free(job->packed);
  free(job);
}
