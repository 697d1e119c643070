/* Spreads: each element of a tensor from the numbers of its row and, for some kinds, its own x and dy. The
   reverse of folds. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_SPREAD_H
#define WEIR_WORKER_BACKEND_CUDA_ROWS_SPREAD_H

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/rows/rows.h"

/* In brackets: the row's numbers, in the order of `row`. */
enum cuda_spread_kind {
  SPREAD_REPEAT,         /* [v] v scale */
  SPREAD_DEVIATION,      /* [mean, variance] (x - mean) / s, s = sqrt(variance) + epsilon */
  SPREAD_DEVIATION_GRAD, /* [mean, variance, dot, sum] (dy - sum / n - (x - mean) dot / (n s^2)) / s, where
                            dot is the sum of dy (x - mean) */
  SPREAD_EXTREME,        /* [dy, y, count] dy / count where x == y, else 0 */
  SPREAD_LP,             /* [dy, y] dy times the slope of the norm y of order `power` at x */
  SPREAD_PRODUCT,        /* [dy, product, zeros] dy times the product of the row's other elements */
};

enum { SPREAD_VECTORS = 4 };

struct cuda_spread {
  enum cuda_spread_kind kind;
  struct cuda_rows rows;
  struct cuda_tensor x, dy, out;          /* x and dy: absent where the kind has none */
  struct cuda_tensor row[SPREAD_VECTORS]; /* an element a row */
  double scale, epsilon, power;
};

#ifdef __cplusplus
extern "C" {
#endif

void cuda_spread_launch(const struct cuda_spread *spread, cudaStream_t stream);

#ifdef __cplusplus
}
#else
#include "worker/backend/cuda/engine/cuda.h"

/* A spread of a step: which of its arguments the tensors are; -1: none. */
struct cuda_spreading {
  struct cuda_spread spread;
  int x, dy, out, row[SPREAD_VECTORS];
};

struct cuda_spreading cuda_spreading_of(enum cuda_spread_kind kind);
int cuda_spreading_enqueue(const struct cuda_spreading *spreading, const struct cuda_step *step,
                           cudaStream_t stream, struct err *err);
#endif

#endif
