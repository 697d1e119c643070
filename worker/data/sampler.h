/* Samplers: which sample comes at each place of the run's stream. Rows of sampler.def. Every place is found
   by itself, from seed and counters, so that any worker finds the same. */
#ifndef WEIR_WORKER_DATA_SAMPLER_H
#define WEIR_WORKER_DATA_SAMPLER_H

#include "common/agree/plan.h"
#include "model/losses/labels.h"
#include "worker/data/column.h"

struct sampler_labels {
  const struct column *column; /* of the train dataset; NULL: the model has no labels */
  const struct label_rule *rule;
};

struct sampler_def {
  const char *name;
  /* Makes what draw needs. NULL: nothing. Errors: INVALID when such labels do not do, NO_MEMORY. */
  int (*prepare)(const struct plan *plan, const struct sampler_labels *labels, void **state, struct err *err);
  /* The sample, of the plan's train samples, at place `index` of an epoch. Any thread. */
  uint64_t (*draw)(const struct plan *plan, const void *state, uint64_t epoch, uint64_t index);
  void (*release)(void *state); /* NULL where prepare is */
};

struct sampler;

/* The row that data names; by default that of data->shuffle. plan outlives the sampler. Errors: INVALID
   naming data.sampler; those of prepare. */
int sampler_new(const Weir__DataSpec *data, const struct plan *plan, const struct sampler_labels *labels,
                struct sampler **out, struct err *err);
void sampler_free(struct sampler *sampler); /* NULL is ignored */

/* The dataset index of sample `position` (0 .. batch-1) of a step. */
uint64_t sampler_at(const struct sampler *sampler, uint64_t step, uint32_t position);

#endif
