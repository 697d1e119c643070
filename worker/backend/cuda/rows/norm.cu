/* Batch norm and its gradient, element by element. A thread takes CUDA_LANES neighbouring elements at a time,
   a warp 256: each tensor is read or written once, in whole lines. A grid's threads are as many as make the
   next elements of each lie in the same channels, where that can be: what channels have is read once a
   thread. */
#include "worker/backend/cuda/rows/lanes.cuh"
#include "worker/backend/cuda/rows/norm.cuh"

/* Vectors of lanes whose loads a thread starts before it uses the first. BLOCKS_MAX: two or three a
   multiprocessor at a time, in whole rounds of 132 of them. */
enum { VECTORS = 2, ROUNDS_LEAST = 4 };
static const int64_t BLOCKS_MAX = 792;

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

/* The channels of vector v, where channels lie side by side. */
static __device__ __forceinline__ int64_t vector_channels(const struct cuda_channels *channels, int v) {
  return v % (int)(channels->channels.by / CUDA_LANES) * CUDA_LANES;
}

static __device__ __forceinline__ void norm_floats_load(const struct cuda_norm *norm, int v,
                                                        struct norm_lanes *lanes) {
  int64_t c = vector_channels(&norm->channels, v);
  float scale[CUDA_LANES];
  cuda_floats_load(norm->mean, c, lanes->mean);
  cuda_floats_load(norm->inv_std, c, lanes->factor);
  cuda_floats_load(norm->scale, c, scale);
  cuda_floats_load(norm->bias, c, lanes->bias);
  CUDA_EACH_LANE(k) lanes->factor[k] *= scale[k];
}

static __device__ __forceinline__ struct cuda_lanes norm_vector(const struct cuda_norm *norm,
                                                                const struct norm_lanes *lanes,
                                                                const struct cuda_raw_lanes *x,
                                                                const struct cuda_raw_lanes *residual) {
  struct cuda_lanes y;
  CUDA_EACH_LANE(k) {
    y.at[k] = cuda_norm_of(cuda_raw_lane(&norm->x, x, k), lanes->mean[k], lanes->factor[k], lanes->bias[k]);
    if (norm->residual.type != CUDA_ANY_TYPE)
      y.at[k] += cuda_raw_lane(&norm->residual, residual, k);
    y.at[k] = cuda_activate(&norm->activation, y.at[k]);
  }
  return y;
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
      if (i < elems) {
        struct cuda_lanes y = norm_vector(&norm, &lanes, &x[b], &residual[b]);
        cuda_lanes_store(&norm.y, i, cuda_lanes_left(i, elems), &y);
      }
    }
  }
}

/* All of BF16, in whole vectors, channels last, and next elements of the same channels: most of what trains.
   Types and activation are known when this is compiled. */
static __device__ __forceinline__ void norm_even(struct cuda_norm norm, const int activation,
                                                 const int residual_type, const struct walk *walk) {
  int vectors = (int)(norm.channels.elems / CUDA_LANES), threads = (int)walk->threads,
      first = (int)CUDA_FIRST;
  struct norm_lanes lanes;
  norm.x.type = norm.y.type = CUDA_BF16;
  norm.residual.type = (enum cuda_type)residual_type;
  norm.activation.kind = (enum fused_activation_kind)activation;
  norm_floats_load(&norm, first, &lanes);
  for (int v = first; v < vectors; v += VECTORS * threads) {
    struct cuda_raw_lanes x[VECTORS] = {}, residual[VECTORS] = {};
    CUDA_EACH(b, VECTORS)
    if (v + b * threads < vectors) {
      x[b] = cuda_raw_load(&norm.x, (int64_t)(v + b * threads) * CUDA_LANES, CUDA_LANES);
      if (residual_type == CUDA_BF16)
        residual[b] = cuda_raw_load(&norm.residual, (int64_t)(v + b * threads) * CUDA_LANES, CUDA_LANES);
    }
    CUDA_EACH(b, VECTORS)
    if (v + b * threads < vectors) {
      struct cuda_lanes y = norm_vector(&norm, &lanes, &x[b], &residual[b]);
      cuda_lanes_store(&norm.y, (int64_t)(v + b * threads) * CUDA_LANES, CUDA_LANES, &y);
    }
  }
}

