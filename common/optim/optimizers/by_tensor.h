/* Helpers of optimizers that take norms of a whole tensor: such an optimizer has one phase, or a last phase,
   with so many sums of squares. */
#ifndef WEIR_COMMON_OPTIM_OPTIMIZERS_BY_TENSOR_H
#define WEIR_COMMON_OPTIM_OPTIMIZERS_BY_TENSOR_H

#include "common/optim/optimizers/elementwise.h"
#include "common/optim/piece.h"
#include "common/optim/vector.h"

/* Two values: the sums of squares of the weights and of what the row divides them by. */
static inline uint32_t two_norms(uint32_t phase, const struct piece *piece,
                                 struct optimizer_window windows[OPTIMIZER_WINDOWS_MAX]) {
  (void)phase;
  (void)piece;
  windows[0] = (struct optimizer_window){0, 2};
  return 1;
}

#endif
