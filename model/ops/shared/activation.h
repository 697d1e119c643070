/* The activation functions that LSTM, GRU and RNN nodes name, on vectors in place. */
#ifndef WEIR_MODEL_OPS_SHARED_ACTIVATION_H
#define WEIR_MODEL_OPS_SHARED_ACTIVATION_H

#include <stdbool.h>
#include <stdint.h>

enum activation_kind {
  ACTIVATION_SIGMOID,
  ACTIVATION_TANH,
  ACTIVATION_RELU,
  ACTIVATION_HARD_SIGMOID,
  ACTIVATION_AFFINE,
  ACTIVATION_LEAKY_RELU,
  ACTIVATION_THRESHOLDED_RELU,
  ACTIVATION_SCALED_TANH,
  ACTIVATION_ELU,
  ACTIVATION_SOFTSIGN,
  ACTIVATION_SOFTPLUS,
};

struct activation {
  enum activation_kind kind;
  float alpha, beta;
};

/* By ONNX's name, in any case, with ONNX's default parameters; false if there is no such function.
   uses_alpha, uses_beta: whether it takes them from a node's lists. */
bool activation_find(const char *name, struct activation *activation, bool *uses_alpha, bool *uses_beta);

/* x = f(x), n elements. */
void activation_apply(const struct activation *activation, float *x, int64_t n);

/* grad *= f'(x), from the results y = f(x). Needs activation_is_invertible. */
void activation_derive(const struct activation *activation, const float *y, float *grad, int64_t n);

/* Whether a result tells the slope: not where a negative alpha folds the function. */
bool activation_is_invertible(const struct activation *activation);

#endif
