#include "tests/support/model/onnx_build.h"

#include <stdlib.h>
#include <string.h>

void onnx_build_init(struct onnx_build *build, int64_t opset) {
  memset(build, 0, sizeof *build);
  arena_init(&build->arena);
  onnx__model_proto__init(&build->model);
  onnx__graph_proto__init(&build->graph);
  onnx__operator_set_id_proto__init(&build->opset);
  build->opset.has_version = 1;
  build->opset.version = opset;
  build->opset.domain = (char *)"";
  build->opsets[0] = &build->opset;
  build->model.opset_import = build->opsets;
  build->model.n_opset_import = 1;
  build->model.has_ir_version = 1;
  build->model.ir_version = 8;
  build->model.graph = &build->graph;
  build->graph.name = (char *)"test";
  build->graph.node = arena_new(&build->arena, ONNX_BUILD_LIST_MAX * sizeof(void *));
  build->graph.initializer = arena_new(&build->arena, ONNX_BUILD_LIST_MAX * sizeof(void *));
  build->graph.input = arena_new(&build->arena, ONNX_BUILD_LIST_MAX * sizeof(void *));
  build->graph.output = arena_new(&build->arena, ONNX_BUILD_LIST_MAX * sizeof(void *));
}

void onnx_build_fini(struct onnx_build *build) {
  arena_fini(&build->arena);
  free(build->bytes);
}

const void *onnx_build_pack(struct onnx_build *build, size_t *size) {
  *size = onnx__model_proto__get_packed_size(&build->model);
  free(build->bytes);
  build->bytes = mem_new(*size);
  onnx__model_proto__pack(&build->model, build->bytes);
  return build->bytes;
}

Onnx__ValueInfoProto *onnx_build_info(struct onnx_build *build, const char *name, int type,
                                      const int64_t *dims, int rank) {
  struct arena *arena = &build->arena;
  Onnx__ValueInfoProto *info = arena_new(arena, sizeof *info);
  onnx__value_info_proto__init(info);
  info->name = arena_strdup(arena, name);
  info->type = arena_new(arena, sizeof *info->type);
  onnx__type_proto__init(info->type);
  info->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  info->type->tensor_type = arena_new(arena, sizeof *info->type->tensor_type);
  onnx__type_proto__tensor__init(info->type->tensor_type);
  info->type->tensor_type->has_elem_type = 1;
  info->type->tensor_type->elem_type = type;
  info->type->tensor_type->shape = arena_new(arena, sizeof(Onnx__TensorShapeProto));
  onnx__tensor_shape_proto__init(info->type->tensor_type->shape);
  info->type->tensor_type->shape->dim = arena_new(arena, (size_t)rank * sizeof(void *));
  info->type->tensor_type->shape->n_dim = (size_t)rank;
  for (int i = 0; i < rank; i++) {
    Onnx__TensorShapeProto__Dimension *dim = arena_new(arena, sizeof *dim);
    onnx__tensor_shape_proto__dimension__init(dim);
    dim->value_case = dims[i] < 0 ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                                  : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    if (dims[i] < 0)
      dim->dim_param = (char *)"N";
    else
      dim->dim_value = dims[i];
    info->type->tensor_type->shape->dim[i] = dim;
  }
  return info;
}

void onnx_build_input(struct onnx_build *build, const char *name, const int64_t *dims, int rank) {
  build->graph.input[build->graph.n_input++] =
      onnx_build_info(build, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dims, rank);
}

void onnx_build_output(struct onnx_build *build, const char *name) {
  build->graph.output[build->graph.n_output++] =
      onnx_build_info(build, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL, 0);
}

Onnx__TensorProto *onnx_build_tensor(struct onnx_build *build, const char *name, int type,
                                     const int64_t *dims, int rank) {
  Onnx__TensorProto *tensor = arena_new(&build->arena, sizeof *tensor);
  onnx__tensor_proto__init(tensor);
  tensor->name = arena_strdup(&build->arena, name);
  tensor->has_data_type = 1;
  tensor->data_type = type;
  tensor->dims = arena_copy(&build->arena, dims, (size_t)rank * sizeof *dims);
  tensor->n_dims = (size_t)rank;
  return tensor;
}

