/* Writing ONNX models. */
#include "model/onnx/onnx_writer.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/random.h"

/* Gelu is of opset 20, LayerNormalization of 17. */
enum { ONNX_IR_VERSION = 9, ONNX_OPSET = 20 };

/* What protobuf can hold in one message. */
static const uint64_t model_bytes_max = INT_MAX;

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
}

void onnx_writer_fini(struct onnx_writer *writer) {
  for (size_t i = 0; i < writer->graph.n_initializer; i++)
    free(writer->graph.initializer[i]->raw_data.data);
  free(writer->graph.initializer);
  free(writer->graph.node);
  free(writer->values);
  arena_fini(&writer->arena);
}

void onnx_writer_fail(struct onnx_writer *writer, const char *format, ...) {
  char text[sizeof writer->err.text];
  va_list args;
  if (writer->err.code)
    return;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  err_set(&writer->err, ERR_INVALID, "%s", text);
}

static Onnx__TensorShapeProto__Dimension *dimension_new(struct arena *arena, const char *name,
                                                        int64_t value) {
  Onnx__TensorShapeProto__Dimension *dim = arena_new(arena, sizeof *dim);
  onnx__tensor_shape_proto__dimension__init(dim);
  if (name) {
    dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    dim->dim_param = arena_strdup(arena, name);
  } else {
    dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    dim->dim_value = value;
  }
  return dim;
}

static Onnx__ValueInfoProto *value_info_new(struct arena *arena, const char *name,
                                            Onnx__TensorProto__DataType data_type, const int64_t *dims,
                                            int rank) {
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
  shape->dim[0] = dimension_new(arena, "batch", 0);
  for (int i = 0; i < rank; i++)
    shape->dim[i + 1] = dimension_new(arena, NULL, dims[i]);
  tensor->has_elem_type = 1;
  tensor->elem_type = data_type;
  tensor->shape = shape;
  type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  type->tensor_type = tensor;
  info->name = arena_strdup(arena, name);
  info->type = type;
  return info;
}

/* Appends to one of the graph's short lists of inputs or outputs. */
static void value_info_add(struct arena *arena, Onnx__ValueInfoProto ***list, size_t *n,
                           Onnx__ValueInfoProto *info) {
  Onnx__ValueInfoProto **grown = arena_new(arena, (*n + 1) * sizeof *grown);
  if (*n)
    memcpy(grown, *list, *n * sizeof *grown);
  grown[(*n)++] = info;
  *list = grown;
}

const char *onnx_writer_input(struct onnx_writer *writer, const char *name, Onnx__TensorProto__DataType type,
                              const int64_t *dims, int rank) {
  value_info_add(&writer->arena, &writer->graph.input, &writer->graph.n_input,
                 value_info_new(&writer->arena, name, type, dims, rank));
  return writer->graph.input[writer->graph.n_input - 1]->name;
}

void onnx_writer_output(struct onnx_writer *writer, const char *name, const int64_t *dims, int rank) {
  value_info_add(&writer->arena, &writer->graph.output, &writer->graph.n_output,
                 value_info_new(&writer->arena, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dims, rank));
}

/* Without its data. */
static Onnx__TensorProto *tensor_new(struct onnx_writer *writer, const char *name,
                                     Onnx__TensorProto__DataType type, const int64_t *dims, int rank) {
  Onnx__TensorProto *tensor = arena_new(&writer->arena, sizeof *tensor);
  onnx__tensor_proto__init(tensor);
  tensor->name = arena_strdup(&writer->arena, name);
  tensor->n_dims = (size_t)rank;
  tensor->dims = arena_copy(&writer->arena, dims, (size_t)rank * sizeof *dims);
  tensor->has_data_type = 1;
  tensor->data_type = type;
  tensor->has_raw_data = 1;
  return tensor;
}

/* Returns 0 for more than a file can hold. */
static uint64_t count_elems(struct onnx_writer *writer, const char *name, const int64_t *dims, int rank) {
  uint64_t elems = 1;
  bool is_more = false;
  for (int i = 0; i < rank; i++)
    is_more |= __builtin_mul_overflow(elems, (uint64_t)dims[i], &elems);
  if (!is_more && elems <= model_bytes_max / sizeof(float) - writer->elems)
    return elems;
  onnx_writer_fail(writer, "with '%s' the model has more than %llu values: an ONNX file holds at most 2 GiB",
                   name, (unsigned long long)(model_bytes_max / sizeof(float)));
  return 0;
}

