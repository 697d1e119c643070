/* Writing ONNX models. */
#include "client/onnx_writer.h"

#include <math.h>
#include <string.h>

#include "common/err.h"
#include "common/random.h"

enum { ONNX_IR_VERSION = 8, ONNX_OPSET = 17, NODES_MAX = 4096 };

static void *list_new(struct onnx_writer *writer) {
  return arena_new(&writer->arena, NODES_MAX * sizeof(void *));
}

void onnx_writer_init(struct onnx_writer *writer, const char *name, uint64_t seed) {
  Onnx__OperatorSetIdProto *opset;
  *writer = (struct onnx_writer){.seed = seed};
  arena_init(&writer->arena);
  onnx__model_proto__init(&writer->model);
  onnx__graph_proto__init(&writer->graph);
  opset = arena_new(&writer->arena, sizeof *opset);
  onnx__operator_set_id_proto__init(opset);
  opset->has_version = 1;
  opset->version = ONNX_OPSET;
  opset->domain = arena_strdup(&writer->arena, "");
  writer->model.has_ir_version = 1;
  writer->model.ir_version = ONNX_IR_VERSION;
  writer->model.producer_name = arena_strdup(&writer->arena, "weir");
  writer->model.n_opset_import = 1;
  writer->model.opset_import = arena_copy(&writer->arena, &opset, sizeof opset);
  writer->model.graph = &writer->graph;
  writer->graph.name = arena_strdup(&writer->arena, name);
  writer->graph.node = list_new(writer);
  writer->graph.initializer = list_new(writer);
}

void onnx_writer_fini(struct onnx_writer *writer) {
  arena_fini(&writer->arena);
}

/* f32 [batch, dims...] */
static Onnx__ValueInfoProto **value_info(struct onnx_writer *writer, const char *name, const int64_t *dims,
                                         int rank) {
  struct arena *arena = &writer->arena;
  Onnx__ValueInfoProto *info = arena_new(arena, sizeof *info);
  Onnx__TypeProto *type = arena_new(arena, sizeof *type);
  Onnx__TypeProto__Tensor *tensor = arena_new(arena, sizeof *tensor);
  Onnx__TensorShapeProto *shape = arena_new(arena, sizeof *shape);
  onnx__value_info_proto__init(info);
  onnx__type_proto__init(type);
  onnx__type_proto__tensor__init(tensor);
  onnx__tensor_shape_proto__init(shape);
  shape->n_dim = (size_t)rank + 1;
  shape->dim = arena_new(arena, shape->n_dim * sizeof *shape->dim);
  for (int i = 0; i <= rank; i++) {
    Onnx__TensorShapeProto__Dimension *dim = arena_new(arena, sizeof *dim);
    onnx__tensor_shape_proto__dimension__init(dim);
    dim->value_case = i == 0 ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                             : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    if (i == 0)
      dim->dim_param = arena_strdup(arena, "batch");
    else
      dim->dim_value = dims[i - 1];
    shape->dim[i] = dim;
  }
  tensor->has_elem_type = 1;
  tensor->elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
  tensor->shape = shape;
  type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  type->tensor_type = tensor;
  info->name = arena_strdup(arena, name);
  info->type = type;
  return arena_copy(arena, &info, sizeof info);
}

void onnx_writer_input(struct onnx_writer *writer, const char *name, const int64_t *dims, int rank) {
  writer->graph.n_input = 1;
  writer->graph.input = value_info(writer, name, dims, rank);
}

void onnx_writer_output(struct onnx_writer *writer, const char *name, const int64_t *dims, int rank) {
  writer->graph.n_output = 1;
  writer->graph.output = value_info(writer, name, dims, rank);
}

