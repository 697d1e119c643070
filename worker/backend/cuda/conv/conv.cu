/* Convolutions by plain loops: for depthwise ones, which have too little arithmetic for matrix products, and
   for whatever cuDNN has no algorithm for. */
#include "worker/backend/cuda/conv/conv.h"

#include "worker/backend/cuda/engine/device.h"
#include "worker/backend/cuda/product/matrix.h"

/* Where element [n, c, p] of a tensor lies that has `channels` of `elems` elements. */
static __device__ int64_t place_of(enum cuda_layout layout, int64_t channels, int64_t elems, int64_t n,
                                   int64_t c, int64_t p) {
  return layout == CUDA_CHANNELS_LAST ? (n * elems + p) * channels + c : (n * channels + c) * elems + p;
}

/* The element that lies at i. */
struct element {
  int64_t n, c, p;
};

static __device__ struct element element_at(enum cuda_layout layout, int64_t channels, int64_t elems,
                                            int64_t i) {
  struct element e;
  e.n = i / (channels * elems);
  i %= channels * elems;
  e.c = layout == CUDA_CHANNELS_LAST ? i % channels : i / elems;
  e.p = layout == CUDA_CHANNELS_LAST ? i / channels : i % elems;
  return e;
}

/* Coordinates are ints: divisions of 64 bits would cost more than all else. */
struct spot {
  int at[CUDA_CONV_DIMS];
};

static __device__ struct spot spot_of(int64_t index, const int64_t *dims) {
  struct spot spot;
  int rest = (int)index;
  for (int d = CUDA_CONV_DIMS - 1; d >= 0; d--) {
    spot.at[d] = rest % (int)dims[d];
    rest /= (int)dims[d];
  }
  return spot;
}

/* Where the window at `window` has its tap k of dimension d on the input; negative: beside it. */
static __device__ int input_at(const struct cuda_conv *conv, int d, int window, int k) {
  int at = window * (int)conv->stride[d] - (int)conv->pad[d] + k * (int)conv->dilation[d];
  return at < (int)conv->in[d] ? at : -1;
}

/* The window that has its tap k of dimension d on `input`; -1: there is none. */
static __device__ int window_at(const struct cuda_conv *conv, int d, int input, int k) {
  int at = input + (int)conv->pad[d] - k * (int)conv->dilation[d], stride = (int)conv->stride[d];
  if (at < 0 || at % stride != 0 || at / stride >= (int)conv->out[d])
    return -1;
  return at / stride;
}

__global__ void convolve(struct cuda_conv conv, struct cuda_tensor x, struct cuda_tensor w, const float *bias,
                         struct cuda_tensor y) {
  int64_t in_channels = conv.groups * conv.group_in, out_channels = conv.groups * conv.group_out;
  for (int64_t i = CUDA_FIRST; i < y.elems; i += CUDA_STRIDE) {
    struct element e = element_at(y.layout, out_channels, conv.out_elems, i);
    struct spot o = spot_of(e.p, conv.out);
    int64_t channel = e.c / conv.group_out * conv.group_in, weights = e.c * conv.group_in * conv.taps;
    float sum = bias ? bias[e.c] : 0;
    for (int k0 = 0; k0 < (int)conv.kernel[0]; k0++)
      for (int k1 = 0; k1 < (int)conv.kernel[1]; k1++)
        for (int k2 = 0; k2 < (int)conv.kernel[2]; k2++) {
          int i0 = input_at(&conv, 0, o.at[0], k0), i1 = input_at(&conv, 1, o.at[1], k1);
          int i2 = input_at(&conv, 2, o.at[2], k2);
          int64_t input = (i0 * conv.in[1] + i1) * conv.in[2] + i2;
          int64_t tap = weights + (k0 * conv.kernel[1] + k1) * conv.kernel[2] + k2;
          for (int64_t c = 0; c < conv.group_in && i0 >= 0 && i1 >= 0 && i2 >= 0; c++)
            sum += cuda_load(&x, place_of(x.layout, in_channels, conv.in_elems, e.n, channel + c, input)) *
                   cuda_load(&w, tap + c * conv.taps);
        }
    cuda_store(&y, i, sum);
  }
}

void cuda_conv_forward_launch(const struct cuda_conv *conv, const struct cuda_conv_io *io,
                              cudaStream_t stream) {
  CUDA_LAUNCH(convolve, cuda_blocks(io->y.elems), CUDA_THREADS, stream, *conv, io->x, io->w, io->bias, io->y);
}

