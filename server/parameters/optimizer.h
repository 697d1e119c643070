/* Optimizers: rows of optimizer.def. An optimizer turns weights and the gradient of one step into the next
   weights. Names of options, meanings and order of operations are those of PyTorch's torch.optim; arithmetic
   is f32. */
#ifndef WEIR_SERVER_PARAMETERS_OPTIMIZER_H
#define WEIR_SERVER_PARAMETERS_OPTIMIZER_H

#include <stdint.h>

#include "common/options.h"
#include "spec.pb-c.h"

/* One update of one block. Nothing aliases, but next_slots and slots, which are the same memory but where a
   checkpoint still refers to the slots: an element is written after it was read. */
struct optimizer_update {
  uint64_t step; /* from 0 */
  double lr;
  uint32_t elems;
  const float *weights; /* f32[elems] of version step */
  const float *grad;    /* f32[elems] */
  float *out;           /* f32[elems] of version step + 1 */
  const float *slots;   /* f32[slots][elems] of version step; before step 0 as init_slots says */
  float *next_slots;    /* f32[slots][elems] of version step + 1 */
};

/* What rows are given is settled: every option of the row is there. */
struct optimizer_def {
  const char *name;
  const struct option_rule *options; /* besides lr */
  /* What ranges do not say; NULL: nothing. path: the spec's own. Errors: INVALID naming the key by its path.
   */
  int (*check)(const Weir__OptimizerSpec *spec, const char *path, struct err *err);
  uint32_t (*slots)(const Weir__OptimizerSpec *spec); /* f32 values kept for each weight */
  /* What slots hold before step 0, f32[slots][elems]; NULL: zeros. */
  void (*init_slots)(const Weir__OptimizerSpec *spec, uint32_t elems, float *slots);
  void (*update)(const Weir__OptimizerSpec *spec, const struct optimizer_update *update);
};

const struct optimizer_def *optimizer_find(const char *name); /* NULL if unknown */

/* The optimizers, in the table's order. */
const struct optimizer_def *const *optimizer_table(size_t *n);

/* Checks a spec on the heap against its row and gives it the row's defaults, and to each of its groups all
   that the group does not say itself. Errors: INVALID, naming the key by its path ("train.optimizer.lr"); for
   an unknown name with those known. */
int optimizer_settle(Weir__OptimizerSpec *spec, struct err *err);

/* The options of a group of the model (struct block) in a settled spec. */
const Weir__OptimizerSpec *optimizer_group(const Weir__OptimizerSpec *spec, uint32_t group);

#endif
