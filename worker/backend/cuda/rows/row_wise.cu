/* Row-wise kernels. Each reads its operands once, 4 bytes an element of F32 and 2 of BF16, and writes its
   result once: a thread keeps its elements of the row in shared memory, where it alone reads them (so they
   need no synchronisation, and lie in a bank of their own); of rows longer than that has room for, the rest
   is read again from the caches. Where rows lie side by side, neighbouring threads have neighbouring rows,
   else neighbouring elements of one: either way a warp reads stretches of memory. Sums are in f64. */
#include "worker/backend/cuda/rows/row_wise.h"

#include "worker/backend/cuda/rows/row_norm_wide.h"
#include "worker/backend/cuda/rows/rows.cuh"

/* Elements that a thread keeps of one operand, in whole batches: 32 KiB a block. */
enum { KEPT = 32, KEPT_OF_TWO = KEPT / 2 };

/* An operand's row, as one thread sees it. */
struct row {
  const struct cuda_tensor *from;
  const struct cuda_rows *rows;
  int64_t base;
  float *kept; /* [limit][CUDA_THREADS] */
  int limit;
};

/* Reads what is kept. */
static __device__ __forceinline__ struct row
row_open(const struct cuda_row_wise *w, const struct cuda_tensor *from, int64_t r, float *kept, int limit) {
  struct row row = {from, &w->rows, cuda_rows_begin(&w->rows, r), kept + threadIdx.x, limit};
  int64_t n = w->rows.n, k = CUDA_LANE(w->lanes);
  for (int i = 0; i < limit && k < n; i += CUDA_BATCH, k += CUDA_BATCH * w->lanes) {
    uint32_t bits[CUDA_BATCH];
    for (int b = 0; b < CUDA_BATCH; b++)
      bits[b] = cuda_load_bits(from, row.base + cuda_rows_offset(row.rows, min(k + b * w->lanes, n - 1)));
    for (int b = 0; b < CUDA_BATCH; b++)
      row.kept[(i + b) * CUDA_THREADS] = cuda_value_of(from, bits[b]);
  }
  return row;
}

/* The thread's i-th element, which is the row's k-th. */
static __device__ __forceinline__ float row_at(const struct row *row, int64_t i, int64_t k) {
  return i < row->limit ? row->kept[i * CUDA_THREADS]
                        : cuda_load(row->from, row->base + cuda_rows_offset(row->rows, k));
}

static __device__ __forceinline__ void row_write(const struct cuda_tensor *out, const struct row *row,
                                                 int64_t k, float x) {
  cuda_store(out, row->base + cuda_rows_offset(row->rows, k), x);
}

/* Each row of this thread's team; each element of the row that is this thread's. */
#define EACH_ROW(w, r)                                                                                       \
  for (int64_t r = CUDA_TEAM_FIRST((w).lanes); r < (w).rows.rows; r += CUDA_TEAMS((w).lanes))
#define EACH_ELEMENT(w, i, k)                                                                                \
  for (int64_t k = CUDA_LANE((w).lanes), i = 0; k < (w).rows.n; k += (w).lanes, i++)

static __global__ void softmax_kernel(struct cuda_row_wise w) {
  __shared__ float kept[KEPT * CUDA_THREADS];
  EACH_ROW(w, r) {
    struct row x = row_open(&w, &w.a, r, kept, KEPT);
    float greatest = -INFINITY, log_sum, inverse;
    double sum = 0.0;
    EACH_ELEMENT(w, i, k)
    greatest = fmaxf(greatest, row_at(&x, i, k));
    greatest = cuda_team_max(greatest, w.lanes);
    EACH_ELEMENT(w, i, k)
    sum += expf(row_at(&x, i, k) - greatest);
    sum = cuda_team_sum(sum, w.lanes);
    log_sum = (float)log(sum);
    inverse = (float)(1.0 / sum);
    EACH_ELEMENT(w, i, k) {
      float over = row_at(&x, i, k) - greatest;
      row_write(&w.out, &x, k, w.kind == ROW_SOFTMAX ? expf(over) * inverse : over - log_sum);
    }
  }
}

