/* The events of runs kept in the store, in chunks. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/messages/info.h"
#include "server/coordinator/shell/saves.h"
#include "server/coordinator/state/event_log.h"

enum {
  CHUNK_EVENTS = 1024,
  CHUNKS_EXACT = EVENT_LOG_EXACT / CHUNK_EVENTS, /* the newest: the core has each of their steps by itself */
  CHUNKS_MORE = 32,                              /* further ones, until the older ones are replaced */
  CHUNKS_A_TIME = 32,
  EVERY_MS = 1000,
};

/* Events as the store has them. */
struct packed_chunk {
  uint64_t first; /* the number of the first */
  uint8_t *packed;
  size_t size;
};

struct chunk_job {
  struct task task;
  struct coordinator_service *shell;
  char *run;
  struct packed_chunk chunk;
  struct err err;
};

/* The chunks of older events, written anew. */
struct thin_job {
  struct task task;
  struct coordinator_service *shell;
  char *run;
  struct packed_chunk *chunks;
  int n_chunks, chunks_capacity;
  uint64_t *replaced; /* that there were */
  int n_replaced;
  struct err err;
};

static bool write_chunk(struct coordinator_service *shell, struct saved_run *run);
static void post_chunk(struct coordinator_service *shell, struct saved_run *run, struct run_event_view *views,
                       int n);
static void chunk_write(struct task *task);
static void chunk_done(struct task *task);
static void thin_when_due(struct coordinator_service *shell, struct saved_run *run);
static void thin_write(struct task *task);
static void thin_done(struct task *task);

void shell_events_restored(struct saved_events *events, const struct stored_run *stored) {
  for (int i = 0; i < stored->n_chunks; i++) {
    array_reserve((void **)&events->chunks, &events->chunks_capacity, events->n_chunks,
                  sizeof *events->chunks);
    events->chunks[events->n_chunks++] = stored->chunks[i];
  }
  while (events->unread < events->n_chunks &&
         (stored->n_events == 0 || events->chunks[events->unread] < stored->events[0]->number))
    events->unread++;
  if (stored->n_events)
    events->open = events->next = stored->events[stored->n_events - 1]->number + 1;
}

void shell_events_emptied(struct saved_events *events) {
  events->are_new = true;
  events->open = events->next = events->due_ms = 0;
  events->n_chunks = events->unread = events->thinned = 0;
}

void shell_events_write(struct coordinator_service *shell, struct saved_run *run) {
  int chunks = 0;
  run->events.due_ms = shell_now_ms() + EVERY_MS;
  while (chunks < CHUNKS_A_TIME && write_chunk(shell, run))
    chunks++;
  run->events.are_new = chunks == CHUNKS_A_TIME;
  thin_when_due(shell, run);
}

/* The events from `number` on, in at most one chunk, and below `end`. Returns how many they are. */
static int view_chunk(const struct coordinator_service *shell, const struct saved_run *run, uint64_t number,
                      uint64_t end, struct run_event_view *views) {
  int n = 0;
  while (n < CHUNK_EVENTS && coordinator_run_event(shell->core, run->run, number, &views[n]) &&
         views[n].event.number < end)
    number = views[n++].event.number + 1;
  return n;
}

static struct packed_chunk pack_chunk(struct run_event_view *views, int n) {
  Weir__EventChunk chunk = WEIR__EVENT_CHUNK__INIT;
  struct packed_chunk packed = {.first = views[0].event.number};
  chunk.events = mem_new((size_t)n * sizeof *chunk.events);
  for (chunk.n_events = 0; chunk.n_events < (size_t)n; chunk.n_events++)
    chunk.events[chunk.n_events] = &views[chunk.n_events].event;
  packed.size = weir__event_chunk__get_packed_size(&chunk);
  packed.packed = mem_new(packed.size);
  weir__event_chunk__pack(&chunk, packed.packed);
  free(chunk.events);
  return packed;
}

/* Gives the open chunk to the jobs. True if it was full, so that there may be more. */
static bool write_chunk(struct coordinator_service *shell, struct saved_run *run) {
  struct run_event_view *views, newest;
  uint64_t number;
  int n;
  if (!shell->core || !coordinator_run_event(shell->core, run->run, run->events.next, &newest))
    return false;
  views = mem_new(CHUNK_EVENTS * sizeof *views);
  n = view_chunk(shell, run, run->events.open, UINT64_MAX, views);
  number = views[n - 1].event.number + 1;
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
  *job = (struct chunk_job){
      .task.run = chunk_write, .shell = shell, .run = mem_strdup(run->run), .chunk = pack_chunk(views, n)};
  if (events->n_chunks == 0 || events->chunks[events->n_chunks - 1] < job->chunk.first) {
    array_reserve((void **)&events->chunks, &events->chunks_capacity, events->n_chunks,
                  sizeof *events->chunks);
    events->chunks[events->n_chunks++] = job->chunk.first;
  }
  events->jobs++;
  task_post(shell->jobs, &job->task); /* a few a run and second */
}

static char *chunk_name(const char *run, uint64_t first) {
  return mem_printf("runs/%s/events/%020" PRIu64, run, first);
}

static int put_chunk(struct coordinator_service *shell, const char *run, const struct packed_chunk *chunk,
                     struct err *err) {
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  char *name = chunk_name(run, chunk->first);
  int rc =
      store_put_record(shell->store, &(struct store_record){name, chunk->packed, chunk->size, &guard}, err);
  free(name);
  return rc;
}

