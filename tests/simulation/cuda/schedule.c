/* Queues of work. Nothing is done when it is enqueued: streams are served, in a drawn order that only their
   own order and events bound, when a host thread waits or asks. So what the host or another stream reads
   without having waited for it is, most often, not there yet. A thread of the background serves them when
   nobody has for a while, as a device goes on by itself. */
#include "tests/simulation/cuda/simulation.h"

#include <fenv.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/agree/random.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/memory.h"

enum { PATIENCE_MS = 20, RETRY_MS = 1 };

struct sim_item {
  struct sim_op *op;
  void *state;
  uint64_t number; /* in the order of all streams */
  struct sim_item *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed, enqueued;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaStream_t streams;
static struct CUstream_st legacy[SIM_DEVICES_MAX];
static uint64_t n_items, n_pending, n_steps, n_drawn, round_number = 1;
static int n_running; /* ops that threads are in the midst of */
static atomic_uint_least64_t n_worked;

static void *serve_in_background(void *unused);

void *sim_op_new(size_t size, const char *name,
                 enum sim_progress (*run)(struct sim_op *op, void **state, int device)) {
  struct sim_op *op = mem_new(size);
  op->name = name;
  op->run = run;
  op->refs = 1;
  return op;
}

struct sim_op *sim_op_get(struct sim_op *op) {
  op->refs++;
  return op;
}

void sim_op_put(struct sim_op *op) {
  if (--op->refs > 0)
    return;
  if (op->fini)
    op->fini(op);
  free(op);
}

static void schedule_init(void) {
  pthread_t thread;
  clock_condition_init(&changed);
  clock_condition_init(&enqueued);
  for (int d = 0; d < SIM_DEVICES_MAX; d++) {
    legacy[d].device = d;
    legacy[d].tail = &legacy[d].head;
    legacy[d].next = streams;
    streams = &legacy[d];
  }
  CHECK(pthread_create(&thread, NULL, serve_in_background, NULL) == 0);
  pthread_detach(thread);
}

cudaStream_t sim_stream_of(cudaStream_t stream) {
  pthread_once(&once, schedule_init);
  return stream == NULL || stream == cudaStreamLegacy ? &legacy[sim_device()] : stream;
}

void sim_stream_add(cudaStream_t stream) {
  pthread_once(&once, schedule_init);
  pthread_mutex_lock(&lock);
  stream->tail = &stream->head;
  stream->next = streams;
  streams = stream;
  pthread_mutex_unlock(&lock);
}

void sim_stream_remove(cudaStream_t stream) {
  pthread_mutex_lock(&lock);
  CHECK(!stream->head);
  for (cudaStream_t *at = &streams; *at; at = &(*at)->next)
    if (*at == stream) {
      *at = stream->next;
      break;
    }
  pthread_mutex_unlock(&lock);
}

void sim_streams_each(void (*call)(cudaStream_t stream, void *user), void *user) {
  pthread_mutex_lock(&lock);
  for (cudaStream_t it = streams; it; it = it->next)
    call(it, user);
  pthread_mutex_unlock(&lock);
}

static uint64_t draw(void) {
  return random_bits(random_key(sim_seed(), 0, 0, 0), n_drawn++);
}

uint64_t sim_random(void) {
  uint64_t bits;
  pthread_mutex_lock(&lock);
  bits = draw();
  pthread_mutex_unlock(&lock);
  return bits;
}

void sim_enqueue_now(cudaStream_t stream, struct sim_op *op) {
  struct sim_item *item = mem_new(sizeof *item);
  item->op = op;
  pthread_mutex_lock(&lock);
  item->number = ++n_items;
  *stream->tail = item;
  stream->tail = &item->next;
  if (n_pending++ == 0)
    pthread_cond_signal(&enqueued);
  pthread_mutex_unlock(&lock);
}

cudaError_t sim_enqueue(cudaStream_t stream, struct sim_op *op) {
  cudaError_t error = sim_device_error(stream->device);
  if (stream->capture)
    return sim_capture_add(stream, op);
  if (error)
    sim_op_put(op);
  else
    sim_enqueue_now(stream, op);
  return error;
}

/* The order that the legacy stream has with the streams that do not decline it. */
static bool is_held_by_legacy(cudaStream_t stream) {
  cudaStream_t other = &legacy[stream->device];
  if (stream != other)
    return !(stream->flags & cudaStreamNonBlocking) && other->head &&
           other->head->number < stream->head->number;
  for (other = streams; other; other = other->next)
    if (other != stream && other->device == stream->device && !(other->flags & cudaStreamNonBlocking) &&
        other->head && other->head->number < stream->head->number)
      return true;
  return false;
}

/* The stream of the highest rank that may go on and has not been tried since something was done. Ranks last
   for a while, so that one stream may run far ahead of another. */
static cudaStream_t choose_stream(void) {
  cudaStream_t best = NULL;
  bool is_new_order = draw() % 8 == 0;
  for (cudaStream_t it = streams; it; it = it->next) {
    if (!it->head)
      continue;
    if (is_new_order || it->rank == 0)
      it->rank = draw() | 1;
    if (!it->is_busy && it->tried != round_number && !is_held_by_legacy(it) &&
        (!best || it->rank > best->rank))
      best = it;
  }
  return best;
}

static void pop(cudaStream_t stream) {
  struct sim_item *item = stream->head;
  stream->head = item->next;
  if (!stream->head)
    stream->tail = &stream->head;
  n_pending--;
  pthread_mutex_unlock(&lock);
  sim_op_put(item->op);
  free(item);
  pthread_mutex_lock(&lock);
}

/* A GPU has no setting of subnormals: they are numbers to it, whatever they are to the thread that serves it.
 */
static enum sim_progress run_item(struct sim_item *item, int device) {
  enum sim_progress progress = SIM_DONE;
  fenv_t host;
  fegetenv(&host);
  fesetenv(FE_DFL_ENV);
  if (sim_may_run(item->op, device))
    progress = item->op->run(item->op, &item->state, device);
  else if (item->op->drop)
    item->op->drop(item->op, item->state);
  fesetenv(&host);
  return progress;
}

/* Locked. Does a part of some stream's work. False: nothing could be done now. */
static bool step(void) {
  cudaStream_t stream;
  while ((stream = choose_stream())) {
    struct sim_item *item = stream->head;
    enum sim_progress progress;
    stream->is_busy = true;
    n_running++;
    pthread_mutex_unlock(&lock);
    progress = run_item(item, stream->device);
    pthread_mutex_lock(&lock);
    n_running--;
    stream->is_busy = false;
    stream->tried = round_number;
    if (progress == SIM_BLOCKED)
      continue;
    round_number++;
    n_steps++;
    if (progress == SIM_DONE)
      pop(stream);
    pthread_cond_broadcast(&changed);
    return true;
  }
  return false;
}

/* Locked. Waits a moment for other threads, or processes, to do what is needed here. */
static void wait_for_others(void) {
  struct timespec until = clock_after_ms(RETRY_MS);
  sim_memory_close();
  pthread_cond_timedwait(&changed, &lock, &until);
  sim_memory_open();
  round_number++;
}

static bool is_idle(cudaStream_t stream, int device) {
  if (stream)
    return !stream->head;
  for (cudaStream_t it = streams; it; it = it->next)
    if (it->head && (device < 0 || it->device == device))
      return false;
  return true;
}

static void run_until(struct sim_moment *moment, cudaStream_t stream, int device) {
  pthread_once(&once, schedule_init);
  sim_memory_open();
  pthread_mutex_lock(&lock);
  while (moment ? !moment->is_past : !is_idle(stream, device))
    if (!step())
      wait_for_others();
  pthread_mutex_unlock(&lock);
  sim_memory_close();
}

void sim_run_until(struct sim_moment *moment) {
  run_until(moment, NULL, -1);
}

void sim_run_stream(cudaStream_t stream) {
  run_until(NULL, stream, -1);
}

void sim_run_device(int device) {
  run_until(NULL, NULL, device);
}

void sim_run_some(void) {
  pthread_once(&once, schedule_init);
  sim_memory_open();
  pthread_mutex_lock(&lock);
  round_number++;
  for (uint64_t n = draw() % 4 + 1; n > 0 && step(); n--)
    ;
  pthread_mutex_unlock(&lock);
  sim_memory_close();
}

/* Goes on by itself when there is work that nobody has touched for a while. */
static void *serve_in_background(void *unused) {
  int patience_ms = PATIENCE_MS;
  pthread_mutex_lock(&lock);
  for (;;) {
    struct timespec until = clock_after_ms(patience_ms);
    uint64_t steps = n_steps;
    while (n_pending == 0)
      pthread_cond_wait(&enqueued, &lock);
    while (pthread_cond_timedwait(&changed, &lock, &until) == 0)
      ;
    patience_ms = PATIENCE_MS;
    if (n_pending == 0 || n_steps != steps || n_running > 0)
      continue;
    sim_memory_open();
    round_number++;
    while (step())
      ;
    sim_memory_close();
    if (n_pending > 0)
      patience_ms = RETRY_MS; /* another process may have to do its part */
  }
  return unused;
}

bool sim_may_run(const struct sim_op *op, int device) {
  uint64_t fail = sim_setting("WEIR_SIMULATED_FAIL", 0);
  if (!op->is_work)
    return true;
  if (fail && ++n_worked == fail)
    sim_device_lose(device, cudaErrorIllegalAddress, op->name);
  return sim_device_error(device) == cudaSuccess;
}

struct sim_moment *sim_moment_new(void) {
  struct sim_moment *moment = mem_new(sizeof *moment);
  moment->refs = 1;
  return moment;
}

struct sim_moment *sim_moment_get(struct sim_moment *moment) {
  moment->refs++;
  return moment;
}

void sim_moment_put(struct sim_moment *moment) {
  if (moment && --moment->refs == 0)
    free(moment);
}

void sim_moment_pass(struct sim_moment *moment) {
  moment->time_ns = clock_now_ns();
  moment->is_past = true;
}

struct moment_op {
  struct sim_op op;
  struct sim_moment *moment;
};

static void moment_op_fini(struct sim_op *op) {
  sim_moment_put(((struct moment_op *)op)->moment);
}

static enum sim_progress pass_run(struct sim_op *op, void **state, int device) {
  (void)state, (void)device;
  sim_moment_pass(((struct moment_op *)op)->moment);
  return SIM_DONE;
}

static enum sim_progress wait_run(struct sim_op *op, void **state, int device) {
  (void)state, (void)device;
  return ((struct moment_op *)op)->moment->is_past ? SIM_DONE : SIM_BLOCKED;
}

static struct sim_op *moment_op_new(struct sim_moment *moment, const char *name,
                                    enum sim_progress (*run)(struct sim_op *, void **, int)) {
  struct moment_op *op = sim_op_new(sizeof *op, name, run);
  op->op.fini = moment_op_fini;
  op->moment = sim_moment_get(moment);
  return &op->op;
}

struct sim_op *sim_pass_new(struct sim_moment *moment) {
  return moment_op_new(moment, "event", pass_run);
}

struct sim_op *sim_wait_new(struct sim_moment *moment) {
  return moment_op_new(moment, "wait for an event", wait_run);
}
