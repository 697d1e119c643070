/* libFuzzer's entry: `make fuzz`. A flipped byte rarely leaves a message that parses, so most mutations
   change the message instead: another operator, other inputs, attributes, dimensions, numbers. */
#include "model/graph/op.h"
#include "onnx.pb-c.h"
#include "tests/fuzz/onnx_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t size_max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t size_max);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  onnx_target(bytes, size);
  return 0;
}

/* xorshift32 */
static unsigned draw(unsigned *state, size_t n) {
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return n ? *state % (unsigned)n : 0;
}

static int64_t draw_int(unsigned *state) {
  static const int64_t special[] = {0,         1,         -1,        2,         3,         4,
                                    5,         7,         8,         64,        255,       INT32_MAX,
                                    INT32_MIN, INT64_MAX, INT64_MIN, 1LL << 32, 1LL << 20, 65536};
  return special[draw(state, sizeof special / sizeof *special)];
}

static void replace(char **text, const char *by) {
  char *copy = strdup(by); /* which may be the same text */
  free(*text);
  *text = copy;
}

static const char *draw_op(unsigned *state) {
  int n = 0;
  while (op_at(n))
    n++;
  return op_at((int)draw(state, (size_t)n))->name;
}

static const Onnx__NodeProto *draw_node(const Onnx__GraphProto *graph, unsigned *state) {
  return graph->node[draw(state, graph->n_node)];
}

static const char *pick_name(const Onnx__GraphProto *graph, unsigned *state) {
  const Onnx__NodeProto *node = graph->n_node ? draw_node(graph, state) : NULL;
  switch (draw(state, 4)) {
  case 0:
    return node && node->n_output ? node->output[draw(state, node->n_output)] : "";
  case 1:
    return node && node->n_input ? node->input[draw(state, node->n_input)] : "";
  case 2:
    return graph->n_initializer ? graph->initializer[draw(state, graph->n_initializer)]->name : "";
  default:
    return graph->n_input && draw(state, 3) ? graph->input[draw(state, graph->n_input)]->name : "";
  }
}

/* The name of some value of the graph, or none. */
static const char *draw_name(const Onnx__GraphProto *graph, unsigned *state) {
  const char *name = pick_name(graph, state);
  return name ? name : "";
}

static void mutate_tensor(Onnx__TensorProto *tensor, unsigned *state) {
  switch (draw(state, 4)) {
  case 0:
    if (tensor->n_dims)
      tensor->dims[draw(state, tensor->n_dims)] = draw_int(state);
    break;
  case 1:
    if (tensor->n_dims > 1) { /* the same elements in another shape */
      int64_t first = tensor->dims[0];
      tensor->dims[0] = tensor->dims[tensor->n_dims - 1];
      tensor->dims[tensor->n_dims - 1] = first;
    }
    break;
  case 2:
    if (tensor->raw_data.len >= 8 && tensor->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__INT64) {
      int64_t value = draw_int(state);
      memcpy(tensor->raw_data.data + 8 * draw(state, tensor->raw_data.len / 8), &value, sizeof value);
    } else if (tensor->raw_data.len) {
      LLVMFuzzerMutate(tensor->raw_data.data, tensor->raw_data.len, tensor->raw_data.len);
    }
    break;
  default:
    tensor->data_type = (int)draw(state, 18);
  }
}

static void mutate_attribute(Onnx__AttributeProto *attribute, unsigned *state) {
  static const float floats[] = {0, 1, -1, 0.5f, 1e30f, -1e-30f, 3e9f, 1e19f};
  float special = draw(state, 8) ? floats[draw(state, 8)] : __builtin_nanf("");
  attribute->i = draw_int(state);
  attribute->f = special;
  if (attribute->n_ints)
    attribute->ints[draw(state, attribute->n_ints)] = draw_int(state);
  if (attribute->n_ints > 1 && draw(state, 4) == 0)
    attribute->n_ints--;
  if (attribute->n_floats)
    attribute->floats[draw(state, attribute->n_floats)] = special;
  if (attribute->t)
    mutate_tensor(attribute->t, state);
  if (draw(state, 8) == 0 && attribute->name)
    attribute->has_type = !attribute->has_type;
}

static void mutate_node(const Onnx__GraphProto *graph, Onnx__NodeProto *node, unsigned *state) {
  switch (draw(state, 5)) {
  case 0:
    replace(&node->op_type, draw_op(state));
    break;
  case 1:
    if (node->n_input)
      replace(&node->input[draw(state, node->n_input)], draw_name(graph, state));
    break;
  case 2:
    if (node->n_input) {
      node->input = realloc(node->input, (node->n_input + 1) * sizeof *node->input);
      node->input[node->n_input++] = strdup(draw_name(graph, state));
    }
    break;
  case 3:
    if (node->n_input > 1)
      free(node->input[--node->n_input]);
    break;
  default:
    if (node->n_attribute)
      mutate_attribute(node->attribute[draw(state, node->n_attribute)], state);
  }
}

static void mutate_input(Onnx__ValueInfoProto *input, unsigned *state) {
  Onnx__TypeProto__Tensor *type = NULL;
  if (input->type && input->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
    type = input->type->tensor_type;
  if (type && draw(state, 3) == 0)
    type->elem_type = (int)draw(state, 18);
  else if (type && type->shape && type->shape->n_dim) {
    Onnx__TensorShapeProto__Dimension *dim = type->shape->dim[draw(state, type->shape->n_dim)];
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
      dim->dim_value = 1 + draw(state, 9);
  }
}

static void mutate_model(Onnx__ModelProto *model, unsigned *state) {
  Onnx__GraphProto *graph = model->graph;
  unsigned what = draw(state, 16);
  if (what < 9 && graph->n_node)
    mutate_node(graph, graph->node[draw(state, graph->n_node)], state);
  else if (what < 13 && graph->n_initializer)
    mutate_tensor(graph->initializer[draw(state, graph->n_initializer)], state);
  else if (what < 14 && graph->n_input)
    mutate_input(graph->input[draw(state, graph->n_input)], state);
  else if (what < 15 && graph->n_output)
    replace(&graph->output[0]->name, draw_name(graph, state));
  else if (model->n_opset_import)
    model->opset_import[0]->version = 7 + draw(state, 17);
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t size_max, unsigned seed) {
  unsigned state = seed | 1;
  Onnx__ModelProto *model = draw(&state, 4) ? onnx__model_proto__unpack(NULL, size, bytes) : NULL;
  size_t packed = 0;
  if (model && model->graph) {
    for (unsigned n = 1 + draw(&state, 3); n > 0; n--)
      mutate_model(model, &state);
    packed = onnx__model_proto__get_packed_size(model);
    if (packed <= size_max)
      onnx__model_proto__pack(model, bytes);
  }
  if (model)
    onnx__model_proto__free_unpacked(model, NULL);
  return packed && packed <= size_max ? packed : LLVMFuzzerMutate(bytes, size, size_max);
}
