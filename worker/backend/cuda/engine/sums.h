/* Sums of ranges of f32, as common/agree/sum.h makes them on the host: subnormals count as zero. Read by C
   and CUDA C. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ENGINE_SUMS_H
#define WEIR_WORKER_BACKEND_CUDA_ENGINE_SUMS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

/* How many ranges the parameters of a kernel have room for; how many elements a block of threads adds. */
enum { CUDA_SUMS_MAX = 100, CUDA_SUM_TILE = 2048 };

/* out f32[elems], in f32[elems] or NULL (out is only looked at), both of the device. */
struct cuda_sum {
  float *out;
  const float *in;
  int64_t elems;
  int64_t end;     /* of its tiles, among those of all: filled by the launcher */
  int *not_finite; /* set to 1 where an element of out is Inf or NaN, else left alone; device memory, or
                      pinned */
};

struct cuda_sums {
  struct cuda_sum ranges[CUDA_SUMS_MAX];
  int n;
};

#ifdef __cplusplus
extern "C" {
#endif
void cuda_sums_launch(struct cuda_sums *sums, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
