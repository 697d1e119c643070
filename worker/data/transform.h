/* Transforms of f32 samples: rows of transform.def, in the order of the fields of the message Transform. */
#ifndef WEIR_WORKER_DATA_TRANSFORM_H
#define WEIR_WORKER_DATA_TRANSFORM_H

#include "common/err.h"
#include "spec.pb-c.h"

#include <stdint.h>

struct transform_def {
  const char *name;
  /* Errors: INVALID when it cannot be applied to samples of that many channels. */
  int (*check)(const Weir__Transform *transform, int64_t channels, struct err *err);
  /* In place: x f32[channels, elems / channels]. */
  void (*apply)(const Weir__Transform *transform, float *x, int64_t elems, int64_t channels);
};

/* The one that the entry names; spec_check has seen to it that there is exactly one. */
const struct transform_def *transform_of(const Weir__Transform *transform);

#endif
