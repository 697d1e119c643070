/* The simulated cuDNN, within itself. */
#ifndef WEIR_TESTS_SIMULATION_CUDA_DNN_H
#define WEIR_TESTS_SIMULATION_CUDA_DNN_H

#include <cudnn.h>

#include "tests/simulation/cuda/number.h"
#include "tests/simulation/cuda/simulation.h"

struct cudnnContext {
  int device;
  cudaStream_t stream;
};

#endif
