/* What a fresh tensor holds: the distributions that frameworks initialise layers with. */
#ifndef WEIR_MODEL_ONNX_INITIAL_VALUES_H
#define WEIR_MODEL_ONNX_INITIAL_VALUES_H

#include <stdint.h>

/* By PyTorch's names of torch.nn.init. */
enum initial_kind {
  INITIAL_CONSTANT, /* a */
  INITIAL_UNIFORM,  /* in (-a, a) */
  INITIAL_NORMAL,   /* of mean 0 and standard deviation a */
  INITIAL_TRUNCATED /* likewise, within -2 and 2 (trunc_normal_'s bounds, which are not multiples of a) */
};

struct initial_values {
  enum initial_kind kind;
  double a;
};

static inline struct initial_values initial_constant(double value) {
  return (struct initial_values){INITIAL_CONSTANT, value};
}
static inline struct initial_values initial_uniform(double bound) {
  return (struct initial_values){INITIAL_UNIFORM, bound};
}
static inline struct initial_values initial_normal(double deviation) {
  return (struct initial_values){INITIAL_NORMAL, deviation};
}
static inline struct initial_values initial_truncated(double deviation) {
  return (struct initial_values){INITIAL_TRUNCATED, deviation};
}

/* xavier_uniform_ of a linear layer. Glorot and Bengio, 2010, equation 16. */
struct initial_values initial_xavier(int64_t fan_in, int64_t fan_out);
/* kaiming_normal_ with mode fan_out, for ReLU. He et al., 2015, equation 14. */
struct initial_values initial_kaiming(int64_t fan_out);
/* What torch.nn's linear and convolutional layers are born with, weights and biases. */
struct initial_values initial_usual(int64_t fan_in);

/* Writes values 0 to elems - 1 of the key's stream (common/agree/random.h). */
void initial_fill(struct initial_values values, uint64_t key, float *out, int64_t elems);

#endif
