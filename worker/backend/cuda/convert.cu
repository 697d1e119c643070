/* Tensors from one form to another. */
#include "worker/backend/cuda/convert.h"

#include "worker/backend/cuda/device.h"

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

extern "C" void cuda_convert_launch(struct cuda_tensor from, struct cuda_tensor to, cudaStream_t stream) {
  int64_t channels = from.rank > 1 ? from.dim[1] : 1, places = 1;
  for (int d = 2; d < from.rank; d++)
    places *= from.dim[d];
  if (from.layout == to.layout || channels == 1 || places == 1)
    CUDA_LAUNCH(convert_kernel, cuda_blocks(to.elems), CUDA_THREADS, stream, from, to);
  else if (to.layout == CUDA_CHANNELS_LAST)
    CUDA_LAUNCH(transpose_kernel, cuda_blocks(to.elems), CUDA_THREADS, stream, from, to, channels, places);
  else
    CUDA_LAUNCH(transpose_kernel, cuda_blocks(to.elems), CUDA_THREADS, stream, from, to, places, channels);
}