static __global__ void softmax_grad_kernel(struct cuda_row_wise w) {
  __shared__ float kept[2 * KEPT_OF_TWO * CUDA_THREADS];
  bool is_log = w.kind == ROW_LOG_SOFTMAX_GRAD;
  EACH_ROW(w, r) {
    struct row dy = row_open(&w, &w.a, r, kept, KEPT_OF_TWO);
    struct row y = row_open(&w, &w.b, r, kept + KEPT_OF_TWO * CUDA_THREADS, KEPT_OF_TWO);
    double sum = 0.0;
    EACH_ELEMENT(w, i, k) {
      float d = row_at(&dy, i, k), own = row_at(&y, i, k);
      sum += is_log ? (double)d : (double)d * own;
    }
    sum = cuda_team_sum(sum, w.lanes);
    EACH_ELEMENT(w, i, k) {
      float d = row_at(&dy, i, k), own = row_at(&y, i, k);
      row_write(&w.out, &y, k, is_log ? d - expf(own) * (float)sum : own * (d - (float)sum));
    }
  }
}

static __device__ __forceinline__ double lp_term(double x, double power) {
  return power == 1.0 ? fabs(x) : x * x;
}

static __device__ __forceinline__ float lp_norm(double sum, double power) {
  return (float)(power == 1.0 ? sum : sqrt(sum));
}

static __global__ void lp_kernel(struct cuda_row_wise w) {
  __shared__ float kept[KEPT * CUDA_THREADS];
  EACH_ROW(w, r) {
    struct row x = row_open(&w, &w.a, r, kept, KEPT);
    double sum = 0.0;
    EACH_ELEMENT(w, i, k)
    sum += lp_term(row_at(&x, i, k), w.power);
    float norm = lp_norm(cuda_team_sum(sum, w.lanes), w.power), inverse = norm > 0.0f ? 1.0f / norm : norm;
    EACH_ELEMENT(w, i, k)
    row_write(&w.out, &x, k, row_at(&x, i, k) * inverse);
  }
}

/* With the norm n and its slope s at each element: dx = (dy - s sum(dy x) / n) / n; 0 where n is. */
static __global__ void lp_grad_kernel(struct cuda_row_wise w) {
  __shared__ float kept[2 * KEPT_OF_TWO * CUDA_THREADS];
  EACH_ROW(w, r) {
    struct row dy = row_open(&w, &w.a, r, kept, KEPT_OF_TWO);
    struct row x = row_open(&w, &w.b, r, kept + KEPT_OF_TWO * CUDA_THREADS, KEPT_OF_TWO);
    double sum = 0.0, dot = 0.0;
    EACH_ELEMENT(w, i, k) {
      float own = row_at(&x, i, k);
      sum += lp_term(own, w.power);
      dot += (double)row_at(&dy, i, k) * own;
    }
    float norm = lp_norm(cuda_team_sum(sum, w.lanes), w.power), inverse = norm > 0.0f ? 1.0f / norm : norm;
    float along = (float)cuda_team_sum(dot, w.lanes) * inverse;
    EACH_ELEMENT(w, i, k) {
      float own = row_at(&x, i, k);
      float slope = w.power == 1.0 ? (float)((own > 0.0f) - (own < 0.0f)) : own * inverse;
      row_write(&w.out, &x, k, (row_at(&dy, i, k) - slope * along) * inverse);
    }
  }
}

/* The channel of a row's k-th element. */
static __device__ __forceinline__ int64_t channel_of(const struct cuda_row_wise *w, const struct row *row,
                                                     int64_t k) {
  int64_t at = row->base + cuda_rows_offset(row->rows, k), q = cuda_divide(&w->by_run, at);
  return cuda_digit(&w->by_channels, &q);
}

/* Two passes over what is kept: the mean, then the squares of what differs from it. */
static __global__ void norm_kernel(struct cuda_row_wise w) {
  __shared__ float kept[KEPT * CUDA_THREADS];
  double n = (double)w.rows.n;
  EACH_ROW(w, r) {
    struct row x = row_open(&w, &w.a, r, kept, KEPT);
    double sum = 0.0, squares = 0.0;
    EACH_ELEMENT(w, i, k)
    sum += row_at(&x, i, k);
    float mean = (float)(cuda_team_sum(sum, w.lanes) / n);
    EACH_ELEMENT(w, i, k) {
      float centred = row_at(&x, i, k) - mean;
      squares += centred * centred;
    }
    float inv_std = (float)(1.0 / sqrt(cuda_team_sum(squares, w.lanes) / n + w.epsilon));
    EACH_ELEMENT(w, i, k) {
      int64_t c = channel_of(&w, &x, k);
      float y = (row_at(&x, i, k) - mean) * inv_std * w.scale[c];
      row_write(&w.out, &x, k, w.bias ? y + w.bias[c] : y);
    }
    if (CUDA_LANE(w.lanes) == 0 && w.mean)
      w.mean[r] = mean;
    if (CUDA_LANE(w.lanes) == 0 && w.inv_std)
      w.inv_std[r] = inv_std;
  }
}