void onnx_build_raw(struct onnx_build *build, Onnx__TensorProto *tensor, const void *data, size_t size) {
  tensor->has_raw_data = 1;
  tensor->raw_data.len = size;
  tensor->raw_data.data = arena_copy(&build->arena, data, size);
}

void onnx_build_add(struct onnx_build *build, Onnx__TensorProto *tensor) {
  build->graph.initializer[build->graph.n_initializer++] = tensor;
}

Onnx__TensorProto *onnx_build_weight(struct onnx_build *build, const char *name, const int64_t *dims,
                                     int rank) {
  Onnx__TensorProto *tensor =
      onnx_build_tensor(build, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dims, rank);
  size_t elems = 1;
  float *data;
  for (int i = 0; i < rank; i++)
    elems *= (size_t)dims[i];
  data = mem_new(elems * sizeof *data);
  for (size_t i = 0; i < elems; i++)
    data[i] = (float)((i * 7919 + build->graph.n_initializer * 31) % 1009) / 1009.0f - 0.47f;
  onnx_build_raw(build, tensor, data, elems * sizeof *data);
  free(data);
  onnx_build_add(build, tensor);
  return tensor;
}

size_t onnx_build_names(struct onnx_build *build, const char *list, char ***out) {
  size_t n = 0;
  char *copy = arena_strdup(&build->arena, list), *name;
  *out = arena_new(&build->arena, (strlen(list) + 1) * sizeof **out);
  while (*list && (name = strsep(&copy, ",")))
    (*out)[n++] = name;
  return n;
}

Onnx__NodeProto *onnx_build_node(struct onnx_build *build, const char *op, const char *name,
                                 const char *inputs, const char *outputs) {
  Onnx__NodeProto *node = arena_new(&build->arena, sizeof *node);
  onnx__node_proto__init(node);
  node->op_type = arena_strdup(&build->arena, op);
  node->name = name ? arena_strdup(&build->arena, name) : NULL;
  node->n_input = onnx_build_names(build, inputs, &node->input);
  node->n_output = onnx_build_names(build, outputs, &node->output);
  node->attribute = arena_new(&build->arena, 8 * sizeof(void *));
  build->graph.node[build->graph.n_node++] = node;
  return node;
}

Onnx__AttributeProto *onnx_build_attr(struct onnx_build *build, Onnx__NodeProto *node, const char *name,
                                      int type) {
  Onnx__AttributeProto *attr = arena_new(&build->arena, sizeof *attr);
  onnx__attribute_proto__init(attr);
  attr->name = arena_strdup(&build->arena, name);
  attr->has_type = 1;
  attr->type = (Onnx__AttributeProto__AttributeType)type;
  node->attribute[node->n_attribute++] = attr;
  return attr;
}

void onnx_build_int(struct onnx_build *build, Onnx__NodeProto *node, const char *name, int64_t value) {
  Onnx__AttributeProto *attr = onnx_build_attr(build, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
  attr->has_i = 1;
  attr->i = value;
}

void onnx_build_float(struct onnx_build *build, Onnx__NodeProto *node, const char *name, float value) {
  Onnx__AttributeProto *attr =
      onnx_build_attr(build, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
  attr->has_f = 1;
  attr->f = value;
}

void onnx_build_mlp(struct onnx_build *build, int64_t in, int64_t hidden, int64_t out) {
  onnx_build_init(build, 13);
  onnx_build_input(build, "x", DIMS(-1, in));
  onnx_build_weight(build, "w1", DIMS(in, hidden));
  onnx_build_weight(build, "b1", DIMS(hidden));
  onnx_build_weight(build, "w2", DIMS(hidden, out));
  onnx_build_weight(build, "b2", DIMS(out));
  onnx_build_node(build, "Gemm", "fc1", "x,w1,b1", "h");
  onnx_build_node(build, "Relu", NULL, "h", "r");
  onnx_build_node(build, "Gemm", "fc2", "r,w2,b2", "y");
  onnx_build_output(build, "y");
}
