/* Optimizers: rows of optimizer.def. An optimizer turns weights and the gradient of one step into the next
   weights. Names of options, meanings and order of operations are those of PyTorch's torch.optim; arithmetic
   is f32. */
#ifndef WEIR_SERVER_PARAMETERS_OPTIMIZER_H
#define WEIR_SERVER_PARAMETERS_OPTIMIZER_H

#include <stdint.h>

#include "common/err.h"
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
  const float *slots;   /* f32[slots][elems] of version step; zeros before step 0 */
  float *next_slots;    /* f32[slots][elems] of version step + 1 */
};

struct optimizer_def {
  const char *name;
  /* The row's own options. Errors: INVALID naming the key by its path. */
  int (*check)(const Weir__OptimizerSpec *spec, struct err *err);
  uint32_t (*slots)(const Weir__OptimizerSpec *spec); /* f32 values kept for each weight */
  void (*update)(const Weir__OptimizerSpec *spec, const struct optimizer_update *update);
};

const struct optimizer_def *optimizer_find(const char *name); /* NULL if unknown */

/* The name is known and the row accepts its options. Errors: INVALID, for an unknown name with those known.
 */
int optimizer_check(const Weir__OptimizerSpec *spec, struct err *err);

#endif
