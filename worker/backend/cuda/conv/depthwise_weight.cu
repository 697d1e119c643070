/* Gradients of the weights of depthwise convolutions: sums over windows, of chunks that the shape alone cuts.
   A job is the taps of a kernel's row, or one tap where the kernel is no constant; a block takes several jobs
   of a chunk, so that what one reads lies near for the others. */
#include "worker/backend/cuda/conv/depthwise.h"

#include "worker/backend/cuda/conv/depthwise.cuh"

enum {
  BLOCKS = 1024,   /* fill a GPU a few times over */
  STEPS_LEAST = 4, /* of a thread, before a chunk more is worth its sum */
  JOB_MAX = 5,
  READ_MAX = (DEPTHWISE_COLUMNS - 1) * 2 + JOB_MAX, /* columns that a thread reads of a row */
  ROWS = CUDA_THREADS / CUDA_WARP,
};

struct weigh {
  struct cuda_depthwise shape;
  struct depthwise_split split;
  int jobs, jobs_of_block, job_blocks;
  int walkers; /* threads of a block that share a vector and a job */
  int chunks, chunk_places;
  struct cuda_tensor x, dy;
  float *partials; /* [chunks][taps][channels] */
};

/* What a kernel is compiled for: constants, but for `stride` and `is_bf16` where a job is one tap. */
struct kind {
  int taps, columns, stride; /* of a job, of a place */
  int lanes;
  bool is_bf16;
};

static struct weigh weigh_of(const struct cuda_depthwise *shape) {
  int constant = depthwise_constant(shape), columns = constant ? DEPTHWISE_COLUMNS : 1;
  struct weigh w = {};
  w.shape = *shape;
  w.split = depthwise_split_of(shape, depthwise_has_vectors(shape) ? DEPTHWISE_LANES : 1, shape->out[0],
                               (shape->out[1] + columns - 1) / columns);
  w.jobs = constant ? constant : shape->taps;
  w.jobs_of_block = w.jobs < w.split.slots ? w.jobs : w.split.slots;
  w.job_blocks = (w.jobs + w.jobs_of_block - 1) / w.jobs_of_block;
  w.walkers = w.split.slots / w.jobs_of_block;
  int64_t wanted = BLOCKS / ((int64_t)w.split.tiles * w.job_blocks);
  int64_t most = w.split.places / (w.walkers * STEPS_LEAST);
  w.chunks = (int)(wanted < most ? wanted : most);
  w.chunks = w.chunks > 0 ? w.chunks : 1;
  w.chunk_places = (w.split.places + w.chunks - 1) / w.chunks;
  return w;
}

size_t cuda_depthwise_weight_bytes(const struct cuda_depthwise *shape) {
  return (size_t)weigh_of(shape).chunks * (size_t)shape->channels * (size_t)shape->taps * sizeof(float);
}

struct sums {
  float at[JOB_MAX][DEPTHWISE_LANES];
};

/* What a thread sums: for its channels, the taps of row k0 of the kernel from k1 on. Threads without work
   have no walker. */
struct job {
  int channel, k0, k1, walker;
};

static __device__ __forceinline__ struct job job_of(const struct weigh *w, struct kind kind) {
  int slot = threadIdx.x / w->split.tile, block = (int)blockIdx.x / w->split.tiles % w->job_blocks;
  int vector = (int)blockIdx.x % w->split.tiles * w->split.tile + threadIdx.x % w->split.tile;
  int index = block * w->jobs_of_block + slot % w->jobs_of_block, walker = slot / w->jobs_of_block;
  int tap = index * kind.taps, k0 = tap / w->shape.kernel[1];
  bool is_busy = vector < w->split.vectors && index < w->jobs && walker < w->walkers;
  struct job job = {vector * kind.lanes, k0, tap - k0 * w->shape.kernel[1], is_busy ? walker : -1};
  return job;
}

/* Adds the windows of a place. */
static __device__ __forceinline__ void place_add(const struct weigh *w, struct kind kind, struct job job,
                                                 struct depthwise_place place, struct sums *sums) {
  const struct cuda_depthwise *shape = &w->shape;
  struct depthwise_raw x[READ_MAX] = {}, dy[DEPTHWISE_COLUMNS] = {};
  int row = place.row * shape->stride[0] - shape->pad[0] + job.k0 * shape->dilation[0];
  int column = place.group * kind.columns, channels = shape->channels;
  int first = column * kind.stride - shape->pad[1] + job.k1 * shape->dilation[1];
  int x_at = ((place.n * shape->in[0] + row) * shape->in[1] + first) * channels + job.channel;
  int dy_at = ((place.n * shape->out[0] + place.row) * shape->out[1] + column) * channels + job.channel;
  if (row < 0 || row >= shape->in[0])
    return;
  CUDA_EACH(p, kind.columns)
  if (column + p < shape->out[1])
    dy[p] = depthwise_load(w->dy.data, kind.is_bf16, kind.lanes, dy_at + p * channels);
  CUDA_EACH(j, (kind.columns - 1) * kind.stride + kind.taps)
  if (first + j >= 0 && first + j < shape->in[1])
    x[j] = depthwise_load(w->x.data, kind.is_bf16, kind.lanes, x_at + j * channels);
  CUDA_EACH(t, kind.taps)
  CUDA_EACH(p, kind.columns)
  CUDA_EACH(v, kind.lanes)
  sums->at[t][v] +=
      depthwise_lane(&x[p * kind.stride + t], kind.is_bf16, v) * depthwise_lane(&dy[p], kind.is_bf16, v);
}

