/* What a Compress picks. */
#ifndef WEIR_MODEL_OPS_COMPRESS_H
#define WEIR_MODEL_OPS_COMPRESS_H

#include "model/graph/op.h"

/* The data is [outer, n, inner], and condition[0..length) picks `count` among n. */
struct compress {
  int axis; /* -1: of the flat tensor */
  int64_t outer, n, inner, length, count;
  const uint8_t *condition;
};

/* Errors: INVALID, UNSUPPORTED for a condition that is not known. */
int compress_read(const struct graph *graph, const struct node *node, struct compress *compress,
                  struct err *err);

#endif
