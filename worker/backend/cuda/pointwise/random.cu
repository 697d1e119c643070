/* Draws from counters: element i of a node's output depends on the seed, the step, the microbatch, the node
   and i alone, in integers, so that every bit of a mask is what common/agree/random.c gives.

   Traffic of dropout: x is read and y written once, and a byte of the mask, neighbours by neighbours. The
   mask is written, though it could be drawn again, because a byte costs less than the 64-bit products of a
   draw. */
#include "worker/backend/cuda/pointwise/random.h"

#include <math.h>

#include "worker/backend/cuda/engine/device.h"
#include "worker/backend/cuda/engine/integer.cuh"
#include "worker/backend/cuda/pointwise/random.cuh"

static __device__ double normal_at(uint64_t key, int64_t index) {
  double above_0 = 1.0 - cuda_uniform(key, 2 * index);
  double turn = 2.0 * 3.14159265358979323846 * cuda_uniform(key, 2 * index + 1);
  return sqrt(-2.0 * log(above_0)) * cos(turn);
}

static __global__ void dropout_kernel(struct cuda_dropout dropout) {
  double ratio = dropout.ratio ? *dropout.ratio : dropout.known;
  bool drops = dropout.mode ? *dropout.mode != 0 : dropout.drops;
  float scale = drops ? (float)(1.0 / (1.0 - ratio)) : 1.0f;
  uint64_t key = cuda_random_key(dropout.random.context, dropout.random.node);
  if (!(ratio >= 0.0 && ratio < 1.0))
    cuda_fault_set(dropout.random.fault, dropout.random.node, __float_as_uint((float)ratio), 0);
  for (int64_t i = CUDA_FIRST; i < dropout.x.elems; i += CUDA_STRIDE) {
    bool is_kept = !drops || cuda_uniform(key, i) >= ratio;
    cuda_store(&dropout.y, i, is_kept ? cuda_load(&dropout.x, i) * scale : 0.0f);
    if (dropout.mask)
      dropout.mask[i] = is_kept;
  }
}

void cuda_dropout_launch(const struct cuda_dropout *dropout, cudaStream_t stream) {
  CUDA_LAUNCH(dropout_kernel, cuda_blocks(dropout->x.elems), CUDA_THREADS, stream, *dropout);
}

static __device__ void put_bit(const struct cuda_tensor *out, int64_t i, bool bit) {
  if (out->type == CUDA_F32 || out->type == CUDA_BF16)
    cuda_store(out, i, bit ? 1.0f : 0.0f);
  else
    cuda_put_integer(out, i, bit);
}

static __global__ void draw_kernel(struct cuda_random random, enum cuda_draw what, float a, float b,
                                   struct cuda_tensor x, struct cuda_tensor out) {
  uint64_t key = cuda_random_key(random.context, random.node);
  for (int64_t i = CUDA_FIRST; i < out.elems; i += CUDA_STRIDE) {
    if (what == DRAW_UNIFORM) {
      cuda_store(&out, i, a + b * cuda_uniform(key, i));
    } else if (what == DRAW_NORMAL) {
      cuda_store(&out, i, (float)(a + b * normal_at(key, i)));
    } else {
      float p = cuda_load(&x, i);
      if (!(p >= 0.0f && p <= 1.0f))
        cuda_fault_set(random.fault, random.node, __float_as_uint(p), i);
      put_bit(&out, i, cuda_uniform(key, i) < p);
    }
  }
}

void cuda_draw_launch(const struct cuda_random *random, const struct cuda_distribution *distribution,
                      const struct cuda_tensor *x, const struct cuda_tensor *out, cudaStream_t stream) {
  CUDA_LAUNCH(draw_kernel, cuda_blocks(out->elems), CUDA_THREADS, stream, *random, distribution->what,
              distribution->a, distribution->b, *x, *out);
}

/* Running sums of exp(row - its greatest), one thread's a row: a chain of additions, as the reference kernel
   has it. */
static __global__ void sum_up_kernel(struct cuda_multinomial m) {
  int64_t classes = m.x.dim[1];
  for (int64_t b = CUDA_FIRST; b < m.x.dim[0]; b += CUDA_STRIDE) {
    float most = -INFINITY;
    double sum = 0.0;
    for (int64_t c = 0; c < classes; c++)
      most = fmaxf(most, cuda_load(&m.x, b * classes + c));
    for (int64_t c = 0; c < classes; c++)
      m.sums[b * classes + c] = sum += exp((double)cuda_load(&m.x, b * classes + c) - most);
    if (!(isfinite(sum) && sum > 0.0))
      cuda_fault_set(m.random.fault, m.random.node, 0, b);
  }
}

/* The first class whose running sum is above a mark. */
static __global__ void draw_class_kernel(struct cuda_multinomial m) {
  uint64_t key = cuda_random_key(m.random.context, m.random.node);
  int64_t classes = m.x.dim[1], samples = m.out.dim[1];
  for (int64_t i = CUDA_FIRST; i < m.out.elems; i += CUDA_STRIDE) {
    const double *sums = m.sums + i / samples * classes;
    double mark = cuda_uniform(key, i) * sums[classes - 1];
    int64_t low = 0, high = classes - 1;
    while (low < high) {
      int64_t middle = low + (high - low) / 2;
      if (sums[middle] > mark)
        high = middle;
      else
        low = middle + 1;
    }
    cuda_put_integer(&m.out, i, low);
  }
}

void cuda_multinomial_launch(const struct cuda_multinomial *m, cudaStream_t stream) {
  CUDA_LAUNCH(sum_up_kernel, cuda_blocks(m->x.dim[0]), CUDA_THREADS, stream, *m);
  CUDA_LAUNCH(draw_class_kernel, cuda_blocks(m->out.elems), CUDA_THREADS, stream, *m);
}
