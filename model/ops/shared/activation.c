/* The activation functions of recurrent ops. */
#include "model/ops/shared/activation.h"

#include <math.h>
#include <stddef.h>
#include <strings.h>

static const struct {
  const char *name;
  struct activation defaults;
  bool uses_alpha, uses_beta;
} activations[] = {
    {"Sigmoid", {.kind = ACTIVATION_SIGMOID}, false, false},
    {"Tanh", {.kind = ACTIVATION_TANH}, false, false},
    {"Relu", {.kind = ACTIVATION_RELU}, false, false},
    {"HardSigmoid", {ACTIVATION_HARD_SIGMOID, 0.2f, 0.5f}, true, true},
    {"Affine", {ACTIVATION_AFFINE, 1.0f, 0.0f}, true, true},
    {"LeakyRelu", {.kind = ACTIVATION_LEAKY_RELU, .alpha = 0.01f}, true, false},
    {"ThresholdedRelu", {.kind = ACTIVATION_THRESHOLDED_RELU, .alpha = 1.0f}, true, false},
    {"ScaledTanh", {ACTIVATION_SCALED_TANH, 1.0f, 1.0f}, true, true},
    {"Elu", {.kind = ACTIVATION_ELU, .alpha = 1.0f}, true, false},
    {"Softsign", {.kind = ACTIVATION_SOFTSIGN}, false, false},
    {"Softplus", {.kind = ACTIVATION_SOFTPLUS}, false, false},
};

bool activation_find(const char *name, struct activation *activation, bool *uses_alpha, bool *uses_beta) {
  for (size_t i = 0; i < sizeof activations / sizeof *activations; i++) {
    if (strcasecmp(activations[i].name, name) != 0)
      continue;
    *activation = activations[i].defaults;
    *uses_alpha = activations[i].uses_alpha;
    *uses_beta = activations[i].uses_beta;
    return true;
  }
  return false;
}

bool activation_is_invertible(const struct activation *activation) {
  return activation->alpha >= 0.0f ||
         (activation->kind != ACTIVATION_LEAKY_RELU && activation->kind != ACTIVATION_ELU);
}

static float softplus_of(float x) {
  return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}

static float unit_clamped(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}

/* v: element i. */
#define FOR_EACH(vector, expression)                                                                         \
  for (int64_t i = 0; i < n; i++) {                                                                          \
    float v = (vector)[i];                                                                                   \
    (vector)[i] = (expression);                                                                              \
  }                                                                                                          \
  break

void activation_apply(const struct activation *activation, float *x, int64_t n) {
  float alpha = activation->alpha, beta = activation->beta;
  switch (activation->kind) {
  case ACTIVATION_SIGMOID:
    FOR_EACH(x, 1.0f / (1.0f + expf(-v)));
  case ACTIVATION_TANH:
    FOR_EACH(x, tanhf(v));
  case ACTIVATION_RELU:
    FOR_EACH(x, v < 0.0f ? 0.0f : v);
  case ACTIVATION_HARD_SIGMOID:
    FOR_EACH(x, unit_clamped(alpha * v + beta, 0.0f, 1.0f));
  case ACTIVATION_AFFINE:
    FOR_EACH(x, alpha * v + beta);
  case ACTIVATION_LEAKY_RELU:
    FOR_EACH(x, v < 0.0f ? alpha * v : v);
  case ACTIVATION_THRESHOLDED_RELU:
    FOR_EACH(x, v > alpha ? v : 0.0f);
  case ACTIVATION_SCALED_TANH:
    FOR_EACH(x, alpha * tanhf(beta * v));
  case ACTIVATION_ELU:
    FOR_EACH(x, v < 0.0f ? alpha * expm1f(v) : v);
  case ACTIVATION_SOFTSIGN:
    FOR_EACH(x, v / (1.0f + fabsf(v)));
  case ACTIVATION_SOFTPLUS:
    FOR_EACH(x, softplus_of(v));
  }
}

static float scaled_tanh_slope(float alpha, float beta, float y) {
  return alpha == 0.0f ? 0.0f : beta * (alpha - y * y / alpha);
}

void activation_derive(const struct activation *activation, const float *y, float *grad, int64_t n) {
  float alpha = activation->alpha, beta = activation->beta;
  switch (activation->kind) {
  case ACTIVATION_SIGMOID:
    FOR_EACH(grad, v * (y[i] * (1.0f - y[i])));
  case ACTIVATION_TANH:
    FOR_EACH(grad, v * (1.0f - y[i] * y[i]));
  case ACTIVATION_RELU:
    FOR_EACH(grad, y[i] > 0.0f ? v : 0.0f);
  case ACTIVATION_HARD_SIGMOID:
    FOR_EACH(grad, y[i] > 0.0f && y[i] < 1.0f ? v * alpha : 0.0f);
  case ACTIVATION_AFFINE:
    FOR_EACH(grad, v * alpha);
  case ACTIVATION_LEAKY_RELU:
    FOR_EACH(grad, y[i] > 0.0f ? v : v * alpha);
  case ACTIVATION_THRESHOLDED_RELU:
    FOR_EACH(grad, y[i] != 0.0f ? v : 0.0f);
  case ACTIVATION_SCALED_TANH:
    FOR_EACH(grad, v * scaled_tanh_slope(alpha, beta, y[i]));
  case ACTIVATION_ELU:
    FOR_EACH(grad, y[i] > 0.0f ? v : v * (y[i] + alpha));
  case ACTIVATION_SOFTSIGN:
    FOR_EACH(grad, v * ((1.0f - fabsf(y[i])) * (1.0f - fabsf(y[i]))));
  case ACTIVATION_SOFTPLUS:
    FOR_EACH(grad, v * -expm1f(-y[i]));
  }
}
