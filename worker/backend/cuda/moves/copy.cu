/* Kernels that move elements. Each reads and writes every byte once. Neighbouring threads write neighbouring
   elements, of 16 bytes where runs allow it; where neighbours in the result are far apart in the source (a
   matrix is transposed), blocks of 32 x 32 elements go through shared memory, so that both sides are read and
   written in lines. */
#include "worker/backend/cuda/moves/copy.h"

#include "worker/backend/cuda/engine/device.h"

enum { TILE = 32, TILE_ROWS = CUDA_THREADS / TILE };

/* Defines the kernels of one size of elements. */
#define COPY_KERNELS(type)                                                                                   \
  static __global__ void copy_##type(struct cuda_copy copy, const type *from, type *to) {                    \
    from += copy.from_begin;                                                                                 \
    to += copy.to_begin;                                                                                     \
    for (int64_t i = CUDA_FIRST; i < copy.elems; i += CUDA_STRIDE) {                                         \
      int64_t left = i, source = 0, target = 0;                                                              \
      for (int d = copy.rank - 1; d >= 0; d--) {                                                             \
        int64_t digit = cuda_digit(&copy.divisor[d], &left);                                                 \
        source += digit * copy.from[d];                                                                      \
        target += digit * copy.to[d];                                                                        \
      }                                                                                                      \
      to[target] = from[source];                                                                             \
    }                                                                                                        \
  }                                                                                                          \
  static __global__ void turn_##type(struct cuda_copy copy, struct tiles tiles, const type *from,            \
                                     type *to) {                                                             \
    __shared__ type tile[TILE][TILE + 1];                                                                    \
    int lane = threadIdx.x % TILE, row = threadIdx.x / TILE, last = copy.rank - 1;                           \
    for (int64_t t = blockIdx.x; t < tiles.n; t += gridDim.x) {                                              \
      struct tile at = tile_find(&copy, &tiles, t);                                                          \
      __syncthreads(); /* the tile before is written */                                                      \
      for (int y = row; y < TILE; y += TILE_ROWS)                                                            \
        if (at.a + lane < copy.dim[copy.turned] && at.b + y < copy.dim[last])                                \
          tile[y][lane] = from[at.source + lane + (int64_t)y * copy.from[last]];                             \
      __syncthreads();                                                                                       \
      for (int y = row; y < TILE; y += TILE_ROWS)                                                            \
        if (at.b + lane < copy.dim[last] && at.a + y < copy.dim[copy.turned])                                \
          to[at.target + lane + (int64_t)y * copy.to[copy.turned]] = tile[lane][y];                          \
    }                                                                                                        \
  }                                                                                                          \
  static __global__ void pad_##type(struct cuda_pad pad, const type *from, const type *fill, type *to) {     \
    type value = fill ? *fill : *(const type *)(const void *)&pad.fill;                                      \
    for (int64_t i = CUDA_FIRST; i < pad.elems; i += CUDA_STRIDE) {                                          \
      int64_t target, source = pad_place(&pad, i, &target);                                                  \
      to[target] = source < 0 ? value : from[source];                                                        \
    }                                                                                                        \
  }                                                                                                          \
  static __global__ void fill_##type(type *to, int64_t n, uint64_t bits) {                                   \
    type value = *(const type *)(const void *)&bits;                                                         \
    for (int64_t i = CUDA_FIRST; i < n; i += CUDA_STRIDE)                                                    \
      to[i] = value;                                                                                         \
  }

/* The blocks of a copy that is turned: along dimension `turned` (a) and the last (b), of all other ones. */
struct tiles {
  int64_t n;
  struct cuda_divisor a, b; /* how many */
};

struct tile {
  int64_t a, b; /* where it begins */
  int64_t source, target;
};

static __device__ struct tile tile_find(const struct cuda_copy *copy, const struct tiles *tiles, int64_t t) {
  struct tile tile;
  int last = copy->rank - 1;
  tile.b = cuda_digit(&tiles->b, &t) * TILE;
  tile.a = cuda_digit(&tiles->a, &t) * TILE;
  tile.source = copy->from_begin + tile.a + tile.b * copy->from[last];
  tile.target = copy->to_begin + tile.a * copy->to[copy->turned] + tile.b;
  for (int d = last - 1; d >= 0; d--) {
    if (d == copy->turned)
      continue;
    int64_t digit = cuda_digit(&copy->divisor[d], &t);
    tile.source += digit * copy->from[d];
    tile.target += digit * copy->to[d];
  }
  return tile;
}

