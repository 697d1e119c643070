/* Layer norm by eights. The threads of a team have every lanes-th eight of a row each, at most three of them,
   and the same ones of each row that the team takes: so the gradients of scale and bias gather in registers,
   f32 over at most 128 rows, then f64. Sums over a row are f32 in a thread and f64 across. */
#include "worker/backend/cuda/rows/row_norm_wide.h"

#include "worker/backend/cuda/rows/lanes.cuh"
#include "worker/backend/cuda/rows/rows.cuh"

/* Eights of a row that a thread has registers for; elements of a warp's row. */
enum { VECTORS_F32 = 2, VECTORS_BF16 = 3, VECTORS_MAX = VECTORS_BF16 };
enum { WARP_ROW = ROWS_WARP * VECTORS_MAX * CUDA_LANES };

/* MULTIPROCESSORS: of an H100; the number is fixed, so that the bits are the same on every GPU. TEAM_ROWS:
   the most whose parts of a column a thread adds in f32. */
enum { MULTIPROCESSORS = 132, TEAM_ROWS = 128 };

/* The element of a row where this thread's v-th eight begins. */
static __device__ __forceinline__ int eight_begin(const struct cuda_row_wise *w, int v) {
  return ((int)CUDA_LANE(w->lanes) + v * w->lanes) * CUDA_LANES;
}

/* This thread's eights of row r; 0 behind its end. */
static __device__ __forceinline__ void eights_load(const struct cuda_row_wise *w,
                                                   const struct cuda_tensor *from, int64_t r,
                                                   const int vectors, struct cuda_raw_lanes *raw) {
  CUDA_EACH(v, vectors) {
    int k = eight_begin(w, v);
    if (k < w->rows.n)
      raw[v] = cuda_raw_load(from, r * w->rows.n + k, CUDA_LANES);
  }
}

static __device__ __forceinline__ float lanes_sum(const struct cuda_lanes *x) {
  return ((x->at[0] + x->at[1]) + (x->at[2] + x->at[3])) + ((x->at[4] + x->at[5]) + (x->at[6] + x->at[7]));
}

/* Two passes over what is kept: the mean, then the squares of what differs from it. */
static __device__ __forceinline__ void normalise(struct cuda_row_wise w, const int vectors,
                                                 const enum cuda_type type) {
  int n = (int)w.rows.n;
  w.a.type = w.out.type = type;
  for (int64_t r = CUDA_TEAM_FIRST(w.lanes); r < w.rows.rows; r += CUDA_TEAMS(w.lanes)) {
    struct cuda_raw_lanes raw[VECTORS_MAX] = {};
    struct cuda_lanes x[VECTORS_MAX], scale, bias = {};
    float sum = 0.0f, squares = 0.0f;
    eights_load(&w, &w.a, r, vectors, raw);
    CUDA_EACH(v, vectors) {
      CUDA_EACH_LANE(k) x[v].at[k] = cuda_raw_lane(&w.a, &raw[v], k);
      sum += lanes_sum(&x[v]);
    }
    float mean = (float)(cuda_team_sum(sum, w.lanes) / n);
    CUDA_EACH(v, vectors)
    if (eight_begin(&w, v) < n) {
      struct cuda_lanes square;
      CUDA_EACH_LANE(k) {
        x[v].at[k] -= mean;
        square.at[k] = x[v].at[k] * x[v].at[k];
      }
      squares += lanes_sum(&square);
    }
    float inv_std = (float)(1.0 / sqrt(cuda_team_sum(squares, w.lanes) / n + w.epsilon));
    CUDA_EACH(v, vectors)
    if (eight_begin(&w, v) < n) {
      cuda_floats_load(w.scale, eight_begin(&w, v), scale.at);
      if (w.bias)
        cuda_floats_load(w.bias, eight_begin(&w, v), bias.at);
      CUDA_EACH_LANE(k) x[v].at[k] = x[v].at[k] * inv_std * scale.at[k] + bias.at[k];
      cuda_lanes_store(&w.out, r * n + eight_begin(&w, v), CUDA_LANES, &x[v]);
    }
    if (CUDA_LANE(w.lanes) == 0 && w.mean)
      w.mean[r] = mean;
    if (CUDA_LANE(w.lanes) == 0 && w.inv_std)
      w.inv_std[r] = inv_std;
  }
}

/* What a thread has of the gradients of scale and bias, by its eights. */
struct columns {
  struct cuda_lanes scale[VECTORS_MAX], bias[VECTORS_MAX];
};

