/* Elements chosen by where they are. Each element of the result is one thread's, neighbours by neighbours,
   and read once; running sums, which are a chain of additions, are one thread's a row. */
#include "worker/backend/cuda/moves/arrange.h"

#include "worker/backend/cuda/engine/device.h"
#include "worker/backend/cuda/engine/integer.cuh"

/* to[i] = from[j], of whatever type both are; j < 0: zero. */
static __device__ void move_element(const struct cuda_tensor *to, int64_t i, const struct cuda_tensor *from,
                                    int64_t j) {
  switch (to->type) {
  case CUDA_BF16:
    ((uint16_t *)to->data)[i] = j < 0 ? 0 : ((const uint16_t *)from->data)[j];
    break;
  case CUDA_U8:
    ((uint8_t *)to->data)[i] = j < 0 ? 0 : ((const uint8_t *)from->data)[j];
    break;
  case CUDA_I64:
  case CUDA_F64:
    ((uint64_t *)to->data)[i] = j < 0 ? 0 : ((const uint64_t *)from->data)[j];
    break;
  default:
    ((uint32_t *)to->data)[i] = j < 0 ? 0 : ((const uint32_t *)from->data)[j];
  }
}

static __global__ void triangle_kernel(struct cuda_triangle triangle) {
  int64_t k = triangle.k ? *triangle.k : 0, rows = triangle.rows.by, cols = triangle.cols.by;
  k = k < -rows ? -rows : k > cols ? cols : k;
  for (int64_t i = CUDA_FIRST; i < triangle.y.elems; i += CUDA_STRIDE) {
    int64_t left = i, col = cuda_digit(&triangle.cols, &left), row = cuda_digit(&triangle.rows, &left);
    bool is_in = triangle.is_upper ? col >= row + k : col <= row + k;
    move_element(&triangle.y, i, &triangle.x, is_in ? i : -1);
  }
}

void cuda_triangle_launch(const struct cuda_triangle *triangle, cudaStream_t stream) {
  CUDA_LAUNCH(triangle_kernel, cuda_blocks(triangle->y.elems), CUDA_THREADS, stream, *triangle);
}

static __global__ void reversal_kernel(struct cuda_reversal reversal) {
  for (int64_t i = CUDA_FIRST; i < reversal.y.elems; i += CUDA_STRIDE) {
    int64_t left = i, t, b, step = reversal.inner.by;
    cuda_digit(&reversal.inner, &left);
    if (reversal.is_time_first) {
      b = cuda_digit(&reversal.batch, &left);
      t = left;
      step *= reversal.batch.by;
    } else {
      t = cuda_digit(&reversal.steps, &left);
      b = left;
    }
    int64_t length = reversal.lengths[b];
    if (length < 0 || length > reversal.steps.by) {
      cuda_fault_set(reversal.fault, reversal.node, length, b);
      length = 0;
    }
    move_element(&reversal.y, i, &reversal.x, t < length ? i + (length - 1 - 2 * t) * step : i);
  }
}

void cuda_reversal_launch(const struct cuda_reversal *reversal, cudaStream_t stream) {
  CUDA_LAUNCH(reversal_kernel, cuda_blocks(reversal->y.elems), CUDA_THREADS, stream, *reversal);
}

/* Element i of a tensor of numbers as a whole one; beyond any depth where it is not one. */
static __device__ int64_t whole_at(const struct cuda_tensor *x, int64_t i) {
  if (x->type != CUDA_F32 && x->type != CUDA_BF16)
    return cuda_integer(x, i);
  float value = cuda_load(x, i);
  return value > -9e18f && value < 9e18f ? (int64_t)value : INT64_MAX;
}

static __global__ void one_hot_kernel(struct cuda_one_hot one_hot) {
  int64_t depth = one_hot.depth.by, inner = one_hot.inner.by;
  for (int64_t i = CUDA_FIRST; i < one_hot.y.elems; i += CUDA_STRIDE) {
    int64_t left = i, j = cuda_digit(&one_hot.inner, &left), class_at = cuda_digit(&one_hot.depth, &left);
    int64_t index = whole_at(&one_hot.indices, left * inner + j);
    bool is_on = index == class_at || (index < 0 && index >= -depth && index + depth == class_at);
    if (one_hot.values.data)
      move_element(&one_hot.y, i, &one_hot.values, is_on);
    else
      cuda_store(&one_hot.y, i, is_on ? 1.0f : 0.0f);
  }
}

void cuda_one_hot_launch(const struct cuda_one_hot *one_hot, cudaStream_t stream) {
  CUDA_LAUNCH(one_hot_kernel, cuda_blocks(one_hot->y.elems), CUDA_THREADS, stream, *one_hot);
}

/* The sum so far of a row, reals in f64, integers as they wrap; at: the element that is added. */
#define RUN_ROW(wide, load, store)                                                                           \
  do {                                                                                                       \
    wide total = 0;                                                                                          \
    for (int64_t k = 0; k < sum.n; k++, at += step) {                                                        \
      wide before = total;                                                                                   \
      total += (wide)load;                                                                                   \
      wide result = sum.is_exclusive ? before : total;                                                       \
      store;                                                                                                 \
    }                                                                                                        \
  } while (0)