__global__ void convolve_data(struct cuda_conv conv, struct cuda_tensor dy, struct cuda_tensor w,
                              const float *bias, struct cuda_tensor dx) {
  int64_t in_channels = conv.groups * conv.group_in, out_channels = conv.groups * conv.group_out;
  for (int64_t i = CUDA_FIRST; i < dx.elems; i += CUDA_STRIDE) {
    struct element e = element_at(dx.layout, in_channels, conv.in_elems, i);
    struct spot in = spot_of(e.p, conv.in);
    int64_t channel = e.c / conv.group_in * conv.group_out, weights = e.c % conv.group_in * conv.taps;
    float sum = bias ? bias[e.c] : 0;
    for (int k0 = 0; k0 < (int)conv.kernel[0]; k0++)
      for (int k1 = 0; k1 < (int)conv.kernel[1]; k1++)
        for (int k2 = 0; k2 < (int)conv.kernel[2]; k2++) {
          int o0 = window_at(&conv, 0, in.at[0], k0), o1 = window_at(&conv, 1, in.at[1], k1);
          int o2 = window_at(&conv, 2, in.at[2], k2);
          int64_t window = (o0 * conv.out[1] + o1) * conv.out[2] + o2;
          int64_t tap = weights + (k0 * conv.kernel[1] + k1) * conv.kernel[2] + k2;
          for (int64_t m = channel; m < channel + conv.group_out && o0 >= 0 && o1 >= 0 && o2 >= 0; m++)
            sum += cuda_load(&dy, place_of(dy.layout, out_channels, conv.out_elems, e.n, m, window)) *
                   cuda_load(&w, m * conv.group_in * conv.taps + tap);
        }
    cuda_store(&dx, i, sum);
  }
}

void cuda_conv_data_launch(const struct cuda_conv *conv, const struct cuda_conv_io *io, cudaStream_t stream) {
  CUDA_LAUNCH(convolve_data, cuda_blocks(io->x.elems), CUDA_THREADS, stream, *conv, io->y, io->w, io->bias,
              io->x);
}

/* The gradient of a weight is a sum over windows of all samples, made in chunks that the shape alone cuts. */
enum { CHUNK_WINDOWS = 4096, CHUNKS_MAX = 64, LANES = 32, ROWS = CUDA_THREADS / LANES };

static int64_t chunks_of(const struct cuda_conv *conv) {
  int64_t chunks = (conv->n * conv->out_elems + CHUNK_WINDOWS - 1) / CHUNK_WINDOWS;
  return chunks < CHUNKS_MAX ? chunks : (int64_t)CHUNKS_MAX;
}

static int64_t weights_of(const struct cuda_conv *conv) {
  return conv->groups * conv->group_out * conv->group_in * conv->taps;
}

size_t cuda_conv_weight_bytes(const struct cuda_conv *conv) {
  return (size_t)(chunks_of(conv) * weights_of(conv)) * sizeof(float);
}

/* What window `at` of all samples adds to the weight of output channel m, input channel c of its group. */
static __device__ float weight_term(const struct cuda_conv *conv, const struct cuda_tensor *x,
                                    const struct cuda_tensor *dy, int64_t m, int64_t c, struct spot tap,
                                    int64_t at) {
  int64_t n = at / conv->out_elems, window = at % conv->out_elems, input = 0;
  int64_t channel = m / conv->group_out * conv->group_in + c;
  struct spot o = spot_of(window, conv->out);
  for (int d = 0; d < CUDA_CONV_DIMS; d++) {
    int i = input_at(conv, d, o.at[d], tap.at[d]);
    if (i < 0)
      return 0;
    input = input * conv->in[d] + i;
  }
  return cuda_load(x, place_of(x->layout, conv->groups * conv->group_in, conv->in_elems, n, channel, input)) *
         cuda_load(dy, place_of(dy->layout, conv->groups * conv->group_out, conv->out_elems, n, m, window));
}