/* Where element i among n comes from, which may be beyond them; -1: from nowhere. */
static __device__ int64_t pad_source(enum cuda_pad_mode mode, int64_t i, int64_t n) {
  int64_t period = mode == CUDA_PAD_REFLECT && n > 1 ? 2 * (n - 1) : n;
  if (i >= 0 && i < n)
    return i;
  if (mode == CUDA_PAD_CONSTANT)
    return -1;
  if (mode == CUDA_PAD_EDGE)
    return i < 0 ? 0 : n - 1;
  i = i % period + (i % period < 0 ? period : 0);
  return i < n ? i : period - i;
}

static __device__ int64_t pad_place(const struct cuda_pad *pad, int64_t i, int64_t *target) {
  int64_t source = 0;
  bool is_inside = true;
  *target = 0;
  for (int d = pad->rank - 1; d >= 0; d--) {
    int64_t digit = cuda_digit(&pad->out[d], &i);
    int64_t at = pad_source(pad->mode, digit - pad->before[d], pad->in[d]);
    *target += digit * pad->to[d];
    source += at * pad->from[d];
    is_inside &= at >= 0;
  }
  return is_inside ? source : -1;
}

COPY_KERNELS(uint8_t)
COPY_KERNELS(uint16_t)
COPY_KERNELS(uint32_t)
COPY_KERNELS(uint64_t)

static __global__ void copy_16(struct cuda_copy copy, const uint4 *from, uint4 *to) {
  from += copy.from_begin;
  to += copy.to_begin;
  for (int64_t i = CUDA_FIRST; i < copy.elems; i += CUDA_STRIDE) {
    int64_t left = i, source = 0, target = 0;
    for (int d = copy.rank - 1; d >= 0; d--) {
      int64_t digit = cuda_digit(&copy.divisor[d], &left);
      source += digit * copy.from[d];
      target += digit * copy.to[d];
    }
    to[target] = from[source];
  }
}

/* Calls the kernel of the elements' size. */
#define BY_SIZE(size, call)                                                                                  \
  switch (size) {                                                                                            \
  case 1:                                                                                                    \
    call(uint8_t);                                                                                           \
    break;                                                                                                   \
  case 2:                                                                                                    \
    call(uint16_t);                                                                                          \
    break;                                                                                                   \
  case 4:                                                                                                    \
    call(uint32_t);                                                                                          \
    break;                                                                                                   \
  default:                                                                                                   \
    call(uint64_t);                                                                                          \
  }

static struct tiles tiles_of(const struct cuda_copy *copy) {
  int64_t a = (copy->dim[copy->turned] + TILE - 1) / TILE, b = (copy->dim[copy->rank - 1] + TILE - 1) / TILE;
  int64_t others = copy->elems / copy->dim[copy->turned] / copy->dim[copy->rank - 1];
  struct tiles tiles = {a * b * others, cuda_divisor_of(a), cuda_divisor_of(b)};
  return tiles;
}

void cuda_copy_launch(const struct cuda_copy *copy, const void *from, void *to, cudaStream_t stream) {
#define TURN(type)                                                                                           \
  CUDA_LAUNCH(turn_##type, tiles.n < 65535 ? tiles.n : 65535, CUDA_THREADS, stream, *copy, tiles,            \
              (const type *)from, (type *)to)
#define COPY(type)                                                                                           \
  CUDA_LAUNCH(copy_##type, cuda_blocks(copy->elems), CUDA_THREADS, stream, *copy, (const type *)from,        \
              (type *)to)
  if (copy->turned >= 0) {
    struct tiles tiles = tiles_of(copy);
    BY_SIZE(copy->element, TURN)
  } else if (copy->element == COPY_ELEMENT_MAX) {
    CUDA_LAUNCH(copy_16, cuda_blocks(copy->elems), CUDA_THREADS, stream, *copy, (const uint4 *)from,
                (uint4 *)to);
  } else {
    BY_SIZE(copy->element, COPY)
  }
}

void cuda_fill_launch(void *to, int64_t n, int element, uint64_t value, cudaStream_t stream) {
#define FILL(type) CUDA_LAUNCH(fill_##type, cuda_blocks(n), CUDA_THREADS, stream, (type *)to, n, value)
  BY_SIZE(element, FILL)
}

void cuda_pad_launch(const struct cuda_pad *pad, const void *from, const void *fill, void *to,
                     cudaStream_t stream) {
#define PAD(type)                                                                                            \
  CUDA_LAUNCH(pad_##type, cuda_blocks(pad->elems), CUDA_THREADS, stream, *pad, (const type *)from,           \
              (const type *)fill, (type *)to)
  BY_SIZE(pad->element, PAD)
}
