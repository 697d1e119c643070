/* Places and gathering: each row's index is read and each of its bytes moved once, in pieces of up to 16
   bytes, neighbours by neighbours. */
#include "worker/backend/cuda/moves/places.h"

#include "worker/backend/cuda/engine/device.h"
#include "worker/backend/cuda/engine/integer.cuh"

/* The row of the data that row r belongs to; 0 after a fault. */
static __device__ int64_t place_of(const struct cuda_places *places, int64_t r, struct cuda_fault *fault) {
  int64_t left = r, place = 0, first = r - cuda_divide(&places->period, r) * places->period.by;
  for (int d = places->rank - 1; d >= 0; d--)
    place += cuda_digit(&places->dim[d], &left) * places->stride[d];
  for (int k = 0; k < places->tuple; k++) {
    int64_t at = first * places->tuple + k, index = cuda_integer(&places->indices, at);
    if (index < (places->is_unsigned ? 0 : -places->size[k]) || index >= places->size[k]) {
      cuda_fault_set(fault, places->node, index, at);
      return 0;
    }
    place += (index < 0 ? index + places->size[k] : index) * places->index_stride[k];
  }
  return place;
}

#define GATHER_KERNEL(type)                                                                                  \
  static __global__ void gather_##type(struct cuda_places places, struct cuda_divisor run, const type *data, \
                                       type *out, struct cuda_fault *fault) {                                \
    for (int64_t i = CUDA_FIRST; i < places.rows * run.by; i += CUDA_STRIDE) {                               \
      int64_t r = i, j = cuda_digit(&run, &r);                                                               \
      out[i] = data[place_of(&places, r, fault) * run.by + j];                                               \
    }                                                                                                        \
  }

GATHER_KERNEL(uint8_t)
GATHER_KERNEL(uint16_t)
GATHER_KERNEL(uint32_t)
GATHER_KERNEL(uint64_t)
GATHER_KERNEL(uint4)

void cuda_gather_launch(const struct cuda_places *places, const struct cuda_gather *gather,
                        cudaStream_t stream) {
#define GATHER(type)                                                                                         \
  CUDA_LAUNCH(gather_##type, cuda_blocks(places->rows * gather->run), CUDA_THREADS, stream, *places,         \
              cuda_divisor_of(gather->run), (const type *)gather->data, (type *)gather->out, gather->fault)
  switch (gather->element) {
  case 1:
    GATHER(uint8_t);
    break;
  case 2:
    GATHER(uint16_t);
    break;
  case 4:
    GATHER(uint32_t);
    break;
  case 8:
    GATHER(uint64_t);
    break;
  default:
    GATHER(uint4);
  }
}

static __global__ void keys_kernel(struct cuda_places places, uint32_t *keys, uint32_t *rows,
                                   struct cuda_fault *fault) {
  for (int64_t r = CUDA_FIRST; r < places.rows; r += CUDA_STRIDE) {
    keys[r] = (uint32_t)place_of(&places, r, fault);
    rows[r] = (uint32_t)r;
  }
}

void cuda_places_sort_launch(const struct cuda_places *places, const struct cuda_sorting *sorting,
                             struct cuda_fault *fault, cudaStream_t stream) {
  uint32_t greatest = (uint32_t)(places->data_rows - 1);
  int from = cuda_sort_begin(greatest);
  CUDA_LAUNCH(keys_kernel, cuda_blocks(places->rows), CUDA_THREADS, stream, *places, sorting->keys[from],
              sorting->rows[from], fault);
  cuda_sort_launch(sorting, places->rows, greatest, stream);
}
