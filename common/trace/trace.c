/* The timeline. Each thread writes spans into a ring of its own, which one other thread empties into the file
   (or the thread itself when its ring is full), so that computing threads neither lock nor write. */
#include "common/trace/trace.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/trace/capture.h"
#include "common/trace/trace_file.h"

enum { RING_SPANS = 2048, FLUSH_MS = 200, RUNS_MAX = 1024, CAPTURE_BYTES_MAX = 32 << 20 };

/* A thread's. It outlives the thread: the next one of the same name goes on with it, on the same row. */
struct ring {
  char name[TRACE_NAME_SIZE];
  int row;             /* of the timeline */
  bool is_taken;       /* by a thread that lives */
  bool is_shown;       /* the row has a name in the file: from its first span on */
  bool is_captured;    /* likewise in the newest capture */
  uint64_t begin, end; /* spans [begin, end) are to be written: begin moves under the lock */
  struct trace_record spans[RING_SPANS]; /* span i is at i % RING_SPANS */
  struct ring *next;
};

static struct {
  bool is_on; /* atomic */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t writer;
  pthread_key_t key;          /* gives a thread's ring back when it ends */
  bool is_ending;             /* the rest under the lock */
  struct trace_file *file;    /* NULL: closed */
  struct trace_file *capture; /* NULL: there is none */
  int captured;               /* the run of which it is */
  uint64_t capture_ns;        /* since when */
  bool has_writer;
  struct ring *rings;
  int n_rings;
  char run_ids[RUNS_MAX + 1][TRACE_NAME_SIZE]; /* [the number of a run]; "": no run has it */
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct trace_sink own_sink = {.is_on = trace_is_on, .thread = trace_thread, .span = trace_span};
static const struct trace_sink *other_sink; /* not NULL: spans go there */
static __thread struct ring *own_ring;
static __thread int own_run; /* 0: none */

static void *writer_main(void *argument);
static void ring_give_back(void *argument);
static struct ring *ring_take(const char *name);
static struct ring *ring_take_unnamed(void);
static void cut_id(char id[TRACE_NAME_SIZE], const char *run);
static void ring_write_locked(struct ring *ring);
static void write_all_locked(void);

/* Once in a process. */
static void make_key(void) {
  clock_condition_init(&trace.changed);
  CHECK(pthread_key_create(&trace.key, ring_give_back) == 0);
}

/* The writer runs while there is a file or a capture. */
static void start_writer(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  sigset_t all, before;
  pthread_once(&once, make_key);
  trace.is_ending = false;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are other threads' */
  CHECK(pthread_create(&trace.writer, NULL, writer_main, NULL) == 0);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  __atomic_store_n(&trace.is_on, true, __ATOMIC_RELEASE);
}

static void stop_writer(void) {
  __atomic_store_n(&trace.is_on, false, __ATOMIC_RELEASE);
  pthread_mutex_lock(&trace.lock);
  trace.is_ending = true;
  pthread_cond_broadcast(&trace.changed);
  pthread_mutex_unlock(&trace.lock);
  pthread_join(trace.writer, NULL);
}

int trace_open(const char *path, struct err *err) {
  trace.file = trace_file_open(path, err);
  if (!trace.file)
    return err->code;
  start_writer();
  return ERR_OK;
}

void trace_close(void) {
  size_t size;
  free(trace_capture_end(&size));
  if (!trace.file)
    return;
  stop_writer();
  pthread_mutex_lock(&trace.lock);
  write_all_locked(); /* the writer may not have begun before it was to end */
  trace_file_close(trace.file);
  trace.file = NULL; /* for threads that are still on their way into a span */
  pthread_mutex_unlock(&trace.lock);
}

void trace_boot(char boot[TRACE_BOOT_SIZE]) {
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (!file || !fgets(boot, TRACE_BOOT_SIZE, file))
    *boot = '\0';
  boot[strcspn(boot, "\n")] = '\0';
  if (file)
    fclose(file);
}

/* What the rings have is of the time before. */
void trace_capture_begin(const char *run) {
  char id[TRACE_NAME_SIZE];
  size_t size;
  cut_id(id, run);
  free(trace_capture_end(&size));
  pthread_mutex_lock(&trace.lock);
  write_all_locked();
  trace.capture = trace_file_open_memory(CAPTURE_BYTES_MAX);
  trace.capture_ns = clock_now_ns();
  trace.captured = 0;
  for (int i = 1; i <= RUNS_MAX; i++)
    if (strcmp(trace.run_ids[i], id) == 0)
      trace.captured = i;
  for (struct ring *ring = trace.rings; ring; ring = ring->next)
    ring->is_captured = false;
  pthread_mutex_unlock(&trace.lock);
  if (!__atomic_load_n(&trace.is_on, __ATOMIC_ACQUIRE))
    start_writer();
}

char *trace_capture_end(size_t *size) {
  char *text = NULL;
  *size = 0;
  if (!trace.capture)
    return NULL;
  if (!trace.file)
    stop_writer();
  pthread_mutex_lock(&trace.lock);
  write_all_locked();
  text = trace_file_take(trace.capture, size);
  trace.capture = NULL;
  pthread_mutex_unlock(&trace.lock);
  return text;
}

bool trace_is_on(void) {
  return other_sink ? other_sink->is_on() : __atomic_load_n(&trace.is_on, __ATOMIC_ACQUIRE);
}

uint64_t trace_now_ns(void) {
  return trace_is_on() ? clock_now_ns() : 0;
}

void trace_thread(const char *name, int run) {
  char full[TRACE_NAME_SIZE];
  if (other_sink) {
    other_sink->thread(name, run);
    return;
  }
  own_run = run;
  prctl(PR_SET_NAME, name);
  if (!trace_is_on())
    return;
  if (run > 1)
    snprintf(full, sizeof full, "%.40s (run %d)", name, run);
  else
    snprintf(full, sizeof full, "%s", name);
  if (own_ring)
    ring_give_back(own_ring);
  own_ring = ring_take(full);
}

/* The end of an id tells it from others of its name. */
static void cut_id(char id[TRACE_NAME_SIZE], const char *run) {
  size_t length = strlen(run);
  snprintf(id, TRACE_NAME_SIZE, "%s", length < TRACE_NAME_SIZE ? run : run + length - (TRACE_NAME_SIZE - 1));
}

int trace_run_begin(const char *id) {
  int run = 1;
  pthread_mutex_lock(&trace.lock);
  while (run < RUNS_MAX && *trace.run_ids[run])
    run++;
  cut_id(trace.run_ids[run], id);
  pthread_mutex_unlock(&trace.lock);
  return run;
}

void trace_run_become(int run, const char *id) {
  pthread_mutex_lock(&trace.lock);
  cut_id(trace.run_ids[run], id);
  pthread_mutex_unlock(&trace.lock);
}

void trace_run_end(int run) {
  pthread_mutex_lock(&trace.lock);
  *trace.run_ids[run] = '\0';
  pthread_mutex_unlock(&trace.lock);
}

void trace_span(const struct trace_span *span) {
  struct trace_record *record;
  if (other_sink) {
    other_sink->span(span);
    return;
  }
  if (!trace_is_on() || span->begin_ns == 0)
    return;
  if (!own_ring)
    own_ring = ring_take_unnamed();
  if (own_ring->end - __atomic_load_n(&own_ring->begin, __ATOMIC_ACQUIRE) == RING_SPANS) {
    pthread_mutex_lock(&trace.lock);
    ring_write_locked(own_ring);
    pthread_mutex_unlock(&trace.lock);
  }
  record = &own_ring->spans[own_ring->end % RING_SPANS];
  *record = (struct trace_record){.row = span->row,
                                  .category = span->category,
                                  .begin_ns = span->begin_ns,
                                  .end_ns = span->end_ns,
                                  .step = span->step,
                                  .index = span->index,
                                  .run = span->run ? span->run : own_run};
  strncat(record->name, span->name, sizeof record->name - 1);
  __atomic_store_n(&own_ring->end, own_ring->end + 1, __ATOMIC_RELEASE);
}

const struct trace_sink *trace_sink(void) {
  return &own_sink;
}

void trace_redirect(const struct trace_sink *sink) {
  other_sink = sink;
}

static void write_all_locked(void) {
  for (struct ring *ring = trace.rings; ring; ring = ring->next)
    ring_write_locked(ring);
  if (trace.file)
    trace_file_flush(trace.file);
}

static void *writer_main(void *argument) {
  pthread_mutex_lock(&trace.lock);
  while (!trace.is_ending) {
    struct timespec until = clock_after_ms(FLUSH_MS);
    pthread_cond_timedwait(&trace.changed, &trace.lock, &until);
    write_all_locked();
  }
  pthread_mutex_unlock(&trace.lock);
  return argument;
}

static void span_write(struct trace_file *file, const struct ring *ring, bool *is_shown,
                       const struct trace_record *span) {
  if (span->row == TRACE_THREAD && !*is_shown)
    trace_file_row(file, ring->row, ring->name);
  *is_shown |= span->row == TRACE_THREAD;
  trace_file_span(file, ring->row, span);
}

static void ring_write_locked(struct ring *ring) {
  uint64_t end = __atomic_load_n(&ring->end, __ATOMIC_ACQUIRE);
  for (uint64_t i = ring->begin; i < end; i++) {
    const struct trace_record *span = &ring->spans[i % RING_SPANS];
    if (trace.file)
      span_write(trace.file, ring, &ring->is_shown, span);
    if (trace.capture && span->run == trace.captured && span->run && span->begin_ns >= trace.capture_ns)
      span_write(trace.capture, ring, &ring->is_captured, span);
  }
  __atomic_store_n(&ring->begin, end, __ATOMIC_RELEASE);
}

/* Of a thread that began before the timeline, by its name in the system's lists. */
static struct ring *ring_take_unnamed(void) {
  char name[TRACE_NAME_SIZE] = "thread";
  prctl(PR_GET_NAME, name);
  return ring_take(name);
}

static struct ring *ring_take(const char *name) {
  struct ring *ring;
  pthread_mutex_lock(&trace.lock);
  ring = trace.rings;
  while (ring && (ring->is_taken || strncmp(ring->name, name, sizeof ring->name - 1) != 0))
    ring = ring->next;
  if (!ring) {
    ring = mem_new(sizeof *ring);
    strncat(ring->name, name, sizeof ring->name - 1);
    ring->row = ++trace.n_rings;
    ring->next = trace.rings;
    trace.rings = ring;
  }
  ring->is_taken = true;
  pthread_mutex_unlock(&trace.lock);
  pthread_setspecific(trace.key, ring);
  return ring;
}

static void ring_give_back(void *argument) {
  struct ring *ring = argument;
  pthread_mutex_lock(&trace.lock);
  ring->is_taken = false;
  pthread_mutex_unlock(&trace.lock);
}