#define NORM_CASE(kind)                                                                                      \
  case kind:                                                                                                 \
    if (norm.residual.type == CUDA_BF16)                                                                     \
      norm_even(norm, kind, CUDA_BF16, &walk);                                                               \
    else                                                                                                     \
      norm_even(norm, kind, CUDA_ANY_TYPE, &walk);                                                           \
    break;

static __global__ void __launch_bounds__(CUDA_THREADS, 3)
    norm_even_kernel(struct cuda_norm norm, struct walk walk) {
  if (CUDA_FIRST >= walk.threads)
    return;
  switch (norm.activation.kind) {
    NORM_CASE(FUSED_NONE)
    NORM_CASE(FUSED_RELU)
    NORM_CASE(FUSED_CLIP)
  }
}

/* dx = factor dy + slope (x - mean) + shift */
struct grad_lanes {
  float mean[CUDA_LANES], factor[CUDA_LANES], bias[CUDA_LANES];
  float slope[CUDA_LANES], shift[CUDA_LANES];
};

/* Lane k from what its channel has. */
static __device__ __forceinline__ void grad_lane_init(struct grad_lanes *lanes, int k, float inv_std,
                                                      float scale, const float means[2]) {
  lanes->factor[k] = inv_std * scale;
  lanes->slope[k] = -lanes->factor[k] * (inv_std * means[0]);
  lanes->shift[k] = -lanes->factor[k] * means[1];
}

static __device__ void grad_lanes_load(const struct cuda_norm_grad *grad, int64_t i,
                                       struct grad_lanes *lanes) {
  float n = (float)grad->n;
  int64_t channel[CUDA_LANES];
  lane_channels(&grad->channels, i, channel);
  CUDA_EACH_LANE(k) {
    int64_t c = channel[k];
    float means[2] = {grad->dscale[c] / n, grad->dbias[c] / n};
    lanes->mean[k] = grad->mean[c];
    lanes->bias[k] = grad->masking.bias ? grad->masking.bias[c] : 0.0f;
    grad_lane_init(lanes, k, grad->inv_std[c], grad->scale[c], means);
  }
}

static __device__ __forceinline__ void
grad_floats_load(const struct cuda_norm_grad *grad, const bool is_masked, int v, struct grad_lanes *lanes) {
  int64_t c = vector_channels(&grad->channels, v);
  float n = 1.0f / (float)grad->n;
  float inv_std[CUDA_LANES], scale[CUDA_LANES], dscale[CUDA_LANES], dbias[CUDA_LANES];
  cuda_floats_load(grad->mean, c, lanes->mean);
  cuda_floats_load(grad->inv_std, c, inv_std);
  cuda_floats_load(grad->scale, c, scale);
  cuda_floats_load(grad->dscale, c, dscale);
  cuda_floats_load(grad->dbias, c, dbias);
  if (is_masked)
    cuda_floats_load(grad->masking.bias, c, lanes->bias);
  CUDA_EACH_LANE(k) {
    float means[2] = {dscale[k] * n, dbias[k] * n};
    grad_lane_init(lanes, k, inv_std[k], scale[k], means);
  }
}

static __device__ __forceinline__ float grad_lane(const struct grad_lanes *lanes, int k, float x, float dy) {
  return fmaf(lanes->factor[k], dy, fmaf(lanes->slope[k], x - lanes->mean[k], lanes->shift[k]));
}