/* An eight as it lies -> dy and x_hat. */
static __device__ __forceinline__ void eight_open(const struct cuda_row_wise *w,
                                                  const struct cuda_raw_lanes *raw_dy,
                                                  const struct cuda_raw_lanes *raw_x, const float stats[2],
                                                  struct cuda_lanes *dy, struct cuda_lanes *x_hat) {
  CUDA_EACH_LANE(k) {
    dy->at[k] = cuda_raw_lane(&w->a, raw_dy, k);
    x_hat->at[k] = (cuda_raw_lane(&w->b, raw_x, k) - stats[0]) * stats[1];
  }
}

/* Row r, with g = dy scale: dx = inv_std (g - mean(g) - x_hat mean(g x_hat)) */
static __device__ __forceinline__ void row_differentiate(const struct cuda_row_wise *w, int64_t r,
                                                         const int vectors, struct columns *columns) {
  struct cuda_raw_lanes raw_dy[VECTORS_MAX] = {}, raw_x[VECTORS_MAX] = {};
  struct cuda_lanes dy, x_hat, scale;
  const float stats[2] = {w->mean[r], w->inv_std[r]};
  float sums[2] = {};
  int n = (int)w->rows.n;
  eights_load(w, &w->a, r, vectors, raw_dy);
  eights_load(w, &w->b, r, vectors, raw_x);
  CUDA_EACH(v, vectors)
  if (eight_begin(w, v) < n) {
    eight_open(w, &raw_dy[v], &raw_x[v], stats, &dy, &x_hat);
    cuda_floats_load(w->scale, eight_begin(w, v), scale.at);
    CUDA_EACH_LANE(k) {
      float g = dy.at[k] * scale.at[k];
      sums[0] += g;
      sums[1] += g * x_hat.at[k];
      columns->bias[v].at[k] += dy.at[k];
      columns->scale[v].at[k] += dy.at[k] * x_hat.at[k];
    }
  }
  float shift = (float)(cuda_team_sum(sums[0], w->lanes) / n);
  float slope = (float)(cuda_team_sum(sums[1], w->lanes) / n);
  CUDA_EACH(v, vectors)
  if (eight_begin(w, v) < n) {
    eight_open(w, &raw_dy[v], &raw_x[v], stats, &dy, &x_hat);
    cuda_floats_load(w->scale, eight_begin(w, v), scale.at);
    CUDA_EACH_LANE(k)
    dy.at[k] = stats[1] * (dy.at[k] * scale.at[k] - shift - x_hat.at[k] * slope);
    cuda_lanes_store(&w->out, r * n + eight_begin(w, v), CUDA_LANES, &dy);
  }
}

/* Where a block's sum of a column lies among its n partial results. */
static __device__ __forceinline__ void column_store(double *partials, int column, double bias, double scale) {
  partials[2 * column] = bias;
  partials[2 * column + 1] = scale;
}

/* A block's row is one team's: each thread has columns of its own. */
static __device__ __forceinline__ void columns_store(const struct cuda_row_wise *w, const int vectors,
                                                     const struct columns *columns, double *partials) {
  CUDA_EACH(v, vectors)
  if (eight_begin(w, v) < w->rows.n)
    CUDA_EACH_LANE(k)
  column_store(partials, eight_begin(w, v) + k, columns->bias[v].at[k], columns->scale[v].at[k]);
}

/* Each warp has rows of its own: their sums, one warp after the other. Lane k of all eights lies side by
   side, so that neighbouring threads have neighbouring banks. */
static __device__ __forceinline__ void warps_columns_store(const struct cuda_row_wise *w, const int vectors,
                                                           const struct columns *columns, double *partials) {
  __shared__ double bias[WARP_ROW], scale[WARP_ROW];
  int n = (int)w->rows.n, eights = n / CUDA_LANES, own = threadIdx.x / CUDA_WARP;
  CUDA_ROLLED
  for (int warp = 0; warp < CUDA_THREADS / CUDA_WARP; warp++) {
    CUDA_EACH(v, vectors)
    if (warp == own && eight_begin(w, v) < n)
      CUDA_EACH_LANE(k) {
        int at = k * eights + eight_begin(w, v) / CUDA_LANES;
        bias[at] = (warp ? bias[at] : 0.0) + columns->bias[v].at[k];
        scale[at] = (warp ? scale[at] : 0.0) + columns->scale[v].at[k];
      }
    __syncthreads();
  }
  for (int column = threadIdx.x; column < n; column += CUDA_THREADS) {
    int at = column % CUDA_LANES * eights + column / CUDA_LANES;
    column_store(partials, column, bias[at], scale[at]);
  }
}

