/* Element-wise functions in vector loops of our own: those that oneDNN has not, or whose NaN it loses. */
#include <float.h>

#include "model/ops/shared/elementwise.h"
#include "worker/backend/cpu/cpu.h"
#include "worker/backend/cpu/exp.h"

/* e^x by the square of e^(x / 2), which overflows and underflows where e^x does; keeps NaN. */
static inline float exp_of(float x) {
  float root = exp_vector(0.5f * x);
  return root * root;
}

/* x P(x^2) / Q(x^2), fitted for the least relative error on [0, 3.925], beyond which erf rounds to 1: within
   4e-7 of erf. */
static inline float erf_of(float x) {
  float limited = x < -3.925f ? -3.925f : x > 3.925f ? 3.925f : x, u = limited * limited;
  float p = 2.04602384e-6f, q = 3.80475976e-5f;
  p = p * u + 2.84840877e-4f;
  p = p * u + 3.77248065e-3f;
  p = p * u + 5.27690761e-2f;
  p = p * u + 1.90592304e-1f;
  p = p * u + 1.12837911f;
  q = q * u + 1.16383890e-3f;
  q = q * u + 1.49830589e-2f;
  q = q * u + 1.14182092e-1f;
  q = q * u + 5.02240777e-1f;
  q = q * u + 1.0f;
  p = limited * p / q;
  return x < -3.925f ? -1.0f : x > 3.925f ? 1.0f : p;
}

/* x = 2^n m with m in [sqrt(1/2), sqrt(2)); log(m) = 2 atanh(s) by its series in s = (m - 1) / (m + 1):
   within 3 units in the last place. */
static inline float log_of(float x) {
  const int32_t sqrt_half = 0x3f3504f3, one = 0x3f800000;
  int32_t bits, n;
  float m, s, z, edge, series = 0.222222222f;
  memcpy(&bits, &x, sizeof bits);
  bits += one - sqrt_half;
  n = (bits >> 23) - 127;
  bits = (bits & 0x7fffff) + sqrt_half;
  memcpy(&m, &bits, sizeof m);
  s = (m - 1.0f) / (m + 1.0f);
  z = s * s;
  series = series * z + 0.285714286f;
  series = series * z + 0.4f;
  series = series * z + 0.666666667f;
  m = ((float)n * 1.42860677e-6f + s * z * series) + 2.0f * s + (float)n * 0.693145752f;
  edge = x == 0.0f ? -INFINITY : x > 0.0f ? 0.0f : NAN;
  return m + (x > FLT_MAX ? INFINITY : edge); /* a sum, for a choice would not become vector instructions */
}

/* Defines the row cpu_SYMBOL of kernel.def, of a kernel SYMBOL_call. */
#define POINTWISE_ROW(symbol, op_type)                                                                       \
  static bool symbol##_prepare(struct backend_program *program, const struct node *node) {                   \
    cpu_call(program, node, symbol##_call);                                                                  \
    return true;                                                                                             \
  }                                                                                                          \
  const struct cpu_kernel cpu_##symbol = {op_type, symbol##_prepare};

/* With its kernel: Y = expression(x); dX = expression(dy, v), where v is x or y. */
#define UNARY_ROW(symbol, op_type, expression)                                                               \
  VECTOR_VARIANTS UNARY_REF(symbol##_call, expression) POINTWISE_ROW(symbol, op_type)
#define GRAD_ROW(symbol, op_type, expression)                                                                \
  VECTOR_VARIANTS UNARY_GRAD_REF(symbol##_call, NO_PARAMS, expression) POINTWISE_ROW(symbol, op_type)

UNARY_ROW(erf, "Erf", erf_of(x))
GRAD_ROW(erf_grad, "ErfGrad", 1.12837917f * exp_vector(-v * v) * dy)
UNARY_ROW(exp, "Exp", exp_of(x))
UNARY_ROW(log, "Log", log_of(x))
