/* Memory of devices, for the code that moves and adds the inputs and outputs of their programs: weights on
   their way in, gradients on their way out. */
#ifndef WEIR_WORKER_BACKEND_DEVICE_MEMORY_H
#define WEIR_WORKER_BACKEND_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"

/* Operations on one device, done in the order in which they were enqueued. One thread at a time. */
struct device_stream;

/* out[i] = in[i] + out[i], f32. out is on the stream's device; in on any device, or pinned. in NULL: out is
   only looked at. */
struct device_sum {
  float *out;
  const float *in;
  size_t elems;
};

/* Errors of all: LOST_DEVICE; NO_MEMORY where memory is made. */
struct device_memory {
  int (*new)(int device, size_t size_bytes, void **out, struct err *err); /* not set */
  void (*free)(int device, void *bytes); /* nothing that was enqueued uses it; NULL is ignored */
  int (*open)(int device, struct device_stream **out, struct err *err);
  void (*close)(struct device_stream *stream); /* waits for what was enqueued; NULL is ignored */
  /* Enqueues: from and to are on any device, or pinned; the caller's until wait. */
  int (*copy)(struct device_stream *stream, void *to, const void *from, size_t size_bytes, struct err *err);
  /* Enqueues n sums, whose ranges do not overlap: they go on side by side. The list is the callee's copy. */
  int (*add)(struct device_stream *stream, const struct device_sum *sums, int n, struct err *err);
  /* Blocks until all is done. *is_finite: no element that was written or looked at by add since the last wait
     was Inf or NaN. */
  int (*wait)(struct device_stream *stream, bool *is_finite, struct err *err);
};

#endif
