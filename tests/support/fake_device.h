/* Devices that are not there, for tests of what is done with the memory of devices: the ref backend, whose
   values lie on a device as far as anybody can tell. Host code that follows a pointer to such memory dies;
   what is enqueued is done when it is waited for, and not before. */
#ifndef WEIR_TESTS_SUPPORT_FAKE_DEVICE_H
#define WEIR_TESTS_SUPPORT_FAKE_DEVICE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "worker/backend/backend.h"

enum { FAKE_DEVICES = 2, FAKE_BYTES = 64 << 20, FAKE_VALUES_AT_ONCE = 3 };

/* The same pages twice: at `there` they cannot be touched. */
static struct {
  char *there, *here;
  size_t used[FAKE_DEVICES], limit[FAKE_DEVICES]; /* bytes; of one test at a time */
  int n_sums, n_looks, n_waits;                   /* atomic */
  int n_held;                                     /* atomic: pieces of memory that are made and not freed */
} fake_devices;

static inline void fake_devices_init(void) {
  size_t bytes = (size_t)FAKE_DEVICES * FAKE_BYTES;
  if (!fake_devices.there) {
    int file = memfd_create("devices", 0);
    CHECK(file >= 0 && ftruncate(file, (off_t)bytes) == 0);
    fake_devices.there = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, file, 0);
    fake_devices.here = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(fake_devices.there != MAP_FAILED && fake_devices.here != MAP_FAILED);
    close(file);
  }
  memset(fake_devices.here, 0xff, bytes);
  memset(fake_devices.used, 0, sizeof fake_devices.used);
  fake_devices.n_sums = fake_devices.n_looks = fake_devices.n_waits = fake_devices.n_held = 0;
  for (int d = 0; d < FAKE_DEVICES; d++)
    fake_devices.limit[d] = FAKE_BYTES;
}

/* Whose memory it is; -1: the host's. */
static inline int fake_device_of(const void *memory) {
  size_t at = (size_t)((const char *)memory - fake_devices.there);
  return (const char *)memory >= fake_devices.there && at < (size_t)FAKE_DEVICES * FAKE_BYTES
             ? (int)(at / FAKE_BYTES)
             : -1;
}

/* Where the test may touch it. */
static inline void *fake_reach(const void *memory) {
  return fake_device_of(memory) < 0 ? (void *)memory
                                    : fake_devices.here + ((const char *)memory - fake_devices.there);
}

static inline int fake_new(int device, size_t size_bytes, void **out, struct err *err) {
  size_t rounded = (size_bytes + 255) / 256 * 256;
  *out = NULL;
  if (fake_devices.used[device] + rounded > fake_devices.limit[device])
    return err_set(err, ERR_NO_MEMORY, "the fake device is full");
  *out = fake_devices.there + (size_t)device * FAKE_BYTES + fake_devices.used[device];
  fake_devices.used[device] += rounded;
  __atomic_add_fetch(&fake_devices.n_held, 1, __ATOMIC_RELAXED);
  return 0;
}

static inline void fake_free(int device, void *bytes) {
  CHECK(!bytes || fake_device_of(bytes) == device);
  __atomic_sub_fetch(&fake_devices.n_held, bytes != NULL, __ATOMIC_RELAXED);
}

/* A copy, or a sum. */
struct fake_op {
  bool is_sum;
  void *to;
  const void *from;
  size_t n;
};

struct device_stream {
  int device;
  struct fake_op *ops;
  int n, capacity;
};

static inline int fake_open(int device, struct device_stream **out, struct err *err) {
  (void)err;
  *out = mem_new(sizeof **out);
  (*out)->device = device;
  return 0;
}

