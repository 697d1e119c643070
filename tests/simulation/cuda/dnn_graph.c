/* Of cuDNN's graph API: descriptors, what they demand before they are finalized, and plans. */
#include "tests/simulation/cuda/dnn_graph.h"

#include <stddef.h>
#include <stdlib.h>

#include "common/base/memory.h"

enum { ENGINES = 2 }; /* the first does not repeat its bits, and says so */

struct descriptor {
  cudnnBackendDescriptorType_t type;
  bool is_final;
  uint64_t is_set; /* by rows of attributes */
  struct play_tensor tensor;
  struct play_op op; /* of a pointwise, reduction or operation descriptor */
  cudnnDataType_t compute;
  struct descriptor *how, *x, *b, *t, *y; /* of an operation */
  struct descriptor *ops[PLAY_OPS], *graph, *config;
  cudnnHandle_t handle;
  cudnnBackendHeurMode_t heuristics;
  int64_t n_ops, engine;
  struct play play; /* of a graph, and what is made of it */
  void *pointers[PLAY_TENSORS], *workspace;
  int64_t ids[PLAY_TENSORS], n_pointers, n_ids, align_bytes;
};

/* How an attribute is kept. n_at: where the count goes, 0: it is exactly `n`. */
struct attribute {
  cudnnBackendAttributeName_t name;
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeType_t type;
  size_t at, size;
  int64_t n;
  size_t n_at;
  bool is_needed;
};

#define FIELD(member) offsetof(struct descriptor, member), sizeof(((struct descriptor *)0)->member)
#define LIST(member, count)                                                                                  \
  offsetof(struct descriptor, member), sizeof(((struct descriptor *)0)->member[0]),                          \
      sizeof(((struct descriptor *)0)->member) / sizeof(((struct descriptor *)0)->member[0]),                \
      offsetof(struct descriptor, count)
#define OF(name) CUDNN_BACKEND_##name##_DESCRIPTOR
#define DESCRIPTOR CUDNN_TYPE_BACKEND_DESCRIPTOR

static const struct attribute attributes[] = {
    {CUDNN_ATTR_TENSOR_DATA_TYPE, OF(TENSOR), CUDNN_TYPE_DATA_TYPE, FIELD(tensor.type), 1, 0, true},
    {CUDNN_ATTR_TENSOR_DIMENSIONS, OF(TENSOR), CUDNN_TYPE_INT64, offsetof(struct descriptor, tensor.dim), 8,
     PLAY_RANK, 0, true},
    {CUDNN_ATTR_TENSOR_STRIDES, OF(TENSOR), CUDNN_TYPE_INT64, offsetof(struct descriptor, tensor.stride), 8,
     PLAY_RANK, 0, true},
    {CUDNN_ATTR_TENSOR_UNIQUE_ID, OF(TENSOR), CUDNN_TYPE_INT64, FIELD(tensor.id), 1, 0, true},
    {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, OF(TENSOR), CUDNN_TYPE_INT64, FIELD(align_bytes), 1, 0, true},
    {CUDNN_ATTR_TENSOR_IS_VIRTUAL, OF(TENSOR), CUDNN_TYPE_BOOLEAN, FIELD(tensor.is_virtual), 1, 0, false},
    {CUDNN_ATTR_TENSOR_IS_BY_VALUE, OF(TENSOR), CUDNN_TYPE_BOOLEAN, FIELD(tensor.is_number), 1, 0, false},
    {CUDNN_ATTR_MATMUL_COMP_TYPE, OF(MATMUL), CUDNN_TYPE_DATA_TYPE, FIELD(compute), 1, 0, true},
    {CUDNN_ATTR_POINTWISE_MODE, OF(POINTWISE), CUDNN_TYPE_POINTWISE_MODE, FIELD(op.mode), 1, 0, true},
    {CUDNN_ATTR_POINTWISE_MATH_PREC, OF(POINTWISE), CUDNN_TYPE_DATA_TYPE, FIELD(compute), 1, 0, true},
    {CUDNN_ATTR_POINTWISE_AXIS, OF(POINTWISE), CUDNN_TYPE_INT64, FIELD(op.axis), 1, 0, false},
    {CUDNN_ATTR_REDUCTION_COMP_TYPE, OF(REDUCTION), CUDNN_TYPE_DATA_TYPE, FIELD(compute), 1, 0, true},
    {CUDNN_ATTR_REDUCTION_OPERATOR, OF(REDUCTION), CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, FIELD(op.reduction), 1,
     0, true},
    {CUDNN_ATTR_OPERATION_MATMUL_ADESC, OF(OPERATION_MATMUL), DESCRIPTOR, FIELD(x), 1, 0, true},
    {CUDNN_ATTR_OPERATION_MATMUL_BDESC, OF(OPERATION_MATMUL), DESCRIPTOR, FIELD(b), 1, 0, true},
    {CUDNN_ATTR_OPERATION_MATMUL_CDESC, OF(OPERATION_MATMUL), DESCRIPTOR, FIELD(y), 1, 0, true},
    {CUDNN_ATTR_OPERATION_MATMUL_DESC, OF(OPERATION_MATMUL), DESCRIPTOR, FIELD(how), 1, 0, true},
    {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, OF(OPERATION_POINTWISE), DESCRIPTOR, FIELD(how), 1, 0,
     true},
    {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, OF(OPERATION_POINTWISE), DESCRIPTOR, FIELD(x), 1, 0, true},
    {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, OF(OPERATION_POINTWISE), DESCRIPTOR, FIELD(y), 1, 0, true},
    {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, OF(OPERATION_POINTWISE), DESCRIPTOR, FIELD(b), 1, 0, false},
    {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, OF(OPERATION_POINTWISE), DESCRIPTOR, FIELD(t), 1, 0, false},
    {CUDNN_ATTR_OPERATION_REDUCTION_DESC, OF(OPERATION_REDUCTION), DESCRIPTOR, FIELD(how), 1, 0, true},
    {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, OF(OPERATION_REDUCTION), DESCRIPTOR, FIELD(x), 1, 0, true},
    {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, OF(OPERATION_REDUCTION), DESCRIPTOR, FIELD(y), 1, 0, true},
    {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, OF(OPERATION_RESHAPE), DESCRIPTOR, FIELD(x), 1, 0, true},
    {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, OF(OPERATION_RESHAPE), DESCRIPTOR, FIELD(y), 1, 0, true},
    {CUDNN_ATTR_OPERATIONGRAPH_OPS, OF(OPERATIONGRAPH), DESCRIPTOR, LIST(ops, n_ops), true},
    {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, OF(OPERATIONGRAPH), CUDNN_TYPE_HANDLE, FIELD(handle), 1, 0, true},
    {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, OF(ENGINEHEUR), DESCRIPTOR, FIELD(graph), 1, 0, true},
    {CUDNN_ATTR_ENGINEHEUR_MODE, OF(ENGINEHEUR), CUDNN_TYPE_HEUR_MODE, FIELD(heuristics), 1, 0, true},
    {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, OF(EXECUTION_PLAN), DESCRIPTOR, FIELD(config), 1, 0, true},
    {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, OF(EXECUTION_PLAN), CUDNN_TYPE_HANDLE, FIELD(handle), 1, 0, true},
    {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, OF(VARIANT_PACK), CUDNN_TYPE_VOID_PTR, LIST(pointers, n_pointers),
     true},
    {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, OF(VARIANT_PACK), CUDNN_TYPE_INT64, LIST(ids, n_ids), true},
    {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, OF(VARIANT_PACK), CUDNN_TYPE_VOID_PTR, FIELD(workspace), 1, 0, true},
};
enum { ATTRIBUTES = sizeof attributes / sizeof *attributes };
_Static_assert(ATTRIBUTES <= 64, "is_set");

