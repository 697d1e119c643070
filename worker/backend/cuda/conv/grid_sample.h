/* Samples of tensors at the places of a grid, and their gradients. Read by C and CUDA C. */
#ifndef WEIR_WORKER_BACKEND_CUDA_CONV_GRID_SAMPLE_H
#define WEIR_WORKER_BACKEND_CUDA_CONV_GRID_SAMPLE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "worker/backend/cuda/engine/sort.h"
#include "worker/backend/cuda/engine/tensor.h"

enum { CUDA_GRID_DIMS = 3 };
enum cuda_grid_mode { CUDA_GRID_LINEAR, CUDA_GRID_NEAREST, CUDA_GRID_CUBIC };
enum cuda_grid_padding { CUDA_GRID_ZEROS, CUDA_GRID_BORDER, CUDA_GRID_REFLECTION };

/* The sampler of model/ops/grid_sample.h, which is C alone. Missing dimensions are 1. */
struct cuda_grid_sampler {
  enum cuda_grid_mode mode;
  enum cuda_grid_padding padding;
  bool is_aligned;
  int dims;
  int64_t in[CUDA_GRID_DIMS];
  int64_t n, channels, in_elems, out_elems;
};

struct cuda_grid_sample {
  struct cuda_grid_sampler sampler;
  struct cuda_tensor x, dy, out;
  const float *grid;
  int64_t taps;   /* how many elements of x a sample may be made of */
  float *weights; /* scratch: of each tap of each sample */
};

#ifdef __cplusplus
extern "C" {
#endif
/* x -> out */
void cuda_grid_sample_launch(const struct cuda_grid_sample *sample, cudaStream_t stream);
/* x, dy -> out, the grid's */
void cuda_grid_sample_grid_launch(const struct cuda_grid_sample *sample, cudaStream_t stream);
/* dy -> out, x's; sorting is of as many rows as all samples have taps. */
void cuda_grid_sample_input_launch(const struct cuda_grid_sample *sample, const struct cuda_sorting *sorting,
                                   cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
