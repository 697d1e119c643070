/* What surrounds matrix products and convolutions: biases, their gradients, and copies of strided tensors. */
#include "worker/backend/cuda/product/matrix.h"

#include "worker/backend/cuda/engine/device.h"

__global__ void add_scaled(struct cuda_tensor out, struct cuda_tensor c, int64_t columns, int64_t row_stride,
                           int64_t column_stride, float beta) {
  for (int64_t i = CUDA_FIRST; i < out.elems; i += CUDA_STRIDE) {
    float addend = cuda_load(&c, i / columns * row_stride + i % columns * column_stride);
    cuda_store(&out, i, cuda_load(&out, i) + beta * addend);
  }
}

void cuda_add_scaled_launch(struct cuda_tensor out, const struct cuda_addend *addend, cudaStream_t stream) {
  CUDA_LAUNCH(add_scaled, cuda_blocks(addend->rows * addend->columns), CUDA_THREADS, stream, out, addend->c,
              addend->columns, addend->row_stride, addend->column_stride, addend->beta);
}

__global__ void add_channels(struct cuda_tensor out, const float *bias, int64_t channels, int64_t inner) {
  for (int64_t i = CUDA_FIRST; i < out.elems; i += CUDA_STRIDE)
    cuda_store(&out, i, cuda_load(&out, i) + bias[i / inner % channels]);
}

void cuda_add_channels_launch(struct cuda_tensor out, const float *bias, int64_t channels, int64_t inner,
                              cudaStream_t stream) {
  CUDA_LAUNCH(add_channels, cuda_blocks(out.elems), CUDA_THREADS, stream, out, bias, channels, inner);
}

/* Sums are made in chunks of positions (o, i), which the shape alone cuts, and the chunks added in order. */
enum { CHUNK_POSITIONS = 2048, CHUNKS_MAX = 128, LANES = 32, ROWS = CUDA_THREADS / LANES };

static int64_t chunks_of(int64_t positions) {
  int64_t chunks = (positions + CHUNK_POSITIONS - 1) / CHUNK_POSITIONS;
  return chunks < CHUNKS_MAX ? chunks : (int64_t)CHUNKS_MAX;
}

size_t cuda_channel_sums_bytes(struct cuda_channel_view as) {
  return (size_t)(chunks_of(as.outer * as.inner) * as.channels) * sizeof(float);
}

/* A block for each channel and chunk: its threads read neighbours within a channel. */
__global__ void sum_within(struct cuda_tensor x, int64_t positions, int64_t channels, int64_t inner,
                           int64_t chunks, float *partials) {
  int64_t channel = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
  int64_t length = (positions + chunks - 1) / chunks, begin = chunk * length;
  int64_t end = begin + length < positions ? begin + length : positions;
  float sum = 0;
  for (int64_t p = begin + threadIdx.x; p < end; p += blockDim.x)
    sum += cuda_load(&x, (p / inner * channels + channel) * inner + p % inner);
  sum = cuda_block_sum(sum);
  if (threadIdx.x == 0)
    partials[chunk * channels + channel] = sum;
}

/* A block for each LANES channels and chunk: its threads read neighbours across channels. */
__global__ void sum_across(struct cuda_tensor x, int64_t positions, int64_t channels, int64_t inner,
                           int64_t chunks, float *partials) {
  __shared__ float sums[ROWS][LANES];
  int lane = threadIdx.x % LANES, row = threadIdx.x / LANES;
  int64_t channel = blockIdx.x / chunks * LANES + lane, chunk = blockIdx.x % chunks;
  int64_t length = (positions + chunks - 1) / chunks, begin = chunk * length;
  int64_t end = begin + length < positions ? begin + length : positions;
  float sum = 0;
  for (int64_t p = begin + row; p < end && channel < channels; p += ROWS)
    sum += cuda_load(&x, (p / inner * channels + channel) * inner + p % inner);
  sums[row][lane] = sum;
  __syncthreads();
  if (row > 0 || channel >= channels)
    return;
  for (int r = 1; r < ROWS; r++)
    sum += sums[r][lane];
  partials[chunk * channels + channel] = sum;
}

__global__ void add_chunks(const float *partials, int64_t channels, int64_t chunks, float *sums) {
  for (int64_t c = CUDA_FIRST; c < channels; c += CUDA_STRIDE) {
    float sum = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++)
      sum += partials[chunk * channels + c];
    sums[c] = sum;
  }
}

void cuda_add_chunks_launch(const float *partials, int64_t n, int64_t chunks, float *sums,
                            cudaStream_t stream) {
  CUDA_LAUNCH(add_chunks, cuda_blocks(n), CUDA_THREADS, stream, partials, n, chunks, sums);
}

void cuda_channel_sums_launch(struct cuda_tensor x, struct cuda_channel_view as, float *partials, float *sums,
                              cudaStream_t stream) {
  int64_t positions = as.outer * as.inner, chunks = chunks_of(positions);
  if (as.inner >= LANES)
    CUDA_LAUNCH(sum_within, as.channels * chunks, CUDA_THREADS, stream, x, positions, as.channels, as.inner,
                chunks, partials);
  else
    CUDA_LAUNCH(sum_across, (as.channels + LANES - 1) / LANES * chunks, CUDA_THREADS, stream, x, positions,
                as.channels, as.inner, chunks, partials);
  cuda_add_chunks_launch(partials, as.channels, chunks, sums, stream);
}

/* What index i of dimensions [from, to) adds to an offset of these strides. */
static __device__ int64_t walk_offset(const int64_t *dim, const int64_t *stride, int from, int to,
                                      int64_t i) {
  int64_t offset = 0;
  for (int d = to - 1; d >= from; d--) {
    offset += i % dim[d] * stride[d];
    i /= dim[d];
  }
  return offset;
}

__global__ void walk_sum(struct cuda_walk walk, struct cuda_tensor from, struct cuda_tensor to, int64_t n,
                         int64_t summed) {
  for (int64_t i = CUDA_FIRST; i < n; i += CUDA_STRIDE) {
    int64_t at = walk_offset(walk.dim, walk.from, 0, walk.kept, i);
    float sum = 0;
    for (int64_t s = 0; s < summed; s++)
      sum += cuda_load(&from, at + walk_offset(walk.dim, walk.from, walk.kept, walk.rank, s));
    cuda_store(&to, walk_offset(walk.dim, walk.to, 0, walk.kept, i), sum);
  }
}

void cuda_walk_sum_launch(struct cuda_walk walk, struct cuda_tensor from, struct cuda_tensor to,
                          cudaStream_t stream) {
  int64_t n = 1, summed = 1;
  for (int d = 0; d < walk.rank; d++)
    *(d < walk.kept ? &n : &summed) *= walk.dim[d];
  CUDA_LAUNCH(walk_sum, cuda_blocks(n), CUDA_THREADS, stream, walk, from, to, n, summed);
}
