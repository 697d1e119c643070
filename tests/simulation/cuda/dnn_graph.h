/* The simulated cuDNN's graphs, within themselves. */
#ifndef WEIR_TESTS_SIMULATION_CUDA_DNN_GRAPH_H
#define WEIR_TESTS_SIMULATION_CUDA_DNN_GRAPH_H

#include "tests/simulation/cuda/dnn.h"

enum { PLAY_RANK = 4, PLAY_TENSORS = 64, PLAY_OPS = 48, PLAY_WORKSPACE_BYTES = 1 << 12 };

struct play_tensor {
  int64_t id, dim[PLAY_RANK], stride[PLAY_RANK];
  cudnnDataType_t type;
  bool is_virtual, is_number;
};

/* Its tensors are indices; -1: none. Factors of a product are x and b. */
struct play_op {
  cudnnBackendDescriptorType_t type;
  cudnnPointwiseMode_t mode;
  cudnnReduceTensorOp_t reduction;
  int64_t axis;
  int x, b, t, y;
};

/* A graph of operations without descriptors. */
struct play {
  struct play_tensor tensors[PLAY_TENSORS];
  struct play_op ops[PLAY_OPS];
  int n_tensors, n_ops;
  bool is_any_order; /* products are added in another order each time */
};

/* What it runs on: of each tensor that is not virtual, by index, its bytes, or for a number its value. */
struct play_data {
  void *at[PLAY_TENSORS];
  float numbers[PLAY_TENSORS];
  void *workspace;
};

int64_t play_span(const struct play_tensor *tensor); /* elements from the first to the last */
/* Whether an engine of cuDNN's takes it: the patterns of attention, in bf16. */
bool play_is_supported(const struct play *play);
cudnnStatus_t play_enqueue(cudnnHandle_t handle, const struct play *play, const struct play_data *data);

#endif
