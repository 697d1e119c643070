/* What SoftCrossEntropy's kernels share: rows of scores and of their labels' probabilities. */
#ifndef WEIR_MODEL_OPS_SOFT_CROSS_ENTROPY_H
#define WEIR_MODEL_OPS_SOFT_CROSS_ENTROPY_H

#include "model/ops/shared/class_rows.h"

struct soft_rows {
  struct class_axis axis;
  double smoothing, spread; /* spread: smoothing / classes */
  const float *weights;     /* f32[classes]; NULL: 1 each */
};

/* inputs: scores, labels, and weights, whose data may be NULL. Errors: INVALID for the axis. */
int soft_rows_init(struct soft_rows *rows, const struct node *node, const struct tensor inputs[3],
                   struct err *err);

/* What the class is to have of the row's loss. */
static inline double soft_target(const struct soft_rows *rows, float label, int64_t class) {
  double target = (1 - rows->smoothing) * (double)label + rows->spread;
  return rows->weights ? target * (double)rows->weights[class] : target;
}

#endif
