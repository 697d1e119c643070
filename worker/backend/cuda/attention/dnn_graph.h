/* Graphs of operations on tensors of four dimensions, which cuDNN's engines compute as one kernel or a few
   where they know the pattern. usage:
     struct dnn_graph *graph = dnn_graph_new();
     int a = dnn_graph_tensor(graph, &..), b = .., product = dnn_graph_virtual(graph, &..);
     dnn_graph_matmul(graph, a, b, product);
     if (dnn_graph_plan(graph, &target))
       dnn_graph_execute(graph, handle, data, workspace);
   The first error of cuDNN is kept, and all later calls do nothing. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ATTENTION_DNN_GRAPH_H
#define WEIR_WORKER_BACKEND_CUDA_ATTENTION_DNN_GRAPH_H

#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DNN_RANK = 4, DNN_TENSORS_MAX = 48, DNN_OPS_MAX = 40 };

struct dnn_graph;

struct dnn_tensor {
  cudnnDataType_t type;
  int64_t dim[DNN_RANK], stride[DNN_RANK]; /* in elements */
};

/* y = mode(x, b) or, of a SELECT, t ? x : b; -1: none. */
struct dnn_pointwise {
  cudnnPointwiseMode_t mode;
  cudnnDataType_t compute;
  int64_t axis; /* of GEN_INDEX */
  int x, b, t, y;
};

/* The device that a plan is made for, and its terms. */
struct dnn_target {
  cudnnHandle_t handle;            /* NULL: for `device` */
  cudnnBackendDescriptor_t device; /* a description of a device that need not be there */
  bool is_fast;                    /* the bits may differ from one execution to the next */
  size_t workspace_max;            /* bytes */
};

struct dnn_graph *dnn_graph_new(void);
void dnn_graph_free(struct dnn_graph *graph); /* NULL is ignored */

/* Each adds a tensor and returns its number: its place in the data of an execution. */
int dnn_graph_tensor(struct dnn_graph *graph, const struct dnn_tensor *tensor);  /* in device memory */
int dnn_graph_virtual(struct dnn_graph *graph, const struct dnn_tensor *tensor); /* between operations */
int dnn_graph_number(struct dnn_graph *graph, float value);                      /* an f32 of one element */

/* Operations, in the order in which they are added. */
void dnn_graph_matmul(struct dnn_graph *graph, int a, int b, int product);
void dnn_graph_pointwise(struct dnn_graph *graph, const struct dnn_pointwise *op);
/* Over the dimensions in which y has one element. */
void dnn_graph_reduce(struct dnn_graph *graph, cudnnReduceTensorOp_t op, int x, int y);
/* The same elements under other dimensions and strides. */
void dnn_graph_reshape(struct dnn_graph *graph, int x, int y);

/* Settles an engine by cuDNN's own ranking, never by timing. False: none takes the graph on these terms. */
bool dnn_graph_plan(struct dnn_graph *graph, const struct dnn_target *target);
/* cuDNN's first error; SUCCESS where it only had no engine. */
cudnnStatus_t dnn_graph_status(const struct dnn_graph *graph);
size_t dnn_graph_workspace_bytes(const struct dnn_graph *graph); /* of a plan */
/* data[i]: the bytes of tensor i (of virtual ones and numbers: ignored). The plan is for this handle's
 * device. */
cudnnStatus_t dnn_graph_execute(const struct dnn_graph *graph, cudnnHandle_t handle, void *const *data,
                                void *workspace);

#endif
