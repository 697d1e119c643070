/* The instructions of chains of reals: a function of an element for each. */
#ifndef WEIR_WORKER_BACKEND_CUDA_POINTWISE_REAL_CUH
#define WEIR_WORKER_BACKEND_CUDA_POINTWISE_REAL_CUH

#include <math.h>

#include "worker/backend/cuda/pointwise/pointwise.h"

/* A GPU's own instructions: off by some units in the last place; subnormals count as 0. */
static __device__ inline float quick_reciprocal(float x) {
#ifdef __CUDA_ARCH__
  asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
#else
  return 1.0f / x;
#endif
}

static __device__ inline float quick_exp2(float x) {
#ifdef __CUDA_ARCH__
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
#else
  return exp2f(x);
#endif
}

static __device__ inline float unit_clamped(float x) {
  x = x < 0.0f ? 0.0f : x;
  return x > 1.0f ? 1.0f : x;
}

static __device__ inline float sigmoid_of(float x) {
  return quick_reciprocal(1.0f + expf(-x));
}

static __device__ inline float swish_slope(float x, float alpha) {
  float gate = sigmoid_of(alpha * x);
  return gate + alpha * x * gate * (1.0f - gate);
}

struct normal {
  float density, probability;
};

/* The density of the standard normal distribution at x, and the probability of less (Abramowitz and Stegun,
   26.2.17: off by at most 7.5e-8). One exponential gives both. */
static __device__ inline struct normal normal_of(float x) {
  float t = quick_reciprocal(1.0f + 0.2316419f * fabsf(x));
  float polynomial = -1.821255978f + t * 1.330274429f;
  struct normal normal;
  polynomial = 1.781477937f + t * polynomial;
  polynomial = -0.356563782f + t * polynomial;
  polynomial = 0.319381530f + t * polynomial;
  normal.density = 0.39894228f * quick_exp2(-0.72134752f * x * x);
  normal.probability = normal.density * t * polynomial;
  if (x >= 0.0f)
    normal.probability = 1.0f - normal.probability;
  return normal;
}

static __device__ inline float gelu_slope(float x) {
  struct normal normal = normal_of(x);
  return normal.probability + x * normal.density;
}

/* (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2 as 1 / (1 + 2^-...). */
static __device__ inline float gelu_approximation(float x) {
  return quick_reciprocal(1.0f + quick_exp2(x * (-2.3022082f - 0.10294324f * x * x)));
}

static __device__ inline float gelu_approximate_slope(float x) {
  float p = gelu_approximation(x), inner = 0.79788456f * (1.0f + 3.0f * 0.044715f * x * x);
  return p + 2.0f * x * p * (1.0f - p) * inner;
}

/* tanh(log(1 + e^x)) without overflow, as the reference kernel of Mish has it. */
static __device__ inline float mish_gate(float x) {
  float e = expf(-fabsf(x)), n = x > 0.0f ? 1.0f + 2.0f * e : e * (e + 2.0f);
  return n / (n + (x > 0.0f ? 2.0f * e * e : 2.0f));
}

static __device__ inline float mish_slope(float x) {
  float t = mish_gate(x);
  return t + x * ((1.0f - t) * (1.0f + t) / (1.0f + expf(-x)));
}

/* Long functions that models hardly have, as calls: they would take the place of the others' instructions,
   and most of the compiler's time. */
#define RARE(name)                                                                                           \
  static __device__ __attribute__((noinline)) float rare_##name(float x) {                                   \
    return name##f(x);                                                                                       \
  }
#define RARE_OF_TWO(name)                                                                                    \
  static __device__ __attribute__((noinline)) float rare_##name(float x, float y) {                          \
    return name##f(x, y);                                                                                    \
  }
RARE(acos)
RARE(acosh)
RARE(asin)
RARE(asinh)
RARE(atan)
RARE(atanh)
RARE(cos)
RARE(cosh)
RARE(sin)
RARE(sinh)
RARE(tan)
RARE_OF_TWO(fmod)
RARE_OF_TWO(pow)

static __device__ inline float floor_mod(float x, float y) {
  float r = rare_fmod(x, y);
  return r != 0.0f && (r < 0.0f) != (y < 0.0f) ? r + y : r;
}

#define REAL(name, reads, attrs, expression)                                                                 \
  static __device__ inline float real_##name(float x, float y, float z, float a, float b) {                  \
    (void)x, (void)y, (void)z, (void)a, (void)b;                                                             \
    return expression;                                                                                       \
  }
#define INTEGER(name, reads, expression)
#include "worker/backend/cuda/pointwise/pointwise.def"
#undef REAL
#undef INTEGER

#endif
