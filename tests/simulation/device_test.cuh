/* Kernels for device_test, right and wrong. */
#ifndef WEIR_TESTS_SIMULATION_DEVICE_TEST_CUH
#define WEIR_TESTS_SIMULATION_DEVICE_TEST_CUH

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/engine/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] = in[i] + x */
void test_add_launch(float *out, const float *in, float x, int n, cudaStream_t stream);
/* out[b] = the sum of in[b * width ..] */
void test_sum_launch(float *out, const float *in, int rows, int width, cudaStream_t stream);
/* out[i] = in[n - 1 - i] within one block, by shared memory; without the barrier that it needs, where asked.
 */
void test_reverse_launch(float *out, const float *in, int n, int has_barrier, cudaStream_t stream);
/* A barrier, and a shuffle, that half of the threads come to. */
void test_diverge_launch(float *out, int by_shuffle, cudaStream_t stream);
/* counts[0] = how many of 0 .. n-1 are multiples of 3, by ballots and atomics. */
void test_count_launch(int *counts, int n, cudaStream_t stream);
/* Each thread sets faults[0], of value 100 and place 200 and its index; faults[1]: as it was meanwhile. */
void test_fault_launch(struct cuda_fault *faults, int node, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