/* With g = dy scale: dx = inv_std (g - mean(g) - x_hat mean(g x_hat)) */
static __global__ void norm_grad_kernel(struct cuda_row_wise w) {
  __shared__ float kept[2 * KEPT_OF_TWO * CUDA_THREADS];
  double n = (double)w.rows.n;
  EACH_ROW(w, r) {
    struct row dy = row_open(&w, &w.a, r, kept, KEPT_OF_TWO);
    struct row x = row_open(&w, &w.b, r, kept + KEPT_OF_TWO * CUDA_THREADS, KEPT_OF_TWO);
    float mean = w.mean[r], inv_std = w.inv_std[r];
    double sum = 0.0, dot = 0.0;
    EACH_ELEMENT(w, i, k) {
      float g = row_at(&dy, i, k) * w.scale[channel_of(&w, &x, k)];
      sum += g;
      dot += g * ((row_at(&x, i, k) - mean) * inv_std);
    }
    float shift = (float)(cuda_team_sum(sum, w.lanes) / n);
    float slope = (float)(cuda_team_sum(dot, w.lanes) / n);
    EACH_ELEMENT(w, i, k) {
      float g = row_at(&dy, i, k) * w.scale[channel_of(&w, &x, k)];
      float x_hat = (row_at(&x, i, k) - mean) * inv_std;
      row_write(&w.out, &x, k, inv_std * (g - shift - x_hat * slope));
    }
  }
}

static __global__ void rms_kernel(struct cuda_row_wise w) {
  __shared__ float kept[KEPT * CUDA_THREADS];
  EACH_ROW(w, r) {
    struct row x = row_open(&w, &w.a, r, kept, KEPT);
    double squares = 0.0;
    EACH_ELEMENT(w, i, k) {
      float own = row_at(&x, i, k);
      squares += (double)own * own;
    }
    float inverse = (float)(1.0 / sqrt(cuda_team_sum(squares, w.lanes) / (double)w.rows.n + w.epsilon));
    EACH_ELEMENT(w, i, k)
    row_write(&w.out, &x, k, row_at(&x, i, k) * inverse * w.scale[channel_of(&w, &x, k)]);
  }
}

/* With normal = x / rms: dx = (scaled - normal mean(scaled normal)) / rms, and dy normal, whose sums are the
   scale's gradient. */
static __global__ void rms_grad_kernel(struct cuda_row_wise w) {
  __shared__ float kept[2 * KEPT_OF_TWO * CUDA_THREADS];
  double n = (double)w.rows.n;
  EACH_ROW(w, r) {
    struct row scaled = row_open(&w, &w.a, r, kept, KEPT_OF_TWO);
    struct row x = row_open(&w, &w.b, r, kept + KEPT_OF_TWO * CUDA_THREADS, KEPT_OF_TWO);
    double squares = 0.0, dot = 0.0;
    EACH_ELEMENT(w, i, k) {
      float own = row_at(&x, i, k);
      squares += (double)own * own;
      dot += (double)row_at(&scaled, i, k) * own;
    }
    float inverse = (float)(1.0 / sqrt(cuda_team_sum(squares, w.lanes) / n + w.epsilon));
    float along = (float)(cuda_team_sum(dot, w.lanes) / n) * inverse;
    EACH_ELEMENT(w, i, k) {
      float normal = row_at(&x, i, k) * inverse;
      float dy = cuda_load(&w.c, x.base + cuda_rows_offset(&w.rows, k));
      row_write(&w.out2, &x, k, dy * normal);
      row_write(&w.out, &x, k, (row_at(&scaled, i, k) - normal * along) * inverse);
    }
  }
}

extern "C" void cuda_row_wise_launch(const struct cuda_row_wise *w, cudaStream_t stream) {
  void (*const kernels[])(struct cuda_row_wise) = {
      softmax_kernel, softmax_kernel, softmax_grad_kernel, softmax_grad_kernel, lp_kernel,
      lp_grad_kernel, norm_kernel,    norm_grad_kernel,    rms_kernel,          rms_grad_kernel};
  void (*kernel)(struct cuda_row_wise) = kernels[w->kind];
  if (w->kind == ROW_NORM && cuda_row_norm_is_wide(w))
    cuda_row_norm_wide_launch(w, stream);
  else
    CUDA_LAUNCH(kernel, cuda_team_blocks(w->rows.rows, w->lanes), CUDA_THREADS, stream, *w);
}