static __device__ __forceinline__ void differentiate(struct cuda_row_wise w, const int vectors,
                                                     const enum cuda_type type, double *partials) {
  struct columns columns = {};
  w.a.type = w.b.type = w.out.type = type;
  partials += 2 * (int64_t)blockIdx.x * w.rows.n;
  for (int64_t r = CUDA_TEAM_FIRST(w.lanes); r < w.rows.rows; r += CUDA_TEAMS(w.lanes))
    row_differentiate(&w, r, vectors, &columns);
  if (w.lanes == CUDA_WARP)
    warps_columns_store(&w, vectors, &columns, partials);
  else
    columns_store(&w, vectors, &columns, partials);
}

/* blocks: that a multiprocessor has registers for. */
#define ROW_NORM_KERNELS(name, vectors, type, blocks)                                                        \
  static __global__ void __launch_bounds__(CUDA_THREADS, blocks) row_norm_##name(struct cuda_row_wise w) {   \
    normalise(w, vectors, type);                                                                             \
  }                                                                                                          \
  static __global__ void __launch_bounds__(CUDA_THREADS, blocks)                                             \
      row_norm_grad_##name(struct cuda_row_wise w, double *partials) {                                       \
    differentiate(w, vectors, type, partials);                                                               \
  }                                                                                                          \
  static const struct kernels name = {row_norm_##name, row_norm_grad_##name, blocks};

struct kernels {
  void (*norm)(struct cuda_row_wise w);
  void (*grad)(struct cuda_row_wise w, double *partials);
  int blocks;
};

ROW_NORM_KERNELS(one_f32, 1, CUDA_F32, 3)
ROW_NORM_KERNELS(two_f32, 2, CUDA_F32, 2)
ROW_NORM_KERNELS(one_bf16, 1, CUDA_BF16, 4)
ROW_NORM_KERNELS(two_bf16, 2, CUDA_BF16, 2)
ROW_NORM_KERNELS(three_bf16, 3, CUDA_BF16, 2)

/* Elements of the longest row of a team. */
static int64_t longest_of(const struct cuda_row_wise *norm, int lanes) {
  return (int64_t)lanes * CUDA_LANES * (norm->out.type == CUDA_BF16 ? VECTORS_BF16 : VECTORS_F32);
}

static int lanes_of(const struct cuda_row_wise *norm) {
  return norm->rows.n <= longest_of(norm, ROWS_WARP) ? ROWS_WARP : ROWS_BLOCK;
}

static const struct kernels *kernels_of(const struct cuda_row_wise *norm) {
  static const struct kernels *const f32[] = {&one_f32, &two_f32}, *const bf16[] = {&one_bf16, &two_bf16,
                                                                                    &three_bf16};
  int64_t more = (norm->rows.n - 1) / (CUDA_LANES * lanes_of(norm));
  return norm->out.type == CUDA_BF16 ? bf16[more] : f32[more];
}

extern "C" bool cuda_row_norm_is_wide(const struct cuda_row_wise *norm) {
  const struct cuda_rows *rows = &norm->rows;
  bool is_grad = norm->kind == ROW_NORM_GRAD;
  return rows->r0 == 1 && rows->k1 == 1 && rows->n % CUDA_LANES == 0 &&
         rows->n <= longest_of(norm, ROWS_BLOCK) && norm->by_run.by == 1 && norm->by_channels.by == rows->n &&
         (norm->out.type == CUDA_F32 || norm->out.type == CUDA_BF16) && norm->a.type == norm->out.type &&
         (!is_grad || norm->b.type == norm->out.type);
}

extern "C" int64_t cuda_row_norm_wide_parts(const struct cuda_row_wise *norm) {
  int64_t blocks = cuda_team_blocks(norm->rows.rows, lanes_of(norm));
  int64_t at_once = (int64_t)MULTIPROCESSORS * kernels_of(norm)->blocks,
          least = (blocks + TEAM_ROWS - 1) / TEAM_ROWS;
  return blocks < at_once ? blocks : at_once < least ? least : at_once;
}

extern "C" void cuda_row_norm_wide_launch(const struct cuda_row_wise *norm, cudaStream_t stream) {
  struct cuda_row_wise w = *norm;
  void (*kernel)(struct cuda_row_wise) = kernels_of(norm)->norm;
  w.lanes = lanes_of(norm);
  CUDA_LAUNCH(kernel, cuda_team_blocks(w.rows.rows, w.lanes), CUDA_THREADS, stream, w);
}

extern "C" void cuda_row_norm_wide_grad_launch(const struct cuda_row_wise *norm, double *partials,
                                               cudaStream_t stream) {
  struct cuda_row_wise w = *norm;
  void (*kernel)(struct cuda_row_wise, double *) = kernels_of(norm)->grad;
  w.lanes = lanes_of(norm);
  CUDA_LAUNCH(kernel, cuda_row_norm_wide_parts(norm), CUDA_THREADS, stream, w, partials);
}
