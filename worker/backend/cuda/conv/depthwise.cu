/* Depthwise convolutions and the gradients of their inputs. Both are sums over the taps of what they read
   from; they differ in where a tap of an output lies. */
#include "worker/backend/cuda/conv/depthwise.h"

#include "worker/backend/cuda/conv/depthwise.cuh"

enum {
  SIZE_MAX_CONSTANT = 5,
  READ_MAX = (DEPTHWISE_COLUMNS - 1) * 2 + SIZE_MAX_CONSTANT, /* columns that a thread reads of a row */
  WEIGHTS_ROW = DEPTHWISE_TILE + 1,                           /* one more: banks */
  ELEMS_MAX = 1 << 30,
};

/* from -> to: x and y, or dy and dx. */
struct slide {
  struct cuda_depthwise shape;
  struct depthwise_split split;
  bool is_data;
  int from_dim[2], to_dim[2];
  struct cuda_tensor from, to;
  const float *w, *bias;
};

/* What a kernel is compiled for: constants, so that its loops are unrolled and its arrays are registers. */
struct kind {
  int size, stride;
  bool is_data, is_bf16;
};

bool cuda_depthwise_init(struct cuda_depthwise *shape, const struct cuda_conv *conv,
                         enum cuda_layout layout) {
  int64_t in_elems = conv->n * conv->groups * conv->in_elems;
  int64_t out_elems = conv->n * conv->groups * conv->out_elems, weights = conv->groups * conv->taps;
  if (layout != CUDA_CHANNELS_LAST || conv->group_in != 1 || conv->group_out != 1 || conv->in[0] != 1 ||
      conv->kernel[0] != 1 || conv->out[0] != 1 || conv->pad[0] != 0 || in_elems > ELEMS_MAX ||
      out_elems > ELEMS_MAX || weights > ELEMS_MAX || in_elems == 0 || out_elems == 0)
    return false;
  shape->n = (int)conv->n;
  shape->channels = (int)conv->groups;
  shape->taps = (int)conv->taps;
  for (int d = 0; d < 2; d++) {
    shape->in[d] = (int)conv->in[1 + d];
    shape->out[d] = (int)conv->out[1 + d];
    shape->kernel[d] = (int)conv->kernel[1 + d];
    shape->stride[d] = (int)conv->stride[1 + d];
    shape->dilation[d] = (int)conv->dilation[1 + d];
    shape->pad[d] = (int)conv->pad[1 + d];
  }
  return true;
}

/* Columns that a thread reads of a row, and where among them tap k of its output p lies; -1: nowhere. */
static __device__ __forceinline__ int columns_read(struct kind kind) {
  return kind.is_data ? (DEPTHWISE_COLUMNS - 1) / kind.stride + (kind.size - 1) / kind.stride + 1
                      : (DEPTHWISE_COLUMNS - 1) * kind.stride + kind.size;
}

static __device__ __forceinline__ int column_of(struct kind kind, int p, int k) {
  if (!kind.is_data)
    return p * kind.stride + k;
  return (p - k) % kind.stride != 0 ? -1 : (p - k) / kind.stride + (kind.size - 1) / kind.stride;
}

/* The tile's weights, [tap][channel]. */
static __device__ __forceinline__ void weights_load(const struct slide *s, int taps, int tile,
                                                    float4 (*weights)[WEIGHTS_ROW]) {
  int first = tile * s->split.tile * DEPTHWISE_LANES;
  int channels = min(s->split.tile * DEPTHWISE_LANES, s->shape.channels - first);
  for (int i = threadIdx.x; i < channels * taps; i += CUDA_THREADS)
    ((float *)weights[i % taps])[i / taps] = s->w[first * taps + i];
  __syncthreads();
}

static __device__ __forceinline__ void lanes_store(const struct cuda_tensor *to, int lanes, int i,
                                                   const float *x) {
  if (lanes == 1) {
    cuda_store(to, i, x[0]);
  } else if (to->type == CUDA_F32) {
    float4 four = {x[0], x[1], x[2], x[3]};
    *(float4 *)((float *)to->data + i) = four;
  } else {
    uint2 two = {cuda_to_bf16(x[0]) | (uint32_t)cuda_to_bf16(x[1]) << 16,
                 cuda_to_bf16(x[2]) | (uint32_t)cuda_to_bf16(x[3]) << 16};
    *(uint2 *)((uint16_t *)to->data + i) = two;
  }
}

struct sums {
  float at[DEPTHWISE_COLUMNS][DEPTHWISE_LANES];
};

/* A thread's outputs: columns from `column` on, at element `out`; and what it reads: columns from `first` on,
   of the image whose column 0 of row 0 is at element `image`. */
struct reach {
  int row, column, out, first, image;
};

