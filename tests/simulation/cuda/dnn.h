/* The simulated cuDNN, within itself. */
#ifndef WEIR_TESTS_SIMULATION_CUDA_DNN_H
#define WEIR_TESTS_SIMULATION_CUDA_DNN_H

#include <cudnn.h>

#include "tests/simulation/cuda/number.h"
#include "tests/simulation/cuda/simulation.h"

enum { DNN_DIMS = 5 }; /* batch, channels, up to three in space */

struct cudnnContext {
  int device;
  cudaStream_t stream;
};

/* Fewer than DNN_DIMS dimensions: those in the middle are 1. */
struct cudnnTensorStruct {
  enum number type;
  int n_dims;
  int64_t dims[DNN_DIMS], strides[DNN_DIMS];
};

struct cudnnFilterStruct {
  struct cudnnTensorStruct tensor;
};

struct cudnnConvolutionStruct {
  int n_spatial, groups;
  int64_t pad[3], stride[3], dilation[3];
  cudnnMathType_t math;
};

/* Of an op that is enqueued on the handle's stream: its status. The reference is taken. */
cudnnStatus_t dnn_enqueue(cudnnHandle_t handle, struct sim_op *op);

/* The whole tensor as dense f32 [n][c][d][h][w], rounded to TF32 if asked; NULL: out of memory. And back:
   to = alpha * dense + beta * to. */
float *dnn_pack(const struct cudnnTensorStruct *tensor, const void *from, bool is_tf32);
void dnn_unpack(const struct cudnnTensorStruct *tensor, const float *dense, void *to, float alpha,
                float beta);
int64_t dnn_elems(const struct cudnnTensorStruct *tensor);
bool dnn_is_device(const struct cudnnTensorStruct *tensor, const void *at);

#endif