/* Its size_bytes are to be filled by the caller. */
static void *tensor_new(struct onnx_writer *writer, const char *name, Onnx__TensorProto__DataType type,
                        const int64_t *dims, int rank, size_t size_bytes) {
  Onnx__TensorProto *tensor = arena_new(&writer->arena, sizeof *tensor);
  CHECK(writer->graph.n_initializer < NODES_MAX);
  onnx__tensor_proto__init(tensor);
  tensor->name = arena_strdup(&writer->arena, name);
  tensor->n_dims = (size_t)rank;
  tensor->dims = arena_copy(&writer->arena, dims, (size_t)rank * sizeof *dims);
  tensor->has_data_type = 1;
  tensor->data_type = type;
  tensor->has_raw_data = 1;
  tensor->raw_data.len = size_bytes;
  tensor->raw_data.data = arena_new(&writer->arena, size_bytes);
  writer->graph.initializer[writer->graph.n_initializer++] = tensor;
  return tensor->raw_data.data;
}

static float *floats_new(struct onnx_writer *writer, const char *name, const int64_t *dims, int rank,
                         int64_t *elems) {
  *elems = 1;
  for (int i = 0; i < rank; i++)
    *elems *= dims[i];
  return tensor_new(writer, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dims, rank,
                    (size_t)*elems * sizeof(float));
}

static const char *last_initializer(const struct onnx_writer *writer) {
  return writer->graph.initializer[writer->graph.n_initializer - 1]->name;
}

const char *onnx_writer_uniform(struct onnx_writer *writer, const char *name, const int64_t *dims, int rank,
                                float bound) {
  uint64_t key = random_key(writer->seed, writer->graph.n_initializer, 0, 0);
  int64_t elems;
  float *data = floats_new(writer, name, dims, rank, &elems);
  for (int64_t i = 0; i < elems; i++)
    data[i] = (2 * random_uniform(key, (uint64_t)i) - 1) * bound;
  return last_initializer(writer);
}

const char *onnx_writer_constant(struct onnx_writer *writer, const char *name, int64_t elems, float value) {
  int64_t count;
  float *data = floats_new(writer, name, &elems, 1, &count);
  for (int64_t i = 0; i < count; i++)
    data[i] = value;
  return last_initializer(writer);
}

static char **names_new(struct onnx_writer *writer, const char *const *names, size_t *n) {
  char **list;
  for (*n = 0; names[*n]; (*n)++)
    continue;
  list = arena_new(&writer->arena, *n * sizeof *list);
  for (size_t i = 0; i < *n; i++)
    list[i] = arena_strdup(&writer->arena, names[i]);
  return list;
}

static Onnx__AttributeProto *attribute_new(struct onnx_writer *writer, const struct onnx_ints *ints) {
  Onnx__AttributeProto *attribute = arena_new(&writer->arena, sizeof *attribute);
  onnx__attribute_proto__init(attribute);
  attribute->name = arena_strdup(&writer->arena, ints->name);
  attribute->has_type = 1;
  if (ints->n == 0) {
    attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    attribute->has_i = 1;
    attribute->i = ints->values[0];
  } else {
    attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
    attribute->n_ints = (size_t)ints->n;
    attribute->ints = arena_copy(&writer->arena, ints->values, (size_t)ints->n * sizeof *ints->values);
  }
  return attribute;
}

const char *onnx_writer_node_outputs(struct onnx_writer *writer, const char *op, const char *const *outputs,
                                     const char *const *inputs, const struct onnx_ints *ints) {
  Onnx__NodeProto *node = arena_new(&writer->arena, sizeof *node);
  CHECK(writer->graph.n_node < NODES_MAX);
  onnx__node_proto__init(node);
  node->op_type = arena_strdup(&writer->arena, op);
  node->name = arena_printf(&writer->arena, "/%s", outputs[0]);
  node->output = names_new(writer, outputs, &node->n_output);
  node->input = names_new(writer, inputs, &node->n_input);
  while (ints && ints[node->n_attribute].name)
    node->n_attribute++;
  node->attribute = arena_new(&writer->arena, node->n_attribute * sizeof *node->attribute);
  for (size_t i = 0; i < node->n_attribute; i++)
    node->attribute[i] = attribute_new(writer, &ints[i]);
  writer->graph.node[writer->graph.n_node++] = node;
  return node->output[0];
}

