/* Whether a run fits into this machine's memory, before it is tried. */
#ifndef WEIR_WORKER_TRAIN_LOAD_MEMORY_H
#define WEIR_WORKER_TRAIN_LOAD_MEMORY_H

#include "common/graph/model.h"
#include "common/plan.h"

struct load_memory {
  struct model_memory model;
  int executors;
  bool has_eval;
  uint64_t batch, microbatch_samples;
  uint64_t available_bytes;
};

/* Errors: NO_MEMORY, with what is needed, what is there, and the microbatch that would fit. */
int load_memory_check(const struct load_memory *memory, struct err *err);

#endif