static cudnnStatus_t refuse(cudnnStatus_t status, const char *what, int which) {
  sim_complain("cuDNN's graph API: %s (%d)", what, which);
  return status;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out) {
  struct descriptor *descriptor = mem_new(sizeof *descriptor);
  descriptor->type = type;
  *out = descriptor;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  free(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t opaque, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *values) {
  struct descriptor *it = opaque;
  int row = 0;
  while (row < ATTRIBUTES && attributes[row].name != name)
    row++;
  if (row == ATTRIBUTES)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "this attribute is not simulated", (int)name);
  const struct attribute *attribute = &attributes[row];
  if (!it || it->is_final || it->type != attribute->of || type != attribute->type || !values || n < 1 ||
      n > attribute->n || (!attribute->n_at && n != attribute->n))
    return refuse(CUDNN_STATUS_BAD_PARAM, "a wrong descriptor, type or count of attribute", (int)name);
  for (int64_t i = 0; type == DESCRIPTOR && i < n; i++)
    if (!((struct descriptor *const *)values)[i] || !((struct descriptor *const *)values)[i]->is_final)
      return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor that is not finalized, in attribute", (int)name);
  memcpy((char *)it + attribute->at, values, (size_t)n * attribute->size);
  if (attribute->n_at)
    *(int64_t *)(void *)((char *)it + attribute->n_at) = n;
  it->is_set |= (uint64_t)1 << row;
  return CUDNN_STATUS_SUCCESS;
}

static int tensor_index(struct play *play, const struct descriptor *tensor) {
  int i = 0;
  if (!tensor)
    return -1;
  while (i < play->n_tensors && play->tensors[i].id != tensor->tensor.id)
    i++;
  if (i == play->n_tensors && i < PLAY_TENSORS)
    play->tensors[play->n_tensors++] = tensor->tensor;
  return i;
}

