/* Col2Im and its gradient. A thread makes one element of the result, so that nothing needs atomics: of the
   image, from the windows that have it, in their order; of the columns, from the image. */
#include "worker/backend/cuda/conv/col2im.h"
#include "worker/backend/cuda/engine/device.h"

static __device__ __forceinline__ uint32_t elems_of(const int *dim) {
  return (uint32_t)dim[0] * (uint32_t)dim[1] * (uint32_t)dim[2];
}

/* Element i of a box, along each dimension. */
static __device__ __forceinline__ void place_in(const int *dim, uint32_t i, int *at) {
  at[2] = (int)(i % (uint32_t)dim[2]);
  at[1] = (int)(i / (uint32_t)dim[2] % (uint32_t)dim[1]);
  at[0] = (int)(i / (uint32_t)dim[2] / (uint32_t)dim[1]);
}

static __device__ __forceinline__ int64_t index_in(const int *dim, const int *at) {
  return ((int64_t)at[0] * dim[1] + at[1]) * dim[2] + at[2];
}

/* The windows along dimension d that can have an element at `at`: from first to last; not all do with
   dilations. */
static __device__ __forceinline__ void window_range(const struct cuda_col2im *c, int d, int at, int *first,
                                                    int *last) {
  int from_begin = at + c->pad[d], before = from_begin - (c->kernel[d] - 1) * c->dilation[d];
  *first = before <= 0 ? 0 : (before + c->stride[d] - 1) / c->stride[d];
  *last = min(c->out[d] - 1, from_begin / c->stride[d]);
}

/* Which tap of that window an element is, along dimension d; -1: none. */
static __device__ __forceinline__ int tap_of(const struct cuda_col2im *c, int d, int at, int window) {
  int offset = at + c->pad[d] - window * c->stride[d];
  return offset % c->dilation[d] == 0 ? offset / c->dilation[d] : -1;
}

static __global__ void col2im_kernel(struct cuda_col2im c) {
  uint32_t elems = elems_of(c.in), taps = elems_of(c.kernel), windows = elems_of(c.out);
  for (int64_t e = CUDA_FIRST; e < c.planes * elems; e += CUDA_STRIDE) {
    int at[COL2IM_DIMS], first[COL2IM_DIMS], last[COL2IM_DIMS], o[COL2IM_DIMS], tap[COL2IM_DIMS];
    int64_t plane = (uint32_t)e / elems;
    float sum = 0.0f;
    place_in(c.in, (uint32_t)e % elems, at);
    for (int d = 0; d < COL2IM_DIMS; d++)
      window_range(&c, d, at[d], &first[d], &last[d]);
    for (o[0] = first[0]; o[0] <= last[0]; o[0]++) {
      tap[0] = tap_of(&c, 0, at[0], o[0]);
      for (o[1] = first[1]; o[1] <= last[1] && tap[0] >= 0; o[1]++) {
        tap[1] = tap_of(&c, 1, at[1], o[1]);
        for (o[2] = first[2]; o[2] <= last[2] && tap[1] >= 0; o[2]++) {
          tap[2] = tap_of(&c, 2, at[2], o[2]);
          if (tap[2] >= 0)
            sum += cuda_load(&c.columns,
                             (plane * taps + index_in(c.kernel, tap)) * windows + index_in(c.out, o));
        }
      }
    }
    cuda_store(&c.image, e, sum);
  }
}

static __global__ void im2col_kernel(struct cuda_col2im c) {
  uint32_t elems = elems_of(c.in), taps = elems_of(c.kernel), windows = elems_of(c.out);
  for (int64_t e = CUDA_FIRST; e < c.planes * taps * windows; e += CUDA_STRIDE) {
    int o[COL2IM_DIMS], tap[COL2IM_DIMS], at[COL2IM_DIMS];
    int64_t plane = (uint32_t)e / windows / taps;
    bool is_inside = true;
    place_in(c.out, (uint32_t)e % windows, o);
    place_in(c.kernel, (uint32_t)e / windows % taps, tap);
    for (int d = 0; d < COL2IM_DIMS; d++) {
      at[d] = o[d] * c.stride[d] - c.pad[d] + tap[d] * c.dilation[d];
      is_inside = is_inside && at[d] >= 0 && at[d] < c.in[d];
    }
    cuda_store(&c.columns, e, is_inside ? cuda_load(&c.image, plane * elems + index_in(c.in, at)) : 0.0f);
  }
}

extern "C" void cuda_col2im_launch(const struct cuda_col2im *geometry, cudaStream_t stream) {
  CUDA_LAUNCH(col2im_kernel, cuda_blocks(geometry->image.elems), CUDA_THREADS, stream, *geometry);
}

extern "C" void cuda_im2col_launch(const struct cuda_col2im *geometry, cudaStream_t stream) {
  CUDA_LAUNCH(im2col_kernel, cuda_blocks(geometry->columns.elems), CUDA_THREADS, stream, *geometry);
}