/* The first walker of each job adds up what all have, in order. */
static __device__ __forceinline__ void walkers_add(const struct weigh *w, struct kind kind, struct job job,
                                                   int chunk, struct sums *sums) {
  __shared__ float parts[DEPTHWISE_LANES][CUDA_THREADS];
  int channels = w->shape.channels, step = w->jobs_of_block * w->split.tile;
  int64_t tap = (int64_t)chunk * w->shape.taps + job.k0 * w->shape.kernel[1] + job.k1;
  CUDA_EACH(t, kind.taps) {
    __syncthreads(); /* parts of the tap before are read */
    CUDA_EACH(v, kind.lanes) parts[v][threadIdx.x] = sums->at[t][v];
    __syncthreads();
    if (job.walker != 0)
      continue;
    for (int i = 1; i < w->walkers; i++)
      CUDA_EACH(v, kind.lanes) sums->at[t][v] += parts[v][threadIdx.x + i * step];
    CUDA_EACH(v, kind.lanes) w->partials[(tap + t) * channels + job.channel + v] = sums->at[t][v];
  }
}

static __device__ __forceinline__ void weigh_chunk(const struct weigh *w, struct kind kind) {
  struct job job = job_of(w, kind);
  int chunk = (int)blockIdx.x / w->split.tiles / w->job_blocks, begin = chunk * w->chunk_places;
  int end = min(begin + w->chunk_places, w->split.places);
  struct sums sums = {};
  for (int i = begin + job.walker; i < end && job.walker >= 0; i += w->walkers)
    place_add(w, kind, job, depthwise_place_of(&w->split, i), &sums);
  walkers_add(w, kind, job, chunk, &sums);
}

/* Size and stride of each kernel of constants. */
#define WEIGHS(EACH)                                                                                         \
  EACH(3, 1)                                                                                                 \
  EACH(3, 2)                                                                                                 \
  EACH(5, 1)                                                                                                 \
  EACH(5, 2)

#define WEIGH_KERNEL(name, ...)                                                                              \
  static __global__ void __launch_bounds__(CUDA_THREADS) weigh_##name(struct weigh w) {                      \
    const struct kind kind = {__VA_ARGS__};                                                                  \
    weigh_chunk(&w, kind);                                                                                   \
  }
#define WEIGH_KERNELS(size, stride)                                                                          \
  WEIGH_KERNEL(f32_##size##_##stride, size, DEPTHWISE_COLUMNS, stride, DEPTHWISE_LANES, false)               \
  WEIGH_KERNEL(bf16_##size##_##stride, size, DEPTHWISE_COLUMNS, stride, DEPTHWISE_LANES, true)

WEIGHS(WEIGH_KERNELS)
WEIGH_KERNEL(vectors, 1, 1, w.shape.stride[1], DEPTHWISE_LANES, w.x.type == CUDA_BF16)
WEIGH_KERNEL(elements, 1, 1, w.shape.stride[1], 1, w.x.type == CUDA_BF16)

/* dw [channels, taps] */
static __global__ void chunks_add(const float *partials, struct cuda_depthwise shape, int chunks, float *dw) {
  __shared__ float sums[ROWS][CUDA_WARP];
  int lane = threadIdx.x % CUDA_WARP, row = threadIdx.x / CUDA_WARP, weights = shape.channels * shape.taps;
  int i = (int)blockIdx.x * CUDA_WARP + lane;
  float sum = 0;
  for (int chunk = row; chunk < chunks && i < weights; chunk += ROWS)
    sum += partials[(int64_t)chunk * weights + i];
  sums[row][lane] = sum;
  __syncthreads();
  if (row > 0 || i >= weights)
    return;
  for (int r = 1; r < ROWS; r++)
    sum += sums[r][lane];
  dw[i % shape.channels * shape.taps + i / shape.channels] = sum;
}

void cuda_depthwise_weight_launch(const struct cuda_depthwise *shape, const struct cuda_conv_io *io,
                                  float *partials, cudaStream_t stream) {
  struct weigh w = weigh_of(shape);
  int64_t blocks = (int64_t)w.chunks * w.job_blocks * w.split.tiles;
  int constant = depthwise_constant(shape), step = shape->stride[1];
  w.x = io->x;
  w.dy = io->y;
  w.partials = partials;
#define WEIGH_LAUNCH(name) CUDA_LAUNCH(weigh_##name, blocks, CUDA_THREADS, stream, w)
#define WEIGH_OF(size, stride)                                                                               \
  if (constant == (size) && step == (stride)) {                                                              \
    if (w.x.type == CUDA_BF16)                                                                               \
      WEIGH_LAUNCH(bf16_##size##_##stride);                                                                  \
    else                                                                                                     \
      WEIGH_LAUNCH(f32_##size##_##stride);                                                                   \
  }
  WEIGHS(WEIGH_OF)
  if (constant == 0 && depthwise_has_vectors(shape))
    WEIGH_LAUNCH(vectors);
  else if (constant == 0)
    WEIGH_LAUNCH(elements);
  CUDA_LAUNCH(chunks_add, ((int64_t)shape->channels * shape->taps + CUDA_WARP - 1) / CUDA_WARP, CUDA_THREADS,
              stream, (const float *)partials, *shape, w.chunks, (float *)io->w.data);
}
