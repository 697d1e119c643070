/* What folds make of one element, and at the end of a row. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_FOLD_CUH
#define WEIR_WORKER_BACKEND_CUDA_ROWS_FOLD_CUH

#include "worker/backend/cuda/rows/fold.h"
#include "worker/backend/cuda/rows/norm.cuh"
#include "worker/backend/cuda/rows/rows.cuh"

struct pair {
  double a, b;
};

static __device__ __forceinline__ struct pair pair_of(double a, double b) {
  struct pair pair;
  pair.a = a;
  pair.b = b;
  return pair;
}

/* What is subtracted from exponents: the greatest, but 0 where that is infinite and cannot be subtracted. */
static __device__ __forceinline__ double exp_shift(double greatest) {
  return isinf(greatest) ? 0.0 : greatest;
}

/* x == y, where y may have been rounded to BF16 and x not. */
static __device__ __forceinline__ bool is_same(float x, float y, enum cuda_type type) {
  return (type == CUDA_BF16 ? cuda_from_bf16(cuda_to_bf16(x)) : x) == y;
}

/* Element k of row r, which lies at `at`, by itself; other: of FOLD_GRADIENTS. */
static __device__ __forceinline__ struct pair fold_element(const int kind, const struct cuda_fold *fold,
                                                           int64_t r, int64_t k, int64_t at, float x,
                                                           float other) {
  switch (kind) {
  case FOLD_ABS:
    return pair_of(fabsf(x), 0.0);
  case FOLD_SQUARES:
    return pair_of((double)x * x, 0.0);
  case FOLD_POWERS:
    return pair_of(pow((double)fabsf(x), fold->power), 0.0);
  case FOLD_EXP:
    return pair_of(x, expf(x - (float)exp_shift(x)));
  case FOLD_ARG_MAX:
  case FOLD_ARG_MIN:
    return pair_of(x, (double)k);
  case FOLD_FACTORS:
    return pair_of(x == 0.0f ? 1.0 : x, x == 0.0f ? 1.0 : 0.0);
  case FOLD_EQUALS:
    return pair_of(is_same(x, cuda_load(&fold->other, r), fold->other.type) ? 1.0 : 0.0, 0.0);
  case FOLD_MOMENTS:
    return pair_of(x, (double)x * x);
  case FOLD_MASKED:
  case FOLD_GRADIENTS: {
    int64_t s = fold->stat_elems ? cuda_divide(&fold->by_stat_elems, at) : r;
    return pair_of(other, (double)(other * (x - fold->mean[s])) * (fold->inv_std ? fold->inv_std[s] : 1.0f));
  }
  default:
    return pair_of(x, 0.0);
  }
}

static __device__ inline void write_moments(const struct cuda_fold *fold, int64_t r, struct pair sums) {
  double n = (double)fold->rows.n, mean = sums.a / n, variance = sums.b / n - mean * mean;
  variance = variance < 0.0 ? 0.0 : variance; /* NaN stays: fmax would take 0 */
  if (fold->out[0].data)
    cuda_store(&fold->out[0], r, (float)mean);
  if (fold->out[1].data)
    cuda_store(&fold->out[1], r, (float)variance);
  if (fold->out[2].data)
    cuda_store(&fold->out[2], r, (float)(1.0 / sqrt(variance + fold->epsilon)));
}

static __device__ inline void fold_finish(const struct cuda_fold *fold, int64_t r, struct pair p) {
  switch (fold->finish) {
  case FINISH_MOMENTS:
    write_moments(fold, r, p);
    break;
  case FINISH_INDEX:
    ((int64_t *)fold->out[0].data)[r] = (int64_t)p.b;
    break;
  case FINISH_PLACE:
    ((int32_t *)fold->out[0].data)[r] = (int32_t)p.b;
    break;
  case FINISH_BOTH:
    if (fold->out[0].data)
      cuda_store(&fold->out[0], r, (float)p.b);
    if (fold->out[1].data)
      cuda_store(&fold->out[1], r, (float)p.a);
    break;
  case FINISH_SQRT:
    cuda_store(&fold->out[0], r, (float)sqrt(p.a));
    break;
  case FINISH_ROOT:
    cuda_store(&fold->out[0], r, (float)pow(p.a, 1.0 / fold->power));
    break;
  case FINISH_LOG:
    cuda_store(&fold->out[0], r, (float)log(p.a));
    break;
  case FINISH_LOG_EXP:
    cuda_store(&fold->out[0], r, (float)(exp_shift(p.a) + log(p.b)));
    break;
  case FINISH_A:
    cuda_store(&fold->out[0], r, (float)(p.a * fold->scale));
    break;
  }
}

#endif
