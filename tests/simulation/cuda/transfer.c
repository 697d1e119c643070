/* Copies and fills. A copy from or to pinned memory reads and writes it when the stream comes to it; a
   pageable source is read at once, and a pageable destination is waited for, as the runtime's API
   synchronization rules have it. */
#include "tests/simulation/cuda/simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

struct copy_op {
  struct sim_op op;
  void *to;
  const void *from; /* NULL: bytes of `value` */
  void *staged;     /* what a pageable source held */
  int value;
  size_t size;
};

static atomic_uint_least64_t copies[SIM_DIRECTIONS], copied_bytes[SIM_DIRECTIONS];

uint64_t sim_copied(enum sim_direction direction, uint64_t *size_bytes) {
  *size_bytes = copied_bytes[direction];
  return copies[direction];
}

/* Of a process that asks for it, when it ends. */
__attribute__((destructor)) static void tell_copied(void) {
  static const char *const names[] = {"up", "down", "within"};
  if (sim_setting("WEIR_SIMULATED_TELL", 0))
    for (int d = 0; d < SIM_DIRECTIONS; d++)
      fprintf(stderr, "simulated device: %llu copies %s of %llu bytes\n", (unsigned long long)copies[d],
              names[d], (unsigned long long)copied_bytes[d]);
}

static void count(const struct copy_op *copy) {
  enum sim_direction direction = !sim_is_any_device(copy->from) ? SIM_UP
                                 : !sim_is_any_device(copy->to) ? SIM_DOWN
                                                                : SIM_WITHIN;
  copies[direction]++;
  copied_bytes[direction] += copy->size;
}

static enum sim_progress copy_run(struct sim_op *op, void **state, int device) {
  struct copy_op *copy = (struct copy_op *)op;
  (void)state, (void)device;
  if (copy->from)
    count(copy);
  if (copy->from)
    memmove(copy->to, copy->from, copy->size);
  else
    memset(copy->to, copy->value, copy->size);
  return SIM_DONE;
}

static void copy_fini(struct sim_op *op) {
  free(((struct copy_op *)op)->staged);
}

static struct copy_op *copy_new(void *to, const void *from, size_t size, const char *name) {
  struct copy_op *copy = sim_op_new(sizeof *copy, name, copy_run);
  copy->op.is_work = true;
  copy->op.fini = copy_fini;
  copy->to = to;
  copy->from = from;
  copy->size = size;
  return copy;
}

/* Whether an end of a copy is what its kind says. */
static bool is_end(const void *at, size_t size, bool is_device) {
  return is_device ? sim_is_device(at, size) : at && !sim_is_any_device(at);
}

static cudaError_t check_ends(const void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
  bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind == cudaMemcpyDefault) {
    to_device = sim_is_any_device(to);
    from_device = sim_is_any_device(from);
  } else if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
    return cudaErrorInvalidMemcpyDirection;
  }
  if (is_end(to, size, to_device) && is_end(from, size, from_device)) {
    if (!sim_is_partly_pinned(to, size) && !sim_is_partly_pinned(from, size))
      return cudaSuccess;
    sim_complain("copy of %zu bytes from %p to %p: an end is pinned in part", size, from, to);
    return cudaErrorInvalidValue;
  }
  sim_complain("copy of %zu bytes from %p to %p: an end is not memory of the kind %d", size, from, to,
               (int)kind);
  return cudaErrorInvalidValue;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  cudaError_t error;
  bool is_pageable_from, is_pageable_to;
  struct copy_op *copy;
  stream = sim_stream_of(stream);
  if (size == 0)
    return sim_return(sim_device_error(stream->device));
  error = check_ends(to, from, size, kind);
  if (error)
    return sim_return(error);
  is_pageable_from = !sim_is_any_device(from) && !sim_is_pinned(from, size);
  is_pageable_to = !sim_is_any_device(to) && !sim_is_pinned(to, size);
  if (stream->capture && (is_pageable_from || is_pageable_to))
    return sim_return(sim_capture_spoil(stream->capture, cudaErrorStreamCaptureUnsupported));
  copy = copy_new(to, from, size, "copy");
  if (is_pageable_from) {
    copy->staged = malloc(size);
    if (!copy->staged) {
      sim_op_put(&copy->op);
      return sim_return(cudaErrorMemoryAllocation);
    }
    copy->from = memcpy(copy->staged, from, size);
  }
  error = sim_enqueue(stream, &copy->op);
  if (!error && is_pageable_to) {
    sim_run_stream(stream);
    error = sim_device_error(stream->device);
  }
  return sim_return(error);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
  cudaError_t error = sim_capture_forbids();
  if (error)
    return sim_return(error);
  error = cudaMemcpyAsync(to, from, size, kind, NULL);
  return error ? error : cudaStreamSynchronize(NULL);
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t size, cudaStream_t stream) {
  struct copy_op *fill;
  stream = sim_stream_of(stream);
  if (size == 0)
    return sim_return(sim_device_error(stream->device));
  if (!sim_is_device(at, size) && !sim_is_pinned(at, size)) {
    sim_complain("fill of %zu bytes at %p: that is not device memory", size, at);
    return sim_return(cudaErrorInvalidValue);
  }
  fill = copy_new(at, NULL, size, "fill");
  fill->value = value;
  return sim_return(sim_enqueue(stream, &fill->op));
}