static __device__ __forceinline__ struct reach reach_of(const struct slide *s, struct kind kind, int channel,
                                                        struct depthwise_place place) {
  int pad = s->shape.pad[1], lead = kind.is_data ? pad % kind.stride : 0, channels = s->shape.channels;
  struct reach reach = {};
  reach.row = place.row;
  reach.column = place.group * DEPTHWISE_COLUMNS - lead;
  reach.out = ((place.n * s->to_dim[0] + place.row) * s->to_dim[1] + reach.column) * channels + channel;
  reach.first = kind.is_data ? (reach.column + pad) / kind.stride - (kind.size - 1) / kind.stride
                             : reach.column * kind.stride - pad;
  reach.image = place.n * s->from_dim[0] * s->from_dim[1] * channels + channel;
  return reach;
}

/* Adds the taps of a row of what is read. weights: of the row's taps, from the thread's channels on. */
static __device__ __forceinline__ void row_add(const struct slide *s, struct kind kind,
                                               const struct reach *reach, int row, const float4 *weights,
                                               struct sums *sums) {
  struct depthwise_raw raws[READ_MAX] = {};
  int columns = s->from_dim[1], at = reach->image + (row * columns + reach->first) * s->shape.channels;
  CUDA_EACH(j, columns_read(kind))
  if (row >= 0 && row < s->from_dim[0] && reach->first + j >= 0 && reach->first + j < columns)
    raws[j] = depthwise_load(s->from.data, kind.is_bf16, DEPTHWISE_LANES, at + j * s->shape.channels);
  CUDA_EACH(k, kind.size) {
    float4 w = weights[k * WEIGHTS_ROW];
    const float of_lane[DEPTHWISE_LANES] = {w.x, w.y, w.z, w.w};
    CUDA_EACH(p, DEPTHWISE_COLUMNS)
    if (column_of(kind, p, k) >= 0)
      CUDA_EACH(v, DEPTHWISE_LANES)
    sums->at[p][v] += depthwise_lane(&raws[column_of(kind, p, k)], kind.is_bf16, v) * of_lane[v];
  }
}

static __device__ __forceinline__ void slide_constant(const struct slide *s, struct kind kind,
                                                      float4 (*weights)[WEIGHTS_ROW]) {
  int tile = (int)blockIdx.x % s->split.tiles, slot = threadIdx.x / s->split.tile;
  int lane = threadIdx.x % s->split.tile, vector = tile * s->split.tile + lane;
  int index = (int)blockIdx.x / s->split.tiles * s->split.slots + slot, channel = vector * DEPTHWISE_LANES;
  weights_load(s, kind.size * kind.size, tile, weights);
  if (slot >= s->split.slots || vector >= s->split.vectors || index >= s->split.places)
    return;
  struct reach reach = reach_of(s, kind, channel, depthwise_place_of(&s->split, index));
  float4 bias = s->bias ? *(const float4 *)(s->bias + channel) : float4();
  struct sums sums;
  CUDA_EACH(p, DEPTHWISE_COLUMNS)
  sums.at[p][0] = bias.x, sums.at[p][1] = bias.y, sums.at[p][2] = bias.z, sums.at[p][3] = bias.w;
  CUDA_EACH(k, kind.size) {
    int at = kind.is_data ? reach.row + s->shape.pad[0] - k : reach.row * kind.stride - s->shape.pad[0] + k;
    if (!kind.is_data || at % kind.stride == 0)
      row_add(s, kind, &reach, kind.is_data ? at / kind.stride : at, weights[k * kind.size] + lane, &sums);
  }
  CUDA_EACH(p, DEPTHWISE_COLUMNS)
  if (reach.column + p >= 0 && reach.column + p < s->to_dim[1])
    lanes_store(&s->to, DEPTHWISE_LANES, reach.out + p * s->shape.channels, sums.at[p]);
}

/* Where tap k of dimension d of output `to` lies; negative: nowhere. */
static __device__ __forceinline__ int from_at(const struct slide *s, int d, int to, int k) {
  int stride = s->shape.stride[d], shift = k * s->shape.dilation[d] - s->shape.pad[d];
  int at = s->is_data ? to - shift : to * stride + shift;
  if (s->is_data && at >= 0)
    at = at % stride == 0 ? at / stride : -1;
  return at < s->from_dim[d] ? at : -1;
}

/* Any kernel: `lanes` channels of one output a thread. */
static __device__ __forceinline__ void slide_any(const struct slide *s, int lanes) {
  int slot = threadIdx.x / s->split.tile, index = (int)blockIdx.x / s->split.tiles * s->split.slots + slot;
  int vector = (int)blockIdx.x % s->split.tiles * s->split.tile + threadIdx.x % s->split.tile;
  int channel = vector * lanes, channels = s->shape.channels;
  bool is_bf16 = s->from.type == CUDA_BF16;
  float sums[DEPTHWISE_LANES];
  if (slot >= s->split.slots || vector >= s->split.vectors || index >= s->split.places)
    return;
  struct depthwise_place place = depthwise_place_of(&s->split, index);
  CUDA_EACH(v, lanes) sums[v] = s->bias ? s->bias[channel + v] : 0;
  for (int k0 = 0; k0 < s->shape.kernel[0]; k0++)
    for (int k1 = 0; k1 < s->shape.kernel[1]; k1++) {
      int row = from_at(s, 0, place.row, k0), column = from_at(s, 1, place.group, k1);
      const float *w = s->w + channel * s->shape.taps + k0 * s->shape.kernel[1] + k1;
      if (row < 0 || column < 0)
        continue;
      int from = ((place.n * s->from_dim[0] + row) * s->from_dim[1] + column) * channels + channel;
      struct depthwise_raw raw = depthwise_load(s->from.data, is_bf16, lanes, from);
      CUDA_EACH(v, lanes) sums[v] += depthwise_lane(&raw, is_bf16, v) * w[v * s->shape.taps];
    }
  lanes_store(&s->to, lanes,
              ((place.n * s->to_dim[0] + place.row) * s->to_dim[1] + place.group) * channels + channel, sums);
}

