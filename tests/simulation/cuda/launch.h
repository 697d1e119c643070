/* A kernel's launch, between the .cu files, which are C++ here, and the simulated device. */
#ifndef WEIR_TESTS_SIMULATION_CUDA_LAUNCH_H
#define WEIR_TESTS_SIMULATION_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stddef.h>

struct sim_launch {
  const char *name; /* the kernel's */
  unsigned blocks, threads;
  void (*call)(const void *arguments); /* runs the kernel as one thread */
  void *arguments;                     /* of sim_arguments_new */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Runs the kernel's threads in the stream's turn, and frees the arguments when nobody needs them. Geometry
   that no GPU takes and a stream of another device are reported, as cudaGetLastError's error, too. */
void sim_launch_enqueue(const struct sim_launch *launch, cudaStream_t stream);
void *sim_arguments_new(size_t size);

#ifdef __cplusplus
}
#endif

#endif
