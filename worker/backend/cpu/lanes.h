/* Sums of f32 in lanes side by side. The vectors have the size that every CPU has, so that all CPUs get the
   same bits. */
#ifndef WEIR_WORKER_BACKEND_CPU_LANES_H
#define WEIR_WORKER_BACKEND_CPU_LANES_H

#include <stdint.h>

/* There are several vectors, so that an addition need not wait for the one before. A sum of more than
   LANES_CHUNK elements is an f64 sum over chunks, so that small terms are not lost. */
enum { LANES_WIDTH = 4, LANES_VECTORS = 4, LANES = LANES_WIDTH * LANES_VECTORS, LANES_CHUNK = 4096 };

typedef float lanes __attribute__((vector_size(LANES_WIDTH * sizeof(float))));
typedef float lanes_bytes
    __attribute__((vector_size(LANES_WIDTH * sizeof(float)), aligned(sizeof(float)), may_alias));

/* The elements x[0] to x[LANES_WIDTH - 1], for reading and writing. */
#define LANES_AT(x) (*(lanes_bytes *)(x))

static inline double lanes_total(const lanes sums[LANES_VECTORS]) {
  lanes sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return ((double)sum[0] + sum[1]) + ((double)sum[2] + sum[3]);
}

/* How many of the elements left make one chunk. */
static inline int64_t lanes_chunk(int64_t left) {
  return left < LANES_CHUNK ? left : LANES_CHUNK;
}

/* Defines `double function(x, m, n)`: the sum of expression(v) over the elements v of x f32[n]; m is a
   constant of it. The expression works on vectors and on single elements. */
#define LANES_SUM(function, expression)                                                                      \
  static double function(const float *x, float m, int64_t n) {                                               \
    double total = 0.0;                                                                                      \
    (void)m;                                                                                                 \
    for (int64_t left = n, size; left > 0; left -= size, x += size) {                                        \
      lanes sums[LANES_VECTORS] = {0};                                                                       \
      float rest = 0.0f;                                                                                     \
      int64_t i = 0;                                                                                         \
      size = lanes_chunk(left);                                                                              \
      for (; i + LANES <= size; i += LANES)                                                                  \
        for (int k = 0; k < LANES_VECTORS; k++) {                                                            \
          lanes v = LANES_AT(x + i + k * LANES_WIDTH);                                                       \
          sums[k] += expression;                                                                             \
        }                                                                                                    \
      for (; i < size; i++) {                                                                                \
        float v = x[i];                                                                                      \
        rest += expression;                                                                                  \
      }                                                                                                      \
      total += lanes_total(sums) + rest;                                                                     \
    }                                                                                                        \
    return total;                                                                                            \
  }

#endif