const char *onnx_writer_node(struct onnx_writer *writer, const char *op, const char *output,
                             const char *const *inputs, const struct onnx_ints *ints) {
  return onnx_writer_node_outputs(writer, op, (const char *[]){output, NULL}, inputs, ints);
}

/* "NAME.PART" in the arena. */
static const char *part_name(struct onnx_writer *writer, const char *name, const char *part) {
  return arena_printf(&writer->arena, "%s.%s", name, part);
}

const char *onnx_writer_linear(struct onnx_writer *writer, const char *name, const char *input, int64_t in,
                               int64_t out) {
  float bound = 1 / sqrtf((float)in);
  const char *weight =
      onnx_writer_uniform(writer, part_name(writer, name, "weight"), (int64_t[]){out, in}, 2, bound);
  const char *bias = onnx_writer_uniform(writer, part_name(writer, name, "bias"), &out, 1, bound);
  return onnx_writer_node(writer, "Gemm", part_name(writer, name, "out"),
                          (const char *[]){input, weight, bias, NULL},
                          (struct onnx_ints[]){{"transB", 0, {1}}, {0}});
}

const char *onnx_writer_conv2d(struct onnx_writer *writer, const char *name, const char *input, int64_t in,
                               int64_t out, int64_t kernel, int64_t pad) {
  float bound = 1 / sqrtf((float)(in * kernel * kernel));
  const char *weight = onnx_writer_uniform(writer, part_name(writer, name, "weight"),
                                           (int64_t[]){out, in, kernel, kernel}, 4, bound);
  const char *bias = onnx_writer_uniform(writer, part_name(writer, name, "bias"), &out, 1, bound);
  return onnx_writer_node(
      writer, "Conv", part_name(writer, name, "out"), (const char *[]){input, weight, bias, NULL},
      (struct onnx_ints[]){{"kernel_shape", 2, {kernel, kernel}}, {"pads", 4, {pad, pad, pad, pad}}, {0}});
}

const char *onnx_writer_batch_norm(struct onnx_writer *writer, const char *name, const char *input,
                                   int64_t channels) {
  const char *scale = onnx_writer_constant(writer, part_name(writer, name, "weight"), channels, 1);
  const char *bias = onnx_writer_constant(writer, part_name(writer, name, "bias"), channels, 0);
  const char *mean = onnx_writer_constant(writer, part_name(writer, name, "running_mean"), channels, 0);
  const char *var = onnx_writer_constant(writer, part_name(writer, name, "running_var"), channels, 1);
  const char *outputs[] = {part_name(writer, name, "out"), part_name(writer, name, "new_mean"),
                           part_name(writer, name, "new_var"), NULL};
  return onnx_writer_node_outputs(writer, "BatchNormalization", outputs,
                                  (const char *[]){input, scale, bias, mean, var, NULL},
                                  (struct onnx_ints[]){{"training_mode", 0, {1}}, {0}});
}

/* In training form, as PyTorch writes it: with training_mode (opset 12). */
const char *onnx_writer_dropout(struct onnx_writer *writer, const char *name, const char *input,
                                float ratio) {
  const char *names[] = {part_name(writer, name, "ratio"), part_name(writer, name, "training")};
  *(float *)tensor_new(writer, names[0], ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL, 0, sizeof ratio) = ratio;
  *(uint8_t *)tensor_new(writer, names[1], ONNX__TENSOR_PROTO__DATA_TYPE__BOOL, NULL, 0, 1) = 1;
  return onnx_writer_node(writer, "Dropout", part_name(writer, name, "out"),
                          (const char *[]){input, names[0], names[1], NULL}, NULL);
}

const char *onnx_writer_relu(struct onnx_writer *writer, const char *name, const char *input) {
  return onnx_writer_node(writer, "Relu", part_name(writer, name, "relu"), (const char *[]){input, NULL},
                          NULL);
}
