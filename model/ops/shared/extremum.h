/* Min and Max: the least or greatest of any number of tensors with broadcasting. */
#ifndef WEIR_MODEL_OPS_SHARED_EXTREMUM_H
#define WEIR_MODEL_OPS_SHARED_EXTREMUM_H

#include "model/ops/shared/elementwise.h"

/* Defines `int function(call, err)`. is_better(x, y) keeps x, of the inputs before, rather than y, of the
   next; what is not a number wins, as for PyTorch and numpy. */
#define EXTREMUM_LOOP(function, type, is_better)                                                             \
  BINARY_LOOP(function##_of_two, type, is_better || x != x ? x : y)                                          \
  static int function(const struct op_call *call, struct err *err) {                                         \
    struct tensor *out = &call->out[0], operands[2] = {call->in[0], call->in[0]};                            \
    struct op_call pair = *call;                                                                             \
    pair.in = operands;                                                                                      \
    for (int i = call->node->n_inputs > 1; i < call->node->n_inputs; i++) {                                  \
      operands[1] = call->in[i];                                                                             \
      function##_of_two(&pair, err);                                                                         \
      operands[0] = *out;                                                                                    \
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
extern const struct op_case extremum_cases[];

#endif
