/* Batch norm and its gradient, element by element. A thread takes CUDA_LANES neighbouring elements at a time,
   a warp 256: each tensor is read or written once, in whole lines. A grid's threads are as many as make the
   next elements of each lie in the same channels, where that can be: what channels have is read once a
   thread. */
#include "worker/backend/cuda/rows/lanes.cuh"
#include "worker/backend/cuda/rows/norm.cuh"

/* Vectors of lanes whose loads a thread starts before it uses the first. */
enum { VECTORS = 2, ROUNDS_LEAST = 4 };
static const int64_t BLOCKS_MAX = 2048;

/* Thread t of `threads` takes vectors t, t + threads, ...; is_steady: they are of the same channels. */
struct walk {
  int64_t threads;
  bool is_steady;
};

static int64_t walk_plan(const struct cuda_channels *channels, struct walk *walk) {
  int64_t vectors = (channels->elems + CUDA_LANES - 1) / CUDA_LANES, blocks = cuda_blocks(vectors);
  int64_t period = channels->inner.by * channels->channels.by, rounds;
  blocks = blocks > BLOCKS_MAX ? BLOCKS_MAX : blocks;
  walk->threads = blocks * CUDA_THREADS;
  rounds = walk->threads * CUDA_LANES / period;
  walk->is_steady = period % CUDA_LANES == 0 && rounds >= ROUNDS_LEAST;
  if (walk->is_steady)
    walk->threads = rounds * period / CUDA_LANES;
  return blocks;
}

static __device__ void lane_channels(const struct cuda_channels *channels, int64_t i,
                                     int64_t channel[CUDA_LANES]) {
  int64_t place = cuda_digit(&channels->inner, &i), at = cuda_digit(&channels->channels, &i);
  CUDA_EACH_LANE(k) {
    channel[k] = at;
    if (++place == channels->inner.by) {
      place = 0;
      at = at + 1 == channels->channels.by ? 0 : at + 1;
    }
  }
}

struct norm_lanes {
  float mean[CUDA_LANES], factor[CUDA_LANES], bias[CUDA_LANES];
};

static __device__ void norm_lanes_load(const struct cuda_norm *norm, int64_t i, struct norm_lanes *lanes) {
  int64_t channel[CUDA_LANES];
  lane_channels(&norm->channels, i, channel);
  CUDA_EACH_LANE(k) {
    int64_t c = channel[k];
    lanes->mean[k] = norm->mean[c];
    lanes->factor[k] = norm->variance ? norm->scale[c] / sqrtf(norm->variance[c] + norm->epsilon)
                                      : norm->inv_std[c] * norm->scale[c];
    lanes->bias[k] = norm->bias[c];
  }
}

static __device__ __forceinline__ void norm_store(const struct cuda_norm *norm,
                                                  const struct norm_lanes *lanes, int64_t i,
                                                  const struct cuda_raw_lanes *x,
                                                  const struct cuda_raw_lanes *residual) {
  struct cuda_lanes y;
  CUDA_EACH_LANE(k) {
    y.at[k] = cuda_norm_of(cuda_raw_lane(&norm->x, x, k), lanes->mean[k], lanes->factor[k], lanes->bias[k]);
    if (norm->residual.data)
      y.at[k] += cuda_raw_lane(&norm->residual, residual, k);
    y.at[k] = cuda_activate(&norm->activation, y.at[k]);
  }
  cuda_lanes_store(&norm->y, i, cuda_lanes_left(i, norm->channels.elems), &y);
}

static __global__ void norm_kernel(struct cuda_norm norm, struct walk walk) {
  int64_t elems = norm.channels.elems, vectors = (elems + CUDA_LANES - 1) / CUDA_LANES;
  struct norm_lanes lanes;
  if (CUDA_FIRST >= walk.threads)
    return;
  norm_lanes_load(&norm, CUDA_FIRST * CUDA_LANES, &lanes);
  for (int64_t v = CUDA_FIRST; v < vectors; v += VECTORS * walk.threads) {
    struct cuda_raw_lanes x[VECTORS], residual[VECTORS] = {};
    CUDA_EACH(b, VECTORS) {
      int64_t i = min(v + b * walk.threads, vectors - 1) * CUDA_LANES;
      x[b] = cuda_raw_load(&norm.x, i, cuda_lanes_left(i, elems));
      if (norm.residual.data)
        residual[b] = cuda_raw_load(&norm.residual, i, cuda_lanes_left(i, elems));
    }
    CUDA_EACH(b, VECTORS) {
      int64_t i = (v + b * walk.threads) * CUDA_LANES;
      if (i < elems && !walk.is_steady)
        norm_lanes_load(&norm, i, &lanes);
      if (i < elems)
        norm_store(&norm, &lanes, i, &x[b], &residual[b]);
    }
  }
}