static void chunk_write(struct task *task) {
  struct chunk_job *job = TASK_OWNER(task, struct chunk_job, task);
  struct coordinator_service *shell = job->shell;
  if (shell_may_write(shell, &job->err) && put_chunk(shell, job->run, &job->chunk, &job->err))
    shell_note_failure(shell, &job->err);
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
    if (job->chunk.first < run->events.open)
      run->events.open = job->chunk.first;
    run->events.next = run->events.open;
    run->events.are_new = true;
  }
  if (job->err.code != ERR_STALE && !shell->is_stopping)
    shell_store_message(shell, shell->save_message, job->err.text);
  free(job->run);
  free(job->chunk.packed);
  free(job);
}

/* Of the steps in the newest chunks the core has each by itself, so none of its events is in one of these and
   in an older one. */
static void thin_when_due(struct coordinator_service *shell, struct saved_run *run) {
  struct saved_events *events = &run->events;
  struct thin_job *job;
  struct run_event_view *views;
  uint64_t number, end;
  int n;
  if (!shell->core || events->n_chunks - events->unread <= events->thinned + CHUNKS_EXACT + CHUNKS_MORE)
    return;
  number = events->chunks[events->unread];
  end = events->chunks[events->n_chunks - CHUNKS_EXACT];
  job = mem_new(sizeof *job);
  *job = (struct thin_job){.task.run = thin_write, .shell = shell, .run = mem_strdup(run->run)};
  job->n_replaced = events->n_chunks - events->unread - CHUNKS_EXACT;
  job->replaced = mem_new((size_t)job->n_replaced * sizeof *job->replaced);
  memcpy(job->replaced, events->chunks + events->unread, (size_t)job->n_replaced * sizeof *job->replaced);
  views = mem_new(CHUNK_EVENTS * sizeof *views);
  while ((n = view_chunk(shell, run, number, end, views)) > 0) {
    array_reserve((void **)&job->chunks, &job->chunks_capacity, job->n_chunks, sizeof *job->chunks);
    job->chunks[job->n_chunks++] = pack_chunk(views, n);
    number = views[n - 1].event.number + 1;
  }
  free(views);
  events->thinned = job->n_chunks;
  events->jobs++;
  task_post(shell->jobs, &job->task);
}

static bool is_written(const struct thin_job *job, uint64_t first) {
  for (int i = 0; i < job->n_chunks; i++)
    if (job->chunks[i].first == first)
      return true;
  return false;
}

/* A coordinator that dies meanwhile leaves some events twice: event_log_restore takes those of more steps. */
static void thin_write(struct task *task) {
  struct thin_job *job = TASK_OWNER(task, struct thin_job, task);
  struct coordinator_service *shell = job->shell;
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  shell_may_write(shell, &job->err);
  for (int i = 0; i < job->n_chunks && !job->err.code; i++)
    if (put_chunk(shell, job->run, &job->chunks[i], &job->err))
      shell_note_failure(shell, &job->err);
  for (int i = 0; i < job->n_replaced && !job->err.code; i++) {
    struct err ignored = ERR_NONE; /* one too many does no harm */
    char *name = chunk_name(job->run, job->replaced[i]);
    if (!is_written(job, job->replaced[i]))
      store_delete_record(shell->store, name, &guard, &ignored);
    free(name);
  }
  job->task.run = thin_done;
  task_post(shell->event_loop, &job->task);
}

/* The list has those that were replaced: not where the store was emptied meanwhile. */
static bool is_listed(const struct saved_events *events, const struct thin_job *job) {
  return events->n_chunks >= events->unread + job->n_replaced &&
         memcmp(events->chunks + events->unread, job->replaced,
                (size_t)job->n_replaced * sizeof *job->replaced) == 0;
}

/* Between those before, and those that were written since. */
static void list_written(struct saved_events *events, const struct thin_job *job) {
  int behind = events->unread + job->n_replaced, rest = events->n_chunks - behind;
  uint64_t *chunks = mem_new((size_t)(events->n_chunks + job->n_chunks) * sizeof *chunks);
  int n = 0;
  for (; n < events->unread; n++)
    chunks[n] = events->chunks[n];
  for (int i = 0; i < job->n_chunks; i++)
    chunks[n++] = job->chunks[i].first;
  for (int i = 0; i < rest; i++)
    chunks[n++] = events->chunks[behind + i];
  events->chunks_capacity = events->n_chunks + job->n_chunks;
  events->n_chunks = n;
  free(events->chunks);
  events->chunks = chunks;
}

static void thin_done(struct task *task) {
  struct thin_job *job = TASK_OWNER(task, struct thin_job, task);
  struct coordinator_service *shell = job->shell;
  struct saved_run *run = shell_find_saved(shell, job->run);
  if (run)
    run->events.jobs--;
  if (run && !job->err.code && is_listed(&run->events, job))
    list_written(&run->events, job);
  if (job->err.code != ERR_STALE && !shell->is_stopping)
    shell_store_message(shell, shell->save_message, job->err.text);
  for (int i = 0; i < job->n_chunks; i++)
    free(job->chunks[i].packed);
  free(job->chunks);
  free(job->replaced);
  free(job->run);
  free(job);
}
