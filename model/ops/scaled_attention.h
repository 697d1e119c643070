/* The geometry of ScaledAttention, for its kernels. */
#ifndef WEIR_MODEL_OPS_SCALED_ATTENTION_H
#define WEIR_MODEL_OPS_SCALED_ATTENTION_H

#include "model/graph/op.h"

/* `stack` times: query [t, d], key [d, s], value [s, e], scores [t, s]. */
struct scaled_attention {
  int64_t stack, t, s, d, e;
  double scale;
  struct shape scores; /* [..., t, s] */
  struct shape mask;   /* broadcasts to scores; a scalar where there is none */
};

/* From a ScaledAttention, whose inputs are query, key, value and perhaps a mask; or with is_grad from a
   ScaledAttentionGrad, where dy stands before query, key and value, and the mask is input 6. Errors: INVALID.
 */
int scaled_attention_init(struct scaled_attention *a, const struct graph *graph, const struct node *node,
                          bool is_grad, struct err *err);

/* Element (i, j) of the mask of matrix `index` is mask[scaled_attention_mask_at(a, index) + i * row + j *
   column]. */
int64_t scaled_attention_mask_at(const struct scaled_attention *a, int64_t index);
void scaled_attention_mask_strides(const struct scaled_attention *a, int64_t *row, int64_t *column);

#endif
