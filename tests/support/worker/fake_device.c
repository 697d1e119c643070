#include "tests/support/worker/fake_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/agree/sum.h"
#include "common/base/memory.h"

struct fake_devices fake_devices;

void fake_devices_init(void) {
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

int fake_device_of(const void *memory) {
  size_t at = (size_t)((const char *)memory - fake_devices.there);
  return (const char *)memory >= fake_devices.there && at < (size_t)FAKE_DEVICES * FAKE_BYTES
             ? (int)(at / FAKE_BYTES)
             : -1;
}

void *fake_reach(const void *memory) {
  return fake_device_of(memory) < 0 ? (void *)memory
                                    : fake_devices.here + ((const char *)memory - fake_devices.there);
}

static int fake_new(int device, size_t size_bytes, void **out, struct err *err) {
  size_t rounded = (size_bytes + 255) / 256 * 256;
  *out = NULL;
  if (fake_devices.used[device] + rounded > fake_devices.limit[device])
    return err_set(err, ERR_NO_MEMORY, "the fake device is full");
  *out = fake_devices.there + (size_t)device * FAKE_BYTES + fake_devices.used[device];
  fake_devices.used[device] += rounded;
  __atomic_add_fetch(&fake_devices.n_held, 1, __ATOMIC_RELAXED);
  return 0;
}

static void fake_free(int device, void *bytes) {
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

static int fake_open(int device, struct device_stream **out, struct err *err) {
  (void)err;
  *out = mem_new(sizeof **out);
  (*out)->device = device;
  return 0;
}

static int fake_wait(struct device_stream *stream, bool *is_finite, struct err *err) {
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

static void fake_close(struct device_stream *stream) {
  bool is_finite;
  struct err err;
  if (!stream)
    return;
  fake_wait(stream, &is_finite, &err);
  free(stream->ops);
  free(stream);
}

static void fake_enqueue(struct device_stream *stream, struct fake_op op) {
  array_reserve((void **)&stream->ops, &stream->capacity, stream->n, sizeof *stream->ops);
  stream->ops[stream->n++] = op;
}

static int fake_copy(struct device_stream *stream, void *to, const void *from, size_t size_bytes,
                     struct err *err) {
  (void)err;
  fake_enqueue(stream, (struct fake_op){false, to, from, size_bytes});
  return 0;
}

static int fake_add(struct device_stream *stream, const struct device_sum *sums, int n, struct err *err) {
  (void)err;
  for (int i = 0; i < n; i++) {
    CHECK(fake_device_of(sums[i].out) == stream->device);
    fake_enqueue(stream, (struct fake_op){true, sums[i].out, sums[i].in, sums[i].elems});
    __atomic_add_fetch(sums[i].in ? &fake_devices.n_sums : &fake_devices.n_looks, 1, __ATOMIC_RELAXED);
  }
  return 0;
}

const struct device_memory fake_memory = {
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

static void fake_take_value(void *user, int watch, const float *data) {
  struct fake_execution *execution = user;
  const struct backend_run *run = execution->run;
  struct backend_piece pieces[64];
  int n = run->place ? run->place(run->user, watch, pieces, 64) : 0;
  bool is_finite = true;
  if (fake_devices.on_value)
    fake_devices.on_value(run, watch, (float *)data);
  for (int i = 0; i < n; i++) {
    memcpy(fake_reach(pieces[i].to), data + pieces[i].begin, pieces[i].elems * sizeof(float));
    is_finite &= sum_is_finite(data + pieces[i].begin, pieces[i].elems);
  }
  if (n)
    run->placed(run->user, watch, is_finite);
  else
    run->on_value(run->user, watch, data);
  if (run->after_values && ++execution->n_values % FAKE_VALUES_AT_ONCE == 0)
    run->after_values(run->user);
}

static void fake_before_weight(void *user, int value) {
  const struct backend_run *run = ((struct fake_execution *)user)->run;
  if (run->before_weight)
    run->before_weight(run->user, value);
}

static bool fake_is_cancelled(void *user) {
  const struct backend_run *run = ((struct fake_execution *)user)->run;
  return run->is_cancelled && run->is_cancelled(run->user);
}

int fake_run(struct backend_program *program, const struct backend_run *run, struct err *err) {
  struct fake_execution execution = {.run = run};
  struct backend_run own = *run;
  own.on_value = fake_take_value;
  own.before_weight = fake_before_weight;
  own.is_cancelled = fake_is_cancelled;
  own.user = &execution;
  if (!backend_find("ref")->run(program, &own, err) && run->after_values)
    run->after_values(run->user);
  if (fake_devices.on_end)
    fake_devices.on_end(run);
  return err->code;
}

struct backend_def fake_backend(void) {
  struct backend_def def = *backend_find("ref");
  def.name = "fake";
  def.run = fake_run;
  def.memory = &fake_memory;
  return def;
}