static cudnnStatus_t graph_finalize(struct descriptor *graph) {
  struct play *play = &graph->play;
  for (int64_t i = 0; i < graph->n_ops; i++) {
    const struct descriptor *it = graph->ops[i];
    struct play_op op = it->how ? it->how->op : it->op;
    op.type = it->type;
    op.x = tensor_index(play, it->x);
    op.b = tensor_index(play, it->b);
    op.t = tensor_index(play, it->t);
    op.y = tensor_index(play, it->y);
    play->ops[play->n_ops++] = op;
  }
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t tensor_finalize(const struct play_tensor *tensor) {
  for (int d = 0; d < PLAY_RANK; d++)
    if (tensor->dim[d] < 1 || tensor->stride[d] < 1)
      return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor's dimension or stride", d);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t opaque) {
  struct descriptor *it = opaque;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  for (int row = 0; row < ATTRIBUTES; row++)
    if (attributes[row].of == it->type && attributes[row].is_needed && !(it->is_set >> row & 1))
      return refuse(CUDNN_STATUS_BAD_PARAM, "an attribute is missing", (int)attributes[row].name);
  if (it->type == OF(TENSOR))
    status = tensor_finalize(&it->tensor);
  else if (it->type == OF(OPERATIONGRAPH))
    status = graph_finalize(it);
  else if (it->type == OF(ENGINEHEUR))
    it->play = it->graph->play;
  else if (it->type == OF(VARIANT_PACK) && it->n_ids != it->n_pointers)
    status = refuse(CUDNN_STATUS_BAD_PARAM, "as many pointers as ids", (int)it->n_ids);
  else if (it->type == OF(EXECUTION_PLAN) && sim_capture_forbids())
    status = CUDNN_STATUS_INTERNAL_ERROR;
  else if (it->type == OF(EXECUTION_PLAN))
    it->play = it->config->play;
  it->is_final = status == CUDNN_STATUS_SUCCESS;
  return status;
}

static cudnnStatus_t results_get(const struct descriptor *heuristics, int64_t room, int64_t *n,
                                 struct descriptor **configs) {
  const char *attention = getenv("WEIR_SIMULATED_ATTENTION");
  bool is_supported = play_is_supported(&heuristics->play) && !(attention && !strcmp(attention, "none"));
  *n = is_supported ? (room < ENGINES ? room : ENGINES) : 0;
  for (int64_t i = 0; i < *n; i++) {
    if (!configs[i] || configs[i]->type != OF(ENGINECFG))
      return refuse(CUDNN_STATUS_BAD_PARAM, "no descriptor for a result", (int)i);
    configs[i]->play = heuristics->play;
    configs[i]->play.is_any_order = i == 0;
    configs[i]->engine = i;
    configs[i]->is_final = true;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const opaque,
                                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                       int64_t room, int64_t *n, void *values) {
  struct descriptor *it = opaque;
  if (!it || !it->is_final)
    return refuse(CUDNN_STATUS_NOT_INITIALIZED, "asked of what is not finalized", (int)name);
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && it->type == OF(ENGINEHEUR) && type == DESCRIPTOR)
    return results_get(it, room, n, values);
  *n = 1;
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE && it->type == OF(ENGINECFG) && type == DESCRIPTOR) {
    struct descriptor *engine = *(struct descriptor **)values;
    engine->engine = it->engine;
    engine->is_final = true;
  } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && it->type == OF(ENGINE) &&
             type == CUDNN_TYPE_NUMERICAL_NOTE && room >= 2) {
    cudnnBackendNumericalNote_t *notes = values;
    notes[0] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    notes[1] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    *n = it->engine == 0 ? 2 : 1;
  } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && it->type == OF(EXECUTION_PLAN) &&
             type == CUDNN_TYPE_INT64) {
    *(int64_t *)values = PLAY_WORKSPACE_BYTES;
  } else {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "this attribute is not simulated", (int)name);
  }
  return CUDNN_STATUS_SUCCESS;
}

/* The bytes of each tensor that has some. */
static bool bind(const struct play *play, const struct descriptor *pack, struct play_data *data) {
  for (int t = 0; t < play->n_tensors; t++) {
    const struct play_tensor *tensor = &play->tensors[t];
    size_t bytes = (size_t)play_span(tensor) * (tensor->type == CUDNN_DATA_BFLOAT16 ? 2 : 4);
    int64_t i = 0;
    if (tensor->is_virtual)
      continue;
    while (i < pack->n_ids && pack->ids[i] != tensor->id)
      i++;
    if (i == pack->n_ids || !pack->pointers[i])
      return false;
    data->at[t] = pack->pointers[i];
    if (tensor->is_number)
      data->numbers[t] = *(const float *)pack->pointers[i];
    else if (!sim_is_device(data->at[t], bytes) || (uintptr_t)data->at[t] % 16 != 0)
      return false;
  }
  data->workspace = pack->workspace;
  return sim_is_device(data->workspace, PLAY_WORKSPACE_BYTES);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t opaque,
                                  cudnnBackendDescriptor_t opaque_pack) {
  const struct descriptor *plan = opaque, *pack = opaque_pack;
  struct play_data data = {.workspace = NULL};
  if (!handle || !plan || plan->type != OF(EXECUTION_PLAN) || !plan->is_final || !pack ||
      pack->type != OF(VARIANT_PACK) || !pack->is_final || !bind(&plan->play, pack, &data))
    return refuse(CUDNN_STATUS_BAD_PARAM, "a plan's tensors or workspace", plan ? plan->play.n_tensors : 0);
  return play_enqueue(handle, &plan->play, &data);
}