static inline int fake_wait(struct device_stream *stream, bool *is_finite, struct err *err) {
  (void)err;
  *is_finite = true;
  for (int i = 0; i < stream->n; i++) {
    const struct fake_op *op = &stream->ops[i];
    float *to = fake_reach(op->to);
    const float *from = op->from ? fake_reach(op->from) : NULL;
    if (!op->is_sum)
      memmove(to, from, op->n);
    for (size_t e = 0; op->is_sum && e < op->n; e++) {
      to[e] = from ? from[e] + to[e] : to[e];
      *is_finite &= isfinite(to[e]) != 0;
    }
  }
  stream->n = 0;
  __atomic_add_fetch(&fake_devices.n_waits, 1, __ATOMIC_RELAXED);
  return 0;
}

static inline void fake_close(struct device_stream *stream) {
  bool is_finite;
  struct err err;
  if (!stream)
    return;
  fake_wait(stream, &is_finite, &err);
  free(stream->ops);
  free(stream);
}

static inline void fake_enqueue(struct device_stream *stream, struct fake_op op) {
  array_reserve((void **)&stream->ops, &stream->capacity, stream->n, sizeof *stream->ops);
  stream->ops[stream->n++] = op;
}

static inline int fake_copy(struct device_stream *stream, void *to, const void *from, size_t size_bytes,
                            struct err *err) {
  (void)err;
  fake_enqueue(stream, (struct fake_op){false, to, from, size_bytes});
  return 0;
}

static inline int fake_add(struct device_stream *stream, const struct device_sum *sums, int n,
                           struct err *err) {
  (void)err;
  for (int i = 0; i < n; i++) {
    CHECK(fake_device_of(sums[i].out) == stream->device);
    fake_enqueue(stream, (struct fake_op){true, sums[i].out, sums[i].in, sums[i].elems});
    __atomic_add_fetch(sums[i].in ? &fake_devices.n_sums : &fake_devices.n_looks, 1, __ATOMIC_RELAXED);
  }
  return 0;
}

static const struct device_memory fake_memory = {
    .new = fake_new,
    .free = fake_free,
    .open = fake_open,
    .close = fake_close,
    .copy = fake_copy,
    .add = fake_add,
    .wait = fake_wait,
};

/* Between the execution's caller and ref. */
struct fake_execution {
  const struct backend_run *run;
  int n_values;
};

/* Called with each value before it is delivered, which it may change; and at the end of each execution. */
static void (*fake_on_value)(const struct backend_run *run, int watch, float *data);
static void (*fake_on_end)(const struct backend_run *run);

static inline void fake_take_value(void *user, int watch, const float *data) {
  struct fake_execution *execution = user;
  const struct backend_run *run = execution->run;
  struct backend_piece pieces[64];
  int n = run->place ? run->place(run->user, watch, pieces, 64) : 0;
  if (fake_on_value)
    fake_on_value(run, watch, (float *)data);
  for (int i = 0; i < n; i++)
    memcpy(fake_reach(pieces[i].to), data + pieces[i].begin, pieces[i].elems * sizeof(float));
  run->on_value(run->user, watch, n ? NULL : data);
  if (run->after_values && ++execution->n_values % FAKE_VALUES_AT_ONCE == 0)
    run->after_values(run->user);
}

static inline void fake_before_weight(void *user, int value) {
  const struct backend_run *run = ((struct fake_execution *)user)->run;
  if (run->before_weight)
    run->before_weight(run->user, value);
}

static inline bool fake_is_cancelled(void *user) {
  const struct backend_run *run = ((struct fake_execution *)user)->run;
  return run->is_cancelled && run->is_cancelled(run->user);
}

static inline int fake_run(struct backend_program *program, const struct backend_run *run, struct err *err) {
  struct fake_execution execution = {.run = run};
  struct backend_run own = *run;
  own.on_value = fake_take_value;
  own.before_weight = fake_before_weight;
  own.is_cancelled = fake_is_cancelled;
  own.user = &execution;
  if (!backend_find("ref")->run(program, &own, err) && run->after_values)
    run->after_values(run->user);
  if (fake_on_end)
    fake_on_end(run);
  return err->code;
}

static inline struct backend_def fake_backend(void) {
  struct backend_def def = *backend_find("ref");
  def.name = "fake";
  def.run = fake_run;
  def.memory = &fake_memory;
  return def;
}

#endif