static __global__ void __launch_bounds__(CUDA_THREADS) slide_vectors(struct slide s) {
  slide_any(&s, DEPTHWISE_LANES);
}

static __global__ void __launch_bounds__(CUDA_THREADS) slide_elements(struct slide s) {
  slide_any(&s, 1);
}

/* Pass, size and stride of each kernel of constants. */
#define SLIDES(EACH)                                                                                         \
  EACH(forward, 3, 1)                                                                                        \
  EACH(forward, 3, 2)                                                                                        \
  EACH(forward, 5, 1)                                                                                        \
  EACH(forward, 5, 2)                                                                                        \
  EACH(data, 3, 1)                                                                                           \
  EACH(data, 3, 2)                                                                                           \
  EACH(data, 5, 1)                                                                                           \
  EACH(data, 5, 2)

#define SLIDE_KERNEL(pass, type, size, stride)                                                               \
  static __global__ void __launch_bounds__(CUDA_THREADS)                                                     \
      slide_##pass##_##type##_##size##_##stride(struct slide s) {                                            \
    __shared__ float4 weights[(size) * (size)][WEIGHTS_ROW];                                                 \
    const struct kind kind = {size, stride, is_##pass, is_##type};                                           \
    slide_constant(&s, kind, weights);                                                                       \
  }
#define SLIDE_KERNELS(pass, size, stride)                                                                    \
  SLIDE_KERNEL(pass, f32, size, stride)                                                                      \
  SLIDE_KERNEL(pass, bf16, size, stride)

enum { is_forward = 0, is_data = 1, is_f32 = 0, is_bf16 = 1 };
SLIDES(SLIDE_KERNELS)

static void slide_launch(const struct slide *s, cudaStream_t stream) {
  int64_t blocks = ((int64_t)s->split.places + s->split.slots - 1) / s->split.slots * s->split.tiles;
  int constant = depthwise_constant(&s->shape), step = s->shape.stride[0];
#define SLIDE_LAUNCH(name) CUDA_LAUNCH(slide_##name, blocks, CUDA_THREADS, stream, *s)
#define SLIDE_OF(pass, size, stride)                                                                         \
  if (s->is_data == is_##pass && constant == (size) && step == (stride)) {                                   \
    if (s->from.type == CUDA_BF16)                                                                           \
      SLIDE_LAUNCH(pass##_bf16_##size##_##stride);                                                           \
    else                                                                                                     \
      SLIDE_LAUNCH(pass##_f32_##size##_##stride);                                                            \
  }
  SLIDES(SLIDE_OF)
  if (constant == 0 && depthwise_has_vectors(&s->shape))
    SLIDE_LAUNCH(vectors);
  else if (constant == 0)
    SLIDE_LAUNCH(elements);
}

static struct slide slide_of(const struct cuda_depthwise *shape, const struct cuda_conv_io *io,
                             bool is_data) {
  bool is_constant = depthwise_constant(shape) != 0;
  int lead = is_data && is_constant ? shape->pad[1] % shape->stride[1] : 0;
  int columns = is_constant ? DEPTHWISE_COLUMNS : 1;
  struct slide s = {};
  s.shape = *shape;
  s.is_data = is_data;
  for (int d = 0; d < 2; d++) {
    s.from_dim[d] = is_data ? shape->out[d] : shape->in[d];
    s.to_dim[d] = is_data ? shape->in[d] : shape->out[d];
  }
  s.split = depthwise_split_of(shape, depthwise_has_vectors(shape) ? DEPTHWISE_LANES : 1, s.to_dim[0],
                               (s.to_dim[1] + lead + columns - 1) / columns);
  s.from = is_data ? io->y : io->x;
  s.to = is_data ? io->x : io->y;
  s.w = (const float *)io->w.data;
  s.bias = io->bias;
  return s;
}

void cuda_depthwise_forward_launch(const struct cuda_depthwise *shape, const struct cuda_conv_io *io,
                                   cudaStream_t stream) {
  struct slide s = slide_of(shape, io, false);
  slide_launch(&s, stream);
}

void cuda_depthwise_data_launch(const struct cuda_depthwise *shape, const struct cuda_conv_io *io,
                                cudaStream_t stream) {
  struct slide s = slide_of(shape, io, true);
  slide_launch(&s, stream);
}