/* A block for each weight and chunk: its threads read neighbours within a channel. */
__global__ void weigh_within(struct cuda_conv conv, struct cuda_tensor x, struct cuda_tensor dy,
                             int64_t weights, int64_t chunks, float *partials) {
  int64_t weight = blockIdx.x / chunks, chunk = blockIdx.x % chunks, windows = conv.n * conv.out_elems;
  int64_t length = (windows + chunks - 1) / chunks, begin = chunk * length;
  int64_t end = begin + length < windows ? begin + length : windows;
  int64_t c = weight / conv.taps % conv.group_in, m = weight / conv.taps / conv.group_in;
  struct spot tap = spot_of(weight % conv.taps, conv.kernel);
  float sum = 0;
  for (int64_t at = begin + threadIdx.x; at < end; at += blockDim.x)
    sum += weight_term(&conv, &x, &dy, m, c, tap, at);
  sum = cuda_block_sum(sum);
  if (threadIdx.x == 0)
    partials[chunk * weights + weight] = sum;
}

/* A block for one weight of each of LANES output channels, and a chunk: its threads read neighbours across
   channels. */
__global__ void weigh_across(struct cuda_conv conv, struct cuda_tensor x, struct cuda_tensor dy,
                             int64_t weights, int64_t chunks, float *partials) {
  __shared__ float sums[ROWS][LANES];
  int lane = threadIdx.x % LANES, row = threadIdx.x / LANES;
  int64_t of_channel = conv.group_in * conv.taps, channels = conv.groups * conv.group_out;
  int64_t chunk = blockIdx.x % chunks, own = blockIdx.x / chunks % of_channel;
  int64_t m = blockIdx.x / chunks / of_channel * LANES + lane, windows = conv.n * conv.out_elems;
  int64_t length = (windows + chunks - 1) / chunks, begin = chunk * length;
  int64_t end = begin + length < windows ? begin + length : windows;
  struct spot tap = spot_of(own % conv.taps, conv.kernel);
  float sum = 0;
  for (int64_t at = begin + row; at < end && m < channels; at += ROWS)
    sum += weight_term(&conv, &x, &dy, m, own / conv.taps, tap, at);
  sums[row][lane] = sum;
  __syncthreads();
  if (row > 0 || m >= channels)
    return;
  for (int r = 1; r < ROWS; r++)
    sum += sums[r][lane];
  partials[chunk * weights + m * of_channel + own] = sum;
}

void cuda_conv_weight_launch(const struct cuda_conv *conv, const struct cuda_conv_io *io, float *partials,
                             cudaStream_t stream) {
  int64_t weights = weights_of(conv), chunks = chunks_of(conv), channels = conv->groups * conv->group_out;
  if (io->y.layout == CUDA_CHANNELS_LAST)
    CUDA_LAUNCH(weigh_across, (channels + LANES - 1) / LANES * conv->group_in * conv->taps * chunks,
                CUDA_THREADS, stream, *conv, io->x, io->y, weights, chunks, partials);
  else
    CUDA_LAUNCH(weigh_within, weights * chunks, CUDA_THREADS, stream, *conv, io->x, io->y, weights, chunks,
                partials);
  cuda_add_chunks_launch(partials, weights, chunks, (float *)io->w.data, stream);
}

struct shift {
  int64_t by[CUDA_CONV_DIMS];
};

__global__ void shift_copy(struct cuda_tensor from, struct cuda_tensor to, struct shift shift) {
  int64_t elems = to.dim[2] * to.dim[3] * to.dim[4], from_elems = from.dim[2] * from.dim[3] * from.dim[4];
  for (int64_t i = CUDA_FIRST; i < to.elems; i += CUDA_STRIDE) {
    struct element e = element_at(to.layout, to.dim[1], elems, i);
    int64_t rest = e.p, index = 0, step = 1;
    bool is_inside = true;
    for (int d = CUDA_CONV_DIMS - 1; d >= 0; d--) {
      int64_t at = rest % to.dim[2 + d] + shift.by[d];
      rest /= to.dim[2 + d];
      is_inside = is_inside && at >= 0 && at < from.dim[2 + d];
      index += at * step;
      step *= from.dim[2 + d];
    }
    cuda_store(&to, i,
               is_inside ? cuda_load(&from, place_of(from.layout, to.dim[1], from_elems, e.n, e.c, index))
                         : 0.0f);
  }
}

void cuda_shift_launch(struct cuda_tensor from, struct cuda_tensor to, const int64_t shift[CUDA_CONV_DIMS],
                       cudaStream_t stream) {
  struct shift by = {{shift[0], shift[1], shift[2]}};
  CUDA_LAUNCH(shift_copy, cuda_blocks(to.elems), CUDA_THREADS, stream, from, to, by);
}