static __global__ void running_sum_kernel(struct cuda_running_sum sum) {
  for (int64_t r = CUDA_FIRST; r < sum.rows; r += CUDA_STRIDE) {
    int64_t outer = r, j = cuda_digit(&sum.inner, &outer), inner = sum.inner.by;
    int64_t at = (outer * sum.n + (sum.is_reverse ? sum.n - 1 : 0)) * inner + j;
    int64_t step = sum.is_reverse ? -inner : inner;
    if (sum.x.type == CUDA_I32)
      RUN_ROW(uint32_t, ((const int32_t *)sum.x.data)[at], ((uint32_t *)sum.y.data)[at] = result);
    else if (sum.x.type == CUDA_I64)
      RUN_ROW(uint64_t, ((const int64_t *)sum.x.data)[at], ((uint64_t *)sum.y.data)[at] = result);
    else
      RUN_ROW(double, cuda_load(&sum.x, at), cuda_store(&sum.y, at, (float)result));
  }
}

/* The same by a block, CUDA_THREADS elements at a time: sums within warps, of warps, and of what came before.
 */
#define SCAN_ROW(wide, load, store)                                                                          \
  do {                                                                                                       \
    __shared__ wide warps[CUDA_THREADS / CUDA_WARP];                                                         \
    wide carry = 0;                                                                                          \
    for (int64_t first = 0; first < sum.n; first += CUDA_THREADS) {                                          \
      int64_t k = first + threadIdx.x, at = begin + k * step;                                                \
      wide total = k < sum.n ? (wide)load : 0, before = carry;                                               \
      for (int by = 1; by < CUDA_WARP; by *= 2) {                                                            \
        wide other = __shfl_up_sync(0xffffffffu, total, by);                                                 \
        total += lane >= by ? other : 0;                                                                     \
      }                                                                                                      \
      wide earlier = __shfl_up_sync(0xffffffffu, total, 1);                                                  \
      if (lane == CUDA_WARP - 1)                                                                             \
        warps[warp] = total;                                                                                 \
      __syncthreads();                                                                                       \
      for (int w = 0; w < CUDA_THREADS / CUDA_WARP; w++) {                                                   \
        before += w < warp ? warps[w] : 0;                                                                   \
        carry += warps[w];                                                                                   \
      }                                                                                                      \
      __syncthreads(); /* before the next are written */                                                     \
      wide result = before + (!sum.is_exclusive ? total : lane > 0 ? earlier : 0);                           \
      if (k < sum.n)                                                                                         \
        store;                                                                                               \
    }                                                                                                        \
  } while (0)

static __global__ void scan_kernel(struct cuda_running_sum sum) {
  int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
  for (int64_t r = blockIdx.x; r < sum.rows; r += gridDim.x) {
    int64_t outer = r, j = cuda_digit(&sum.inner, &outer), inner = sum.inner.by;
    int64_t begin = (outer * sum.n + (sum.is_reverse ? sum.n - 1 : 0)) * inner + j;
    int64_t step = sum.is_reverse ? -inner : inner;
    if (sum.x.type == CUDA_I32)
      SCAN_ROW(uint32_t, ((const int32_t *)sum.x.data)[at], ((uint32_t *)sum.y.data)[at] = result);
    else if (sum.x.type == CUDA_I64)
      SCAN_ROW(uint64_t, ((const int64_t *)sum.x.data)[at], ((uint64_t *)sum.y.data)[at] = result);
    else
      SCAN_ROW(double, cuda_load(&sum.x, at), cuda_store(&sum.y, at, (float)result));
  }
}

/* Long rows are a block's where neighbouring threads would not have neighbouring elements, or where there
   would be few threads. */
void cuda_running_sum_launch(const struct cuda_running_sum *sum, cudaStream_t stream) {
  const int64_t long_elems = 128, few_rows = 1 << 14;
  if (sum->n >= long_elems && (sum->inner.by < CUDA_WARP || sum->rows < few_rows))
    CUDA_LAUNCH(scan_kernel, cuda_blocks(sum->rows * CUDA_THREADS), CUDA_THREADS, stream, *sum);
  else
    CUDA_LAUNCH(running_sum_kernel, cuda_blocks(sum->rows), CUDA_THREADS, stream, *sum);
}

static __global__ void tile_sum_kernel(struct cuda_tile_sum sum) {
  for (int64_t i = CUDA_FIRST; i < sum.dx.elems; i += CUDA_STRIDE) {
    int64_t left = i, base = 0;
    float total = 0.0f;
    for (int d = sum.dx.rank - 1; d >= 0; d--)
      base += cuda_digit(&sum.dim[d], &left) * sum.stride[d];
    for (int64_t r = 0; r < sum.repeats; r++) {
      int64_t at = base, rest = r;
      for (int d = sum.dx.rank - 1; d >= 0; d--)
        at += cuda_digit(&sum.repeat[d], &rest) * sum.dim[d].by * sum.stride[d];
      total += cuda_load(&sum.dy, at);
    }
    cuda_store(&sum.dx, i, total);
  }
}

void cuda_tile_sum_launch(const struct cuda_tile_sum *sum, cudaStream_t stream) {
  CUDA_LAUNCH(tile_sum_kernel, cuda_blocks(sum->dx.elems), CUDA_THREADS, stream, *sum);
}