static const char *add_initializer(struct onnx_writer *writer, const char *name, const int64_t *dims,
                                   int rank, struct initial_values values) {
  Onnx__TensorProto *tensor = tensor_new(writer, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dims, rank);
  int n = (int)writer->graph.n_initializer, capacity = writer->tensor_capacity;
  writer->elems += count_elems(writer, name, dims, rank);
  array_reserve((void **)&writer->graph.initializer, &capacity, n, sizeof *writer->graph.initializer);
  array_reserve((void **)&writer->values, &writer->tensor_capacity, n, sizeof *writer->values);
  writer->graph.initializer[n] = tensor;
  writer->values[n] = values;
  writer->graph.n_initializer++;
  return tensor->name;
}

const char *onnx_writer_parameter(struct onnx_writer *writer, const char *name, const int64_t *dims, int rank,
                                  struct initial_values values) {
  uint64_t before = writer->elems;
  const char *tensor = add_initializer(writer, name, dims, rank, values);
  writer->parameters += writer->elems - before;
  return tensor;
}

const char *onnx_writer_statistic(struct onnx_writer *writer, const char *name, int64_t elems, double value) {
  return add_initializer(writer, name, &elems, 1, initial_constant(value));
}

/* A node that gives the tensor these bytes. */
static const char *add_constant(struct onnx_writer *writer, Onnx__TensorProto *tensor, const void *data,
                                size_t size_bytes) {
  Onnx__AttributeProto *value = arena_new(&writer->arena, sizeof *value);
  const char *output = onnx_writer_node(writer, "Constant", tensor->name, (const char *[]){NULL}, NULL);
  Onnx__NodeProto *node = writer->graph.node[writer->graph.n_node - 1];
  tensor->raw_data.data = arena_copy(&writer->arena, data, size_bytes);
  tensor->raw_data.len = size_bytes;
  onnx__attribute_proto__init(value);
  value->name = arena_strdup(&writer->arena, "value");
  value->has_type = 1;
  value->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
  value->t = tensor;
  node->n_attribute = 1;
  node->attribute = arena_copy(&writer->arena, &value, sizeof value);
  return output;
}

const char *onnx_writer_ints(struct onnx_writer *writer, const char *name, const int64_t *values, int n) {
  Onnx__TensorProto *tensor =
      tensor_new(writer, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, (int64_t[]){n}, 1);
  return add_constant(writer, tensor, values, (size_t)n * sizeof *values);
}

const char *onnx_writer_int(struct onnx_writer *writer, const char *name, int64_t value) {
  Onnx__TensorProto *tensor = tensor_new(writer, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, NULL, 0);
  return add_constant(writer, tensor, &value, sizeof value);
}

const char *onnx_writer_float(struct onnx_writer *writer, const char *name, float value) {
  Onnx__TensorProto *tensor = tensor_new(writer, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL, 0);
  return add_constant(writer, tensor, &value, sizeof value);
}

const char *onnx_writer_true(struct onnx_writer *writer, const char *name) {
  Onnx__TensorProto *tensor = tensor_new(writer, name, ONNX__TENSOR_PROTO__DATA_TYPE__BOOL, NULL, 0);
  return add_constant(writer, tensor, &(uint8_t){1}, 1);
}

struct onnx_attr onnx_ints(const char *name, int n, const int64_t *values) {
  struct onnx_attr attr = {.name = name, .kind = ONNX_INTS, .n = n};
  CHECK(n <= ONNX_DIMS_MAX);
  memcpy(attr.ints, values, (size_t)n * sizeof *values);
  return attr;
}

struct onnx_attr onnx_ints_of(const char *name, int n, int64_t value) {
  struct onnx_attr attr = {.name = name, .kind = ONNX_INTS, .n = n};
  CHECK(n <= ONNX_DIMS_MAX);
  for (int i = 0; i < n; i++)
    attr.ints[i] = value;
  return attr;
}

