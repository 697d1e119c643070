/* Resizing: a thread for each element of the result, neighbours by neighbours, so that what they read is
   side by side, too, or the same and in the cache. Bytes: the result once, the input about once (an element
   is read by all that it has a weight for, which are neighbours). The gradient has tables of its own, by the
   elements of the input, so that it gathers as well: its sums have an order that does not change. */
#include "worker/backend/cuda/conv/resize.h"

#include "worker/backend/cuda/engine/device.h"

/* The terms of all axes, one combination after another, the last axis first. */
static __device__ float sum_of_terms(const struct cuda_resize *resize, const struct cuda_tensor *from,
                                     int64_t base, const int32_t *at) {
  int term[RESIZE_AXES_MAX], n = resize->n_axes, a = n - 1;
  float sum = 0.0f;
  for (int k = 0; k < n; k++) {
    term[k] = resize->axis[k].first[at[k]];
    if (term[k] == resize->axis[k].first[at[k] + 1])
      return 0.0f;
  }
  do {
    int64_t place = base;
    float weight = 1.0f;
    for (int k = 0; k < n; k++) {
      weight *= resize->axis[k].weight[term[k]];
      place += resize->axis[k].from[term[k]] * resize->axis[k].stride;
    }
    sum += weight * cuda_load(from, place);
    for (a = n - 1; a >= 0 && ++term[a] == resize->axis[a].first[at[a] + 1]; a--)
      term[a] = resize->axis[a].first[at[a]];
  } while (a >= 0);
  return sum;
}

static __global__ void resize_kernel(struct cuda_resize resize, struct cuda_tensor from,
                                     struct cuda_tensor to) {
  for (int64_t i = CUDA_FIRST; i < resize.elems; i += CUDA_STRIDE) {
    int64_t left = i, base = 0, digit[CUDA_RANK_MAX];
    int32_t at[RESIZE_AXES_MAX];
    bool is_outside = false;
    for (int d = resize.rank - 1; d >= 0; d--) {
      digit[d] = cuda_digit(&resize.out[d], &left);
      base += digit[d] * resize.kept[d];
    }
    for (int k = 0; k < resize.n_axes; k++) {
      const struct cuda_resize_axis *axis = &resize.axis[k];
      at[k] = (int32_t)digit[axis->dim];
      is_outside |= axis->is_outside && axis->is_outside[at[k]];
    }
    cuda_store(&to, i, is_outside ? resize.fill : sum_of_terms(&resize, &from, base, at));
  }
}

void cuda_resize_launch(const struct cuda_resize *resize, const struct cuda_tensor *from,
                        const struct cuda_tensor *to, cudaStream_t stream) {
  CUDA_LAUNCH(resize_kernel, cuda_blocks(resize->elems), CUDA_THREADS, stream, *resize, *from, *to);
}