struct grad_lanes {
  float mean[CUDA_LANES], inv_std[CUDA_LANES], factor[CUDA_LANES], bias[CUDA_LANES];
  float dbias[CUDA_LANES], dscale[CUDA_LANES]; /* an element */
};

static __device__ void grad_lanes_load(const struct cuda_norm_grad *grad, int64_t i,
                                       struct grad_lanes *lanes) {
  float n = (float)grad->n;
  int64_t channel[CUDA_LANES];
  lane_channels(&grad->channels, i, channel);
  CUDA_EACH_LANE(k) {
    int64_t c = channel[k];
    lanes->mean[k] = grad->mean[c];
    lanes->inv_std[k] = grad->inv_std[c];
    lanes->factor[k] = grad->inv_std[c] * grad->scale[c];
    lanes->bias[k] = grad->masking.bias ? grad->masking.bias[c] : 0.0f;
    lanes->dbias[k] = grad->dbias[c] / n;
    lanes->dscale[k] = grad->dscale[c] / n;
  }
}

static __device__ __forceinline__ void grad_store(const struct cuda_norm_grad *grad,
                                                  const struct grad_lanes *lanes, int64_t i,
                                                  const struct cuda_raw_lanes *x_raw,
                                                  const struct cuda_raw_lanes *dy_raw) {
  struct cuda_lanes dx;
  CUDA_EACH_LANE(k) {
    float x = cuda_raw_lane(&grad->x, x_raw, k), dy = cuda_raw_lane(&grad->dy, dy_raw, k);
    float x_hat = (x - lanes->mean[k]) * lanes->inv_std[k];
    if (grad->masking.bias)
      dy = cuda_mask(&grad->masking, dy, 0.0f,
                     cuda_norm_again(&grad->masking, x, lanes->mean[k], lanes->factor[k], lanes->bias[k]));
    dx.at[k] = lanes->factor[k] * (dy - lanes->dbias[k] - x_hat * lanes->dscale[k]);
  }
  cuda_lanes_store(&grad->dx, i, cuda_lanes_left(i, grad->channels.elems), &dx);
}

static __global__ void norm_grad_kernel(struct cuda_norm_grad grad, struct walk walk) {
  int64_t elems = grad.channels.elems, vectors = (elems + CUDA_LANES - 1) / CUDA_LANES;
  struct grad_lanes lanes;
  if (CUDA_FIRST >= walk.threads)
    return;
  grad_lanes_load(&grad, CUDA_FIRST * CUDA_LANES, &lanes);
  for (int64_t v = CUDA_FIRST; v < vectors; v += VECTORS * walk.threads) {
    struct cuda_raw_lanes x[VECTORS], dy[VECTORS];
    CUDA_EACH(b, VECTORS) {
      int64_t i = min(v + b * walk.threads, vectors - 1) * CUDA_LANES;
      x[b] = cuda_raw_load(&grad.x, i, cuda_lanes_left(i, elems));
      dy[b] = cuda_raw_load(&grad.dy, i, cuda_lanes_left(i, elems));
    }
    CUDA_EACH(b, VECTORS) {
      int64_t i = (v + b * walk.threads) * CUDA_LANES;
      if (i < elems && !walk.is_steady)
        grad_lanes_load(&grad, i, &lanes);
      if (i < elems)
        grad_store(&grad, &lanes, i, &x[b], &dy[b]);
    }
  }
}

extern "C" void cuda_norm_launch(const struct cuda_norm *norm, cudaStream_t stream) {
  struct walk walk;
  int64_t blocks = walk_plan(&norm->channels, &walk);
  CUDA_LAUNCH(norm_kernel, blocks, CUDA_THREADS, stream, *norm, walk);
}

extern "C" void cuda_norm_grad_launch(const struct cuda_norm_grad *grad, cudaStream_t stream) {
  struct walk walk;
  int64_t blocks = walk_plan(&grad->channels, &walk);
  CUDA_LAUNCH(norm_grad_kernel, blocks, CUDA_THREADS, stream, *grad, walk);
}