static __device__ __forceinline__ void grad_store(const struct cuda_norm_grad *grad,
                                                  const struct grad_lanes *lanes, int64_t i,
                                                  const struct cuda_raw_lanes *x_raw,
                                                  const struct cuda_raw_lanes *dy_raw) {
  struct cuda_lanes dx;
  CUDA_EACH_LANE(k) {
    float x = cuda_raw_lane(&grad->x, x_raw, k), dy = cuda_raw_lane(&grad->dy, dy_raw, k);
    if (grad->masking.bias)
      dy = cuda_mask(&grad->masking, dy, 0.0f,
                     cuda_norm_again(&grad->masking, x, lanes->mean[k], lanes->factor[k], lanes->bias[k]));
    dx.at[k] = grad_lane(lanes, k, x, dy);
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

/* A vector of the even kernel; gate: NULL where dy is not masked. */
static __device__ __forceinline__ struct cuda_lanes grad_even_vector(const struct cuda_norm_grad *grad,
                                                                     const struct cuda_gate *gate,
                                                                     const struct grad_lanes *lanes,
                                                                     const struct cuda_raw_lanes *x_raw,
                                                                     const struct cuda_raw_lanes *dy_raw) {
  struct cuda_lanes dx;
  CUDA_EACH_LANE(k) {
    float x = cuda_raw_lane(&grad->x, x_raw, k), dy = cuda_raw_lane(&grad->dy, dy_raw, k);
    if (gate)
      dy = cuda_gated(gate, dy, cuda_norm_of(x, lanes->mean[k], lanes->factor[k], lanes->bias[k]));
    dx.at[k] = grad_lane(lanes, k, x, dy);
  }
  return dx;
}

/* As norm_even. */
static __device__ __forceinline__ void grad_even(struct cuda_norm_grad grad, const struct walk *walk,
                                                 const struct cuda_gate *gate) {
  int vectors = (int)(grad.channels.elems / CUDA_LANES), threads = (int)walk->threads,
      first = (int)CUDA_FIRST;
  struct grad_lanes lanes;
  grad.x.type = grad.dy.type = grad.dx.type = CUDA_BF16;
  grad_floats_load(&grad, gate != NULL, first, &lanes);
  for (int v = first; v < vectors; v += VECTORS * threads) {
    struct cuda_raw_lanes x[VECTORS] = {}, dy[VECTORS] = {};
    CUDA_EACH(b, VECTORS)
    if (v + b * threads < vectors) {
      x[b] = cuda_raw_load(&grad.x, (int64_t)(v + b * threads) * CUDA_LANES, CUDA_LANES);
      dy[b] = cuda_raw_load(&grad.dy, (int64_t)(v + b * threads) * CUDA_LANES, CUDA_LANES);
    }
    CUDA_EACH(b, VECTORS)
    if (v + b * threads < vectors) {
      struct cuda_lanes dx = grad_even_vector(&grad, gate, &lanes, &x[b], &dy[b]);
      cuda_lanes_store(&grad.dx, (int64_t)(v + b * threads) * CUDA_LANES, CUDA_LANES, &dx);
    }
  }
}

static __global__ void __launch_bounds__(CUDA_THREADS, 3)
    norm_grad_even_kernel(struct cuda_norm_grad grad, struct walk walk, struct cuda_gate gate) {
  if (CUDA_FIRST >= walk.threads)
    return;
  if (grad.masking.bias)
    grad_even(grad, &walk, &gate);
  else
    grad_even(grad, &walk, NULL);
}

/* What the even kernels ask of channels. */
static bool is_even(const struct cuda_channels *channels, const struct walk *walk) {
  return walk->is_steady && channels->inner.by == 1 && channels->elems < (int64_t)1 << 31;
}

static bool norm_is_even(const struct cuda_norm *norm, const struct walk *walk) {
  return is_even(&norm->channels, walk) && norm->x.type == CUDA_BF16 && norm->y.type == CUDA_BF16 &&
         norm->inv_std && (!norm->residual.data || norm->residual.type == CUDA_BF16);
}

static bool grad_is_even(const struct cuda_norm_grad *grad, const struct walk *walk, struct cuda_gate *gate) {
  return is_even(&grad->channels, walk) && grad->x.type == CUDA_BF16 && grad->dy.type == CUDA_BF16 &&
         grad->dx.type == CUDA_BF16 && (!grad->masking.bias || cuda_gate_of(&grad->masking, gate));
}

extern "C" void cuda_norm_launch(const struct cuda_norm *norm, cudaStream_t stream) {
  struct walk walk;
  int64_t blocks = walk_plan(&norm->channels, &walk);
  if (norm_is_even(norm, &walk))
    CUDA_LAUNCH(norm_even_kernel, blocks, CUDA_THREADS, stream, *norm, walk);
  else
    CUDA_LAUNCH(norm_kernel, blocks, CUDA_THREADS, stream, *norm, walk);
}

extern "C" void cuda_norm_grad_launch(const struct cuda_norm_grad *grad, cudaStream_t stream) {
  struct cuda_gate gate = {};
  struct walk walk;
  int64_t blocks = walk_plan(&grad->channels, &walk);
  if (grad_is_even(grad, &walk, &gate))
    CUDA_LAUNCH(norm_grad_even_kernel, blocks, CUDA_THREADS, stream, *grad, walk, gate);
  else
    CUDA_LAUNCH(norm_grad_kernel, blocks, CUDA_THREADS, stream, *grad, walk);
}
