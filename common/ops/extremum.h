/* Min and Max: the least or greatest of any number of tensors with broadcasting. */
#ifndef WEIR_COMMON_OPS_EXTREMUM_H
#define WEIR_COMMON_OPS_EXTREMUM_H

#include "common/ops/elementwise.h"

/* Defines `int function(call, err)` for all types. is_better(x, y) keeps x of the inputs before rather than y
   of the next; what is not a number wins, as for PyTorch and numpy. */
#define EXTREMUM_LOOP(function, type, is_better)                                                             \
  static int function(const struct op_call *call, struct err *err) {                                         \
    struct broadcast walk;                                                                                   \
    (void)err;                                                                                               \
    for (int i = 0; i < call->node->n_inputs; i++) {                                                         \
      const type *in = call->in[i].data;                                                                     \
      type *out = call->out[0].data;                                                                         \
      broadcast_init(&walk, &call->out[0].shape, &call->in[i].shape, NULL);                                  \
      for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), out += walk.run)                        \
        ELEMENTWISE_FOR (j, walk.run) {                                                                      \
          type y = in[walk.at[0] + j * walk.step[0]], x = i == 0 ? y : out[j];                               \
          out[j] = is_better || x != x ? x : y;                                                              \
        }                                                                                                    \
    }                                                                                                        \
    return ERR_OK;                                                                                           \
  }

#define EXTREMUM_REF(function, is_better)                                                                    \
  EXTREMUM_LOOP(function##_f32, float, is_better)                                                            \
  EXTREMUM_LOOP(function##_integer_i32, int32_t, is_better)                                                  \
  EXTREMUM_LOOP(function##_integer_i64, int64_t, is_better)                                                  \
  EXTREMUM_LOOP(function##_integer_u8, uint8_t, is_better)                                                   \
  INTEGER_DISPATCH(function##_integer)                                                                       \
  TYPE_DISPATCH(function)

/* The backward of both: an output's gradient goes to the inputs that equal it, in equal parts. */
int extremum_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err);

extern const struct op_def *const extremum_gradients[]; /* for one of the rows: an op is listed once */

#endif
