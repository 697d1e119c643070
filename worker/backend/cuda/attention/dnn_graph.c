/* cuDNN's descriptors of a graph, from tensors to an execution plan. */
#include "worker/backend/cuda/attention/dnn_graph.h"

#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/memory.h"

/* A descriptor for each tensor, two for an operation, one for the graph and a few for its plan. */
enum { DESCRIPTORS_MAX = DNN_TENSORS_MAX + 2 * DNN_OPS_MAX + 8, CONFIGS_MAX = 16 };

struct dnn_graph {
  cudnnStatus_t status; /* the first that is no success */
  cudnnBackendDescriptor_t descriptors[DESCRIPTORS_MAX], tensors[DNN_TENSORS_MAX], ops[DNN_OPS_MAX], plan;
  bool is_bound[DNN_TENSORS_MAX], is_number[DNN_TENSORS_MAX];
  float numbers[DNN_TENSORS_MAX];
  int n_descriptors, n_tensors, n_ops;
  int64_t workspace_bytes;
};

struct dnn_graph *dnn_graph_new(void) {
  return mem_new(sizeof(struct dnn_graph));
}

void dnn_graph_free(struct dnn_graph *graph) {
  if (!graph)
    return;
  if (graph->plan)
    cudnnBackendDestroyDescriptor(graph->plan);
  for (int i = graph->n_descriptors - 1; i >= 0; i--)
    cudnnBackendDestroyDescriptor(graph->descriptors[i]);
  free(graph);
}

static bool is_ok(struct dnn_graph *graph, cudnnStatus_t status) {
  if (!graph->status)
    graph->status = status;
  return !graph->status;
}

/* A descriptor that lives as long as the graph; NULL after an error. */
static cudnnBackendDescriptor_t descriptor_new(struct dnn_graph *graph, cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t descriptor = NULL;
  if (graph->status)
    return NULL;
  CHECK(graph->n_descriptors < DESCRIPTORS_MAX);
  if (is_ok(graph, cudnnBackendCreateDescriptor(type, &descriptor)))
    graph->descriptors[graph->n_descriptors++] = descriptor;
  return descriptor;
}

/* What an attribute of a descriptor is set to. */
struct attribute {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t n;
  const void *values; /* [n] */
};

static void attribute_set(struct dnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                          struct attribute attribute) {
  if (!graph->status)
    is_ok(graph, cudnnBackendSetAttribute(descriptor, attribute.name, attribute.type, attribute.n,
                                          attribute.values));
}

/* An attribute of one value. */
static void value_set(struct dnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                      cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const void *value) {
  attribute_set(graph, descriptor, (struct attribute){name, type, 1, value});
}

static void set_descriptor(struct dnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                           cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
  value_set(graph, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &value);
}

static void descriptor_finalize(struct dnn_graph *graph, cudnnBackendDescriptor_t descriptor) {
  if (!graph->status)
    is_ok(graph, cudnnBackendFinalize(descriptor));
}

static int tensor_add(struct dnn_graph *graph, const struct dnn_tensor *tensor, bool is_virtual,
                      bool is_number) {
  int index = graph->n_tensors++;
  CHECK(index < DNN_TENSORS_MAX);
  int64_t id = index + 1, align_bytes = 16;
  cudnnBackendDescriptor_t it = descriptor_new(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  graph->tensors[index] = it;
  graph->is_bound[index] = !is_virtual;
  graph->is_number[index] = is_number;
  value_set(graph, it, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &tensor->type);
  attribute_set(graph, it,
                (struct attribute){CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DNN_RANK, tensor->dim});
  attribute_set(graph, it,
                (struct attribute){CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DNN_RANK, tensor->stride});
  value_set(graph, it, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &id);
  value_set(graph, it, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &align_bytes);
  if (is_virtual)
    value_set(graph, it, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &is_virtual);
  if (is_number)
    value_set(graph, it, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, &is_number);
  descriptor_finalize(graph, it);
  return index;
}

int dnn_graph_tensor(struct dnn_graph *graph, const struct dnn_tensor *tensor) {
  return tensor_add(graph, tensor, false, false);
}

int dnn_graph_virtual(struct dnn_graph *graph, const struct dnn_tensor *tensor) {
  return tensor_add(graph, tensor, true, false);
}

int dnn_graph_number(struct dnn_graph *graph, float value) {
  struct dnn_tensor one = {.type = CUDNN_DATA_FLOAT, .dim = {1, 1, 1, 1}, .stride = {1, 1, 1, 1}};
  int index = tensor_add(graph, &one, false, true);
  graph->numbers[index] = value;
  return index;
}

static cudnnBackendDescriptor_t op_new(struct dnn_graph *graph, cudnnBackendDescriptorType_t type) {
  CHECK(graph->n_ops < DNN_OPS_MAX);
  return graph->ops[graph->n_ops++] = descriptor_new(graph, type);
}

void dnn_graph_matmul(struct dnn_graph *graph, int a, int b, int product) {
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnBackendDescriptor_t how = descriptor_new(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  value_set(graph, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &compute);
  descriptor_finalize(graph, how);
  cudnnBackendDescriptor_t op = op_new(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, graph->tensors[a]);
  set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, graph->tensors[b]);
  set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, graph->tensors[product]);
  set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  descriptor_finalize(graph, op);
}

