/* The check that a run fits into this machine's memory, or a GPU's, before it is tried. */
#ifndef WEIR_WORKER_TRAIN_RUN_LOAD_MEMORY_H
#define WEIR_WORKER_TRAIN_RUN_LOAD_MEMORY_H

#include "common/agree/plan.h"
#include "model/model.h"

struct load_memory {
  struct model_memory model;
  const char *device; /* whose memory it is: "cuda:0"; NULL: this machine's */
  int executors;      /* that compute in it: one on a GPU; 0: only weights and sums are kept */
  bool has_eval;
  uint32_t versions; /* of the weights, by the mode: in host memory; those that a group keeps on the device */
  uint64_t state_bytes; /* what an optimizer keeps here, and residuals of gradients */
  uint64_t batch, microbatch_samples;
  uint64_t available_bytes; /* of a GPU: all that it has */
};

uint64_t load_memory_needed(const struct load_memory *memory); /* bytes */

/* Errors: NO_MEMORY, with what is needed, what is there, and the microbatch that would fit. */
int load_memory_check(const struct load_memory *memory, struct err *err);

/* Appends the microbatch that would fit, a smaller one in any case, to an error that is set. Returns its
 * code.
 */
int load_memory_advise(const struct load_memory *memory, struct err *err);

/* What is free on this machine for programs, once the model is open, of what is available: sums of gradients
   and what is on its way come later. UINT64_MAX where nothing says. */
uint64_t load_memory_free(const struct model *model, uint64_t available_bytes);

#endif
