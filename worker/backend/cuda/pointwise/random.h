/* Ops that draw numbers: the same ones as common/agree/random.h, from the context in device memory. Read by C
   and CUDA C. */
#ifndef WEIR_WORKER_BACKEND_CUDA_POINTWISE_RANDOM_H
#define WEIR_WORKER_BACKEND_CUDA_POINTWISE_RANDOM_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "worker/backend/cuda/engine/tensor.h"

enum cuda_draw {
  DRAW_UNIFORM,   /* a + b u */
  DRAW_NORMAL,    /* a + b z */
  DRAW_BERNOULLI, /* whether u is less than x, a probability */
};

struct cuda_distribution {
  enum cuda_draw what;
  float a, b;
};

struct cuda_random {
  const struct cuda_context *context;
  struct cuda_fault *fault;
  int node;
};

struct cuda_dropout {
  struct cuda_random random;
  struct cuda_tensor x, y;
  uint8_t *mask;      /* NULL: not wanted */
  const float *ratio; /* NULL: 1/2 or what `known` says */
  double known;
  const uint8_t *mode; /* whether any are dropped; NULL: what `drops` says */
  bool drops;
};

/* Draws classes by their unnormalized log-probabilities. */
struct cuda_multinomial {
  struct cuda_random random;
  struct cuda_tensor x, out; /* x [batch,classes], out I32 or I64 [batch,samples] */
  double *sums;              /* scratch of x's shape */
};

#ifdef __cplusplus
extern "C" {
#endif
void cuda_dropout_launch(const struct cuda_dropout *dropout, cudaStream_t stream);
void cuda_multinomial_launch(const struct cuda_multinomial *multinomial, cudaStream_t stream);
/* x: of DRAW_BERNOULLI, the probabilities; else absent. */
void cuda_draw_launch(const struct cuda_random *random, const struct cuda_distribution *distribution,
                      const struct cuda_tensor *x, const struct cuda_tensor *out, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
