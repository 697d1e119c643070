/* Reductions of several arrays along the reduction tree, as worker/collective/reduction.h does on the host.
   Read by C and CUDA C. */
#ifndef WEIR_WORKER_BACKEND_CUDA_NCCL_REDUCTION_H
#define WEIR_WORKER_BACKEND_CUDA_NCCL_REDUCTION_H

#include <cuda_runtime_api.h>
#include <stdint.h>

enum { CUDA_REDUCTION_MAX = 64, CUDA_REDUCTION_DEPTH = 7 };
enum cuda_reduction_kind { CUDA_SUM, CUDA_PRODUCT, CUDA_MAX, CUDA_MIN }; /* as enum collective_reduction */

/* sources f32[elems] each, in device memory -> out f32[elems], which may be one of them. */
struct cuda_reduction {
  enum cuda_reduction_kind kind;
  int n_sources;
  int64_t elems;
  const float *sources[CUDA_REDUCTION_MAX];
  float *out;
};

#ifdef __cplusplus
extern "C" {
#endif
void cuda_reduction_launch(const struct cuda_reduction *reduction, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
