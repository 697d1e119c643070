/* Tensors from one form to another. */
#include "worker/backend/cuda/engine/convert.h"

#include "worker/backend/cuda/engine/device.h"

/* Element i of the bytes, whatever its type, with the bits that it has. */
static __device__ void copy_bits(const struct cuda_tensor *to, int64_t i, const struct cuda_tensor *from,
                                 int64_t j) {
  if (to->type == CUDA_F64 || to->type == CUDA_I64)
    ((uint64_t *)to->data)[i] = ((const uint64_t *)from->data)[j];
  else if (to->type == CUDA_F32 || to->type == CUDA_I32)
    ((uint32_t *)to->data)[i] = ((const uint32_t *)from->data)[j];
  else if (to->type == CUDA_BF16)
    ((uint16_t *)to->data)[i] = ((const uint16_t *)from->data)[j];
  else
    ((uint8_t *)to->data)[i] = ((const uint8_t *)from->data)[j];
}

static __device__ void copy_element(const struct cuda_tensor *to, int64_t i, const struct cuda_tensor *from,
                                    int64_t j) {
  if (to->type == from->type)
    copy_bits(to, i, from, j);
  else
    cuda_store(to, i, cuda_load(from, j));
}

static __global__ void convert_kernel(struct cuda_tensor from, struct cuda_tensor to) {
  for (int64_t i = CUDA_FIRST; i < to.elems; i += CUDA_STRIDE)
    copy_element(&to, i, &from, i);
}

/* [batch,rows,columns] to [batch,columns,rows]. */
static __global__ void transpose_kernel(struct cuda_tensor from, struct cuda_tensor to, int64_t rows,
                                        int64_t columns) {
  int64_t plane = rows * columns;
  for (int64_t i = CUDA_FIRST; i < to.elems; i += CUDA_STRIDE) {
    int64_t batch = i / plane, column = i % plane / rows, row = i % rows;
    copy_element(&to, i, &from, batch * plane + row * columns + column);
  }
}

enum { TILE = 32, TILE_ROWS = CUDA_THREADS / TILE };

/* The same of F32 and BF16, through tiles in shared memory: reads and writes are both in a row. A tile has a
   column too many, so that its columns lie in different banks. */
static __global__ void transpose_tiles_kernel(struct cuda_tensor from, struct cuda_tensor to, int64_t rows,
                                              int64_t columns) {
  __shared__ float tile[TILE][TILE + 1];
  int64_t down = (rows + TILE - 1) / TILE, across = (columns + TILE - 1) / TILE;
  int64_t plane = rows * columns, tiles = from.elems / plane * down * across;
  int lane = threadIdx.x % TILE, warp = threadIdx.x / TILE;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    int64_t base = t / (down * across) * plane;
    int64_t row = t / across % down * TILE, column = t % across * TILE;
    for (int r = warp; r < TILE; r += TILE_ROWS)
      if (row + r < rows && column + lane < columns)
        tile[r][lane] = cuda_load(&from, base + (row + r) * columns + column + lane);
    __syncthreads();
    for (int c = warp; c < TILE; c += TILE_ROWS)
      if (column + c < columns && row + lane < rows)
        cuda_store(&to, base + (column + c) * rows + row + lane, tile[lane][c]);
    __syncthreads();
  }
}

/* Tiles pay where most of each is used. */
enum { TILED_MIN = 8 };

static void transpose_launch(struct cuda_tensor from, struct cuda_tensor to, int64_t rows, int64_t columns,
                             cudaStream_t stream) {
  int64_t tiles = from.elems / (rows * columns) * ((rows + TILE - 1) / TILE) * ((columns + TILE - 1) / TILE);
  bool is_real = (from.type == CUDA_F32 || from.type == CUDA_BF16);
  if (is_real && rows >= TILED_MIN && columns >= TILED_MIN)
    CUDA_LAUNCH(transpose_tiles_kernel, cuda_blocks(tiles * CUDA_THREADS), CUDA_THREADS, stream, from, to,
                rows, columns);
  else
    CUDA_LAUNCH(transpose_kernel, cuda_blocks(to.elems), CUDA_THREADS, stream, from, to, rows, columns);
}

extern "C" void cuda_convert_launch(struct cuda_tensor from, struct cuda_tensor to, cudaStream_t stream) {
  int64_t channels = from.rank > 1 ? from.dim[1] : 1, places = 1;
  for (int d = 2; d < from.rank; d++)
    places *= from.dim[d];
  if (from.layout != to.layout && (from.layout == CUDA_TURNED || to.layout == CUDA_TURNED)) {
    int64_t rows = from.dim[from.rank - 2], columns = from.dim[from.rank - 1];
    transpose_launch(from, to, to.layout == CUDA_TURNED ? rows : columns,
                     to.layout == CUDA_TURNED ? columns : rows, stream);
  } else if (from.layout == to.layout || channels == 1 || places == 1)
    CUDA_LAUNCH(convert_kernel, cuda_blocks(to.elems), CUDA_THREADS, stream, from, to);
  else if (to.layout == CUDA_CHANNELS_LAST)
    transpose_launch(from, to, channels, places, stream);
  else
    transpose_launch(from, to, places, channels, stream);
}