static Onnx__AttributeProto *attribute_new(struct onnx_writer *writer, const struct onnx_attr *attr) {
  static const Onnx__AttributeProto__AttributeType types[] = {
      [ONNX_INT] = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT,
      [ONNX_INTS] = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS,
      [ONNX_FLOAT] = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT,
      [ONNX_TEXT] = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING,
  };
  Onnx__AttributeProto *attribute = arena_new(&writer->arena, sizeof *attribute);
  onnx__attribute_proto__init(attribute);
  attribute->name = arena_strdup(&writer->arena, attr->name);
  attribute->has_type = 1;
  attribute->type = types[attr->kind];
  if (attr->kind == ONNX_INT) {
    attribute->has_i = 1;
    attribute->i = attr->ints[0];
  } else if (attr->kind == ONNX_INTS) {
    attribute->n_ints = (size_t)attr->n;
    attribute->ints = arena_copy(&writer->arena, attr->ints, (size_t)attr->n * sizeof *attr->ints);
  } else if (attr->kind == ONNX_FLOAT) {
    attribute->has_f = 1;
    attribute->f = attr->real;
  } else {
    attribute->has_s = 1;
    attribute->s.len = strlen(attr->text);
    attribute->s.data = arena_copy(&writer->arena, attr->text, attribute->s.len);
  }
  return attribute;
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

const char *onnx_writer_node_outputs(struct onnx_writer *writer, const char *op, const char *const *outputs,
                                     const char *const *inputs, const struct onnx_attr *attrs) {
  Onnx__NodeProto *node = arena_new(&writer->arena, sizeof *node);
  onnx__node_proto__init(node);
  node->op_type = arena_strdup(&writer->arena, op);
  node->name = arena_printf(&writer->arena, "/%s", outputs[0]);
  node->output = names_new(writer, outputs, &node->n_output);
  node->input = names_new(writer, inputs, &node->n_input);
  while (attrs && attrs[node->n_attribute].name)
    node->n_attribute++;
  node->attribute = arena_new(&writer->arena, node->n_attribute * sizeof *node->attribute);
  for (size_t i = 0; i < node->n_attribute; i++)
    node->attribute[i] = attribute_new(writer, &attrs[i]);
  array_reserve((void **)&writer->graph.node, &writer->node_capacity, (int)writer->graph.n_node,
                sizeof *writer->graph.node);
  writer->graph.node[writer->graph.n_node++] = node;
  return node->output[0];
}

const char *onnx_writer_node(struct onnx_writer *writer, const char *op, const char *output,
                             const char *const *inputs, const struct onnx_attr *attrs) {
  return onnx_writer_node_outputs(writer, op, (const char *[]){output, NULL}, inputs, attrs);
}

static int fill_tensor(struct onnx_writer *writer, size_t index) {
  Onnx__TensorProto *tensor = writer->graph.initializer[index];
  int64_t elems = 1;
  for (size_t i = 0; i < tensor->n_dims; i++)
    elems *= tensor->dims[i];
  tensor->raw_data.len = (size_t)elems * sizeof(float);
  tensor->raw_data.data = malloc(tensor->raw_data.len);
  if (!tensor->raw_data.data)
    return err_set(&writer->err, ERR_NO_MEMORY, "no memory for the %lld values of '%s'", (long long)elems,
                   tensor->name);
  initial_fill(writer->values[index], random_key(writer->seed, index, 0, 0), (float *)tensor->raw_data.data,
               elems);
  return 0;
}

int onnx_writer_pack(struct onnx_writer *writer, void **bytes, size_t *size_bytes, struct err *err) {
  for (size_t i = 0; !writer->err.code && i < writer->graph.n_initializer; i++)
    fill_tensor(writer, i);
  if (writer->err.code) {
    *err = writer->err;
    return err->code;
  }
  *size_bytes = onnx__model_proto__get_packed_size(&writer->model);
  if (*size_bytes > model_bytes_max)
    return err_set(err, ERR_UNSUPPORTED, "the model has %zu bytes: an ONNX file holds at most 2 GiB",
                   *size_bytes);
  *bytes = malloc(*size_bytes);
  if (!*bytes)
    return err_set(err, ERR_NO_MEMORY, "no memory for a model of %zu bytes", *size_bytes);
  onnx__model_proto__pack(&writer->model, *bytes);
  return 0;
}
