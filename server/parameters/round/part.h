/* A part as it arrives: the values of one node of the reduction tree, or of one row. */
#ifndef WEIR_SERVER_PARAMETERS_ROUND_PART_H
#define WEIR_SERVER_PARAMETERS_ROUND_PART_H

#include "common/agree/tree.h"
#include "common/rpc/rpc.h"
#include "common/share/shared.h"

struct part {
  uint64_t step; /* the version that it was computed from */
  struct tree_node node;
  bool is_evaluation; /* the row of eval chunk node.first */
  /* f32[elems], or what the run's compressor makes of it (common/compress/compression.h): */
  const struct rpc_bytes *bytes;     /* as received */
  const struct shared_bytes *shared; /* in its worker's memory, where bytes is NULL */
  const void *values;                /* in memory, where both are NULL */
  uint32_t worker;                   /* who pushed it: N of worker-N; 0: a client that is no worker */
  uint64_t view;                     /* by which that worker computed it */
};

/* Copies the part, which has so many bytes: the one copy of a gradient on its way into the weights. Nothing
   is to be said of them before that. Errors: STALE where its worker has given them up meanwhile. */
int part_read(const struct part *part, size_t size_bytes, void *out, struct err *err);

/* Errors: INVALID, naming the first of the values that is not finite. */
int part_check(const float *values, uint32_t elems, struct err *err);

#endif
