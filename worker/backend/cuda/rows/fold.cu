/* Folds of rows. Each reads its operands once: 4 bytes an element of F32, 2 of BF16. Where rows lie side by
   side, a warp's threads have one each, and read 32 neighbouring elements at a time; else a row's threads
   read its neighbouring elements. Partial results are 16 bytes a part, which is hundreds of elements. */
#include "worker/backend/cuda/rows/fold.cuh"

static __device__ __forceinline__ struct pair fold_start(const int kind) {
  switch (kind) {
  case FOLD_PRODUCT:
  case FOLD_FACTORS:
    return pair_of(1.0, 0.0);
  case FOLD_MAX:
  case FOLD_EXP:
    return pair_of(-INFINITY, 0.0);
  case FOLD_MIN:
    return pair_of(INFINITY, 0.0);
  case FOLD_ARG_MAX:
  case FOLD_ARG_MIN:
    return pair_of(0.0, -1.0);
  default:
    return pair_of(0.0, 0.0);
  }
}

static __device__ __forceinline__ struct pair merge_exp(struct pair p, struct pair q) {
  double greatest = fmax(p.a, q.a), shift = exp_shift(greatest);
  if (p.a != greatest && p.b != 0.0)
    p.b *= exp(exp_shift(p.a) - shift);
  if (q.a != greatest && q.b != 0.0)
    q.b *= exp(exp_shift(q.a) - shift);
  return pair_of(greatest, p.b + q.b);
}

/* Whether x at index i comes before y at index j. */
static __device__ __forceinline__ bool comes_first(const int kind, struct pair x, struct pair y,
                                                   bool is_last) {
  int order = isnan(x.a) || isnan(y.a) ? !!isnan(x.a) - !!isnan(y.a) : (x.a > y.a) - (x.a < y.a);
  if (x.b < 0.0 || y.b < 0.0)
    return y.b < 0.0;
  if (order != 0)
    return (order > 0) == (kind == FOLD_ARG_MAX);
  return (x.b > y.b) == is_last;
}

static __device__ __forceinline__ struct pair fold_merge(const int kind, struct pair p, struct pair q,
                                                         bool is_last) {
  switch (kind) {
  case FOLD_PRODUCT:
    return pair_of(p.a * q.a, 0.0);
  case FOLD_FACTORS:
    return pair_of(p.a * q.a, p.b + q.b);
  case FOLD_MAX:
    return q.a > p.a || isnan(q.a) ? q : p;
  case FOLD_MIN:
    return q.a < p.a || isnan(q.a) ? q : p;
  case FOLD_EXP:
    return merge_exp(p, q);
  case FOLD_ARG_MAX:
  case FOLD_ARG_MIN:
    return comes_first(kind, q, p, is_last) ? q : p;
  default:
    return pair_of(p.a + q.a, p.b + q.b);
  }
}

static __device__ __forceinline__ struct pair team_merge(const int kind, struct pair p, int lanes,
                                                         bool is_last) {
  __shared__ double parts[2 * CUDA_THREADS / CUDA_WARP];
  int warp = threadIdx.x / CUDA_WARP;
  if (lanes == 1)
    return p;
  for (int offset = CUDA_WARP / 2; offset > 0; offset /= 2) {
    double a = __shfl_down_sync(0xffffffffu, p.a, offset), b = __shfl_down_sync(0xffffffffu, p.b, offset);
    p = fold_merge(kind, p, pair_of(a, b), is_last);
  }
  if (lanes == CUDA_WARP)
    return p;
  __syncthreads(); /* parts of the call before are read */
  if (threadIdx.x % CUDA_WARP == 0) {
    parts[2 * warp] = p.a;
    parts[2 * warp + 1] = p.b;
  }
  __syncthreads();
  for (int w = 1; w < CUDA_THREADS / CUDA_WARP && threadIdx.x == 0; w++)
    p = fold_merge(kind, p, pair_of(parts[2 * w], parts[2 * w + 1]), is_last);
  return p;
}

/* What the masking makes of the gradient at `at`, which is written where it is wanted. */
static __device__ __forceinline__ float fold_masked(const struct cuda_fold *fold, int64_t r, int64_t at,
                                                    float x, float dy) {
  const struct cuda_masking *masking = &fold->masking;
  float y = 0.0f;
  if (masking->bias)
    y = cuda_norm_again(masking, x, fold->mean[r], fold->inv_std[r] * fold->mask_scale[r], masking->bias[r]);
  else if (masking->y.data)
    y = cuda_load(&masking->y, at);
  dy = cuda_mask(masking, dy, masking->addend.data ? cuda_load(&masking->addend, at) : 0.0f, y);
  if (masking->masked.data)
    cuda_store(&masking->masked, at, dy);
  return dy;
}