void dnn_graph_pointwise(struct dnn_graph *graph, const struct dnn_pointwise *it) {
  cudnnBackendDescriptor_t how = descriptor_new(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  value_set(graph, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &it->mode);
  value_set(graph, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &it->compute);
  if (it->mode == CUDNN_POINTWISE_GEN_INDEX)
    value_set(graph, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, &it->axis);
  descriptor_finalize(graph, how);
  cudnnBackendDescriptor_t op = op_new(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, graph->tensors[it->x]);
  set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, graph->tensors[it->y]);
  if (it->b >= 0)
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, graph->tensors[it->b]);
  if (it->t >= 0)
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, graph->tensors[it->t]);
  descriptor_finalize(graph, op);
}

void dnn_graph_reduce(struct dnn_graph *graph, cudnnReduceTensorOp_t reduction, int x, int y) {
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnBackendDescriptor_t how = descriptor_new(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  value_set(graph, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &compute);
  value_set(graph, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &reduction);
  descriptor_finalize(graph, how);
  cudnnBackendDescriptor_t op = op_new(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set_descriptor(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  set_descriptor(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, graph->tensors[x]);
  set_descriptor(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, graph->tensors[y]);
  descriptor_finalize(graph, op);
}

void dnn_graph_reshape(struct dnn_graph *graph, int x, int y) {
  cudnnBackendDescriptor_t op = op_new(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set_descriptor(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, graph->tensors[x]);
  set_descriptor(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, graph->tensors[y]);
  descriptor_finalize(graph, op);
}

/* The engines for the graph, best first. */
static cudnnBackendDescriptor_t heuristics_new(struct dnn_graph *graph, const struct dnn_target *target) {
  cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  cudnnBackendDescriptor_t whole = descriptor_new(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  attribute_set(graph, whole,
                (struct attribute){CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->n_ops,
                                   graph->ops});
  if (target->handle)
    value_set(graph, whole, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &target->handle);
  descriptor_finalize(graph, whole);
  cudnnBackendDescriptor_t heuristics = descriptor_new(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set_descriptor(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, whole);
  value_set(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
  if (!target->handle)
    set_descriptor(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target->device);
  descriptor_finalize(graph, heuristics);
  return heuristics;
}

/* Whether its engine says that it gives the same bits every time. */
static bool is_same_bits(cudnnBackendDescriptor_t config) {
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  cudnnBackendDescriptor_t engine = NULL;
  int64_t n = 0;
  bool is_same = false;
  if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine))
    return false;
  if (!cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                &engine) &&
      !cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes)) {
    is_same = true;
    for (int64_t i = 0; i < n; i++)
      is_same = is_same && notes[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
  }
  cudnnBackendDestroyDescriptor(engine);
  return is_same;
}

/* A refusal here is no error of the graph's: another engine may take it. */
static bool plan_of(struct dnn_graph *graph, const struct dnn_target *target,
                    cudnnBackendDescriptor_t config) {
  cudnnBackendDescriptor_t plan = NULL;
  int64_t bytes = 0, n = 0;
  if (!target->is_fast && !is_same_bits(config))
    return false;
  if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan))
    return false;
  if (!cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                1, &config) &&
      (!target->handle || !cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                                                    1, &target->handle)) &&
      !cudnnBackendFinalize(plan) &&
      !cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                &bytes) &&
      bytes >= 0 && (size_t)bytes <= target->workspace_max) {
    graph->plan = plan;
    graph->workspace_bytes = bytes;
    return true;
  }
  cudnnBackendDestroyDescriptor(plan);
  return false;
}

bool dnn_graph_plan(struct dnn_graph *graph, const struct dnn_target *target) {
  cudnnBackendDescriptor_t configs[CONFIGS_MAX] = {NULL}, heuristics = heuristics_new(graph, target);
  int64_t n = 0;
  int n_made = 0;
  while (!graph->status && n_made < CONFIGS_MAX)
    if (is_ok(graph, cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[n_made])))
      n_made++;
  if (!graph->status)
    is_ok(graph, cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS_MAX, &n, configs));
  for (int64_t i = 0; i < n && i < CONFIGS_MAX && !graph->status && !graph->plan; i++)
    plan_of(graph, target, configs[i]);
  for (int i = 0; i < n_made; i++)
    cudnnBackendDestroyDescriptor(configs[i]);
  return graph->plan != NULL;
}

cudnnStatus_t dnn_graph_status(const struct dnn_graph *graph) {
  return graph->status;
}

size_t dnn_graph_workspace_bytes(const struct dnn_graph *graph) {
  return (size_t)graph->workspace_bytes;
}

cudnnStatus_t dnn_graph_execute(const struct dnn_graph *graph, cudnnHandle_t handle, void *const *data,
                                void *workspace) {
  void *pointers[DNN_TENSORS_MAX];
  float numbers[DNN_TENSORS_MAX];
  int64_t ids[DNN_TENSORS_MAX], n = 0;
  cudnnBackendDescriptor_t pack = NULL;
  cudnnStatus_t status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
  for (int i = 0; i < graph->n_tensors; i++) {
    if (!graph->is_bound[i])
      continue;
    numbers[i] = graph->numbers[i];
    pointers[n] = graph->is_number[i] ? &numbers[i] : data[i];
    ids[n++] = i + 1;
  }
  if (!status)
    status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n,
                                      pointers);
  if (!status)
    status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
  if (!status)
    status =
        cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  if (!status)
    status = cudnnBackendFinalize(pack);
  if (!status)
    status = cudnnBackendExecute(handle, graph->plan, pack);
  if (pack)
    cudnnBackendDestroyDescriptor(pack);
  return status;
}