/* What a thread takes of elements [begin, end) of row r: every lanes-th. */
static __device__ __forceinline__ struct pair fold_stretch(const int kind, const struct cuda_fold *fold,
                                                           int64_t r, int64_t begin, int64_t end) {
  int64_t base = cuda_rows_begin(&fold->rows, r), step = fold->lanes;
  struct pair total = fold_start(kind);
  for (int64_t first = begin + CUDA_LANE(step); first < end; first += CUDA_BATCH * step) {
    uint32_t x[CUDA_BATCH], other[CUDA_BATCH] = {0};
    int64_t at[CUDA_BATCH];
    for (int b = 0; b < CUDA_BATCH; b++) {
      at[b] = base + cuda_rows_offset(&fold->rows, min(first + b * step, end - 1));
      x[b] = cuda_load_bits(&fold->x, at[b]);
      if (kind == FOLD_GRADIENTS || kind == FOLD_MASKED)
        other[b] = cuda_load_bits(&fold->other, at[b]);
    }
    for (int b = 0; b < CUDA_BATCH; b++) {
      if (first + b * step >= end)
        continue;
      float own = cuda_value_of(&fold->x, x[b]), paired = cuda_value_of(&fold->other, other[b]);
      if (kind == FOLD_MASKED)
        paired = fold_masked(fold, r, at[b], own, paired);
      total = fold_merge(kind, total, fold_element(kind, fold, r, first + b * step, at[b], own, paired),
                         fold->is_last);
    }
  }
  return total;
}

/* The first stage, of one kind, which is known when this is compiled. */
static __device__ __forceinline__ void fold_parts(const int kind, const struct cuda_fold *fold) {
  int64_t rows = fold->rows.rows, teams = rows * fold->parts;
  for (int64_t t = CUDA_TEAM_FIRST(fold->lanes); t < teams; t += CUDA_TEAMS(fold->lanes)) {
    int64_t part = (uint32_t)t / (uint32_t)rows, r = t - part * rows, begin = part * fold->part_elems;
    struct pair total = fold_stretch(kind, fold, r, begin, min(begin + fold->part_elems, fold->rows.n));
    total = team_merge(kind, total, fold->lanes, fold->is_last);
    if (CUDA_LANE(fold->lanes) != 0)
      continue;
    if (fold->parts == 1) {
      fold_finish(fold, r, total);
    } else {
      fold->partials[2 * t] = total.a;
      fold->partials[2 * t + 1] = total.b;
    }
  }
}

#define FOLD_CASE(kind)                                                                                      \
  case kind:                                                                                                 \
    fold_parts(kind, &fold);                                                                                 \
    break;

static __global__ void fold_kernel(struct cuda_fold fold) {
  switch (fold.kind) {
    FOLD_CASE(FOLD_SUM)
    FOLD_CASE(FOLD_ABS)
    FOLD_CASE(FOLD_SQUARES)
    FOLD_CASE(FOLD_POWERS)
    FOLD_CASE(FOLD_PRODUCT)
    FOLD_CASE(FOLD_MAX)
    FOLD_CASE(FOLD_MIN)
    FOLD_CASE(FOLD_EXP)
    FOLD_CASE(FOLD_ARG_MAX)
    FOLD_CASE(FOLD_ARG_MIN)
    FOLD_CASE(FOLD_FACTORS)
    FOLD_CASE(FOLD_EQUALS)
    FOLD_CASE(FOLD_MOMENTS)
    FOLD_CASE(FOLD_GRADIENTS)
    FOLD_CASE(FOLD_MASKED)
  }
}

/* The second stage: the parts of each row, in order. */
static __global__ void fold_parts_kernel(struct cuda_fold fold, int lanes) {
  int64_t rows = fold.rows.rows;
  for (int64_t r = CUDA_TEAM_FIRST(lanes); r < rows; r += CUDA_TEAMS(lanes)) {
    struct pair total = fold_start(fold.kind);
    for (int64_t part = CUDA_LANE(lanes); part < fold.parts; part += lanes) {
      const double *own = fold.partials + 2 * (part * rows + r);
      total = fold_merge(fold.kind, total, pair_of(own[0], own[1]), fold.is_last);
    }
    total = team_merge(fold.kind, total, lanes, fold.is_last);
    if (CUDA_LANE(lanes) == 0)
      fold_finish(&fold, r, total);
  }
}

extern "C" void cuda_fold_parts_launch(const struct cuda_fold *fold, cudaStream_t stream) {
  int lanes = fold->parts < CUDA_WARP ? 1 : fold->parts < 8 * CUDA_WARP ? (int)CUDA_WARP : (int)CUDA_THREADS;
  CUDA_LAUNCH(fold_parts_kernel, cuda_team_blocks(fold->rows.rows, lanes), CUDA_THREADS, stream, *fold,
              lanes);
}

extern "C" void cuda_fold_launch(const struct cuda_fold *fold, cudaStream_t stream) {
  if (fold->groups > 0)
    cuda_fold_columns_launch(fold, stream);
  else
    CUDA_LAUNCH(fold_kernel, cuda_team_blocks(fold->rows.rows * fold->parts, fold->lanes), CUDA_THREADS,
                stream, *fold);
  if (fold->parts > 1)
    cuda_fold_parts_launch(fold, stream);
}
