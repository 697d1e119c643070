/* ONNX graphs: initializers, inputs, nodes and outputs become values and nodes. */
#include <stdio.h>
#include <string.h>

#include "model/graph/op.h"
#include "model/onnx/onnx_parts.h"
#include "model/onnx/onnx_pieces.h"

static int read_initializers(struct onnx_reader *reader, struct err *err);
static int read_inputs(struct onnx_reader *reader, struct err *err);
static int read_nodes(struct onnx_reader *reader, struct err *err);
static int unsupported_error(struct onnx_reader *reader, struct err *err);
static int resolve_inputs(struct onnx_reader *reader, struct err *err);
static int resolve_guards(struct onnx_reader *reader, struct err *err);
static int read_outputs(struct onnx_reader *reader, struct err *err);

int onnx_graph_read(struct onnx_reader *reader, struct err *err) {
  if (read_initializers(reader, err) || read_inputs(reader, err) || read_nodes(reader, err) ||
      unsupported_error(reader, err) || resolve_inputs(reader, err) || resolve_guards(reader, err) ||
      read_outputs(reader, err))
    return err->code;
  onnx_origins_read(reader);
  return onnx_nodes_sort(reader->graph, err);
}

/* Adds a value under its name from the file. Its index; -1 after an error. */
static int add_named(struct onnx_reader *reader, const char *name, const char *what, struct value value,
                     struct err *err) {
  int index;
  if (onnx_name_check(name, what, err))
    return -1;
  if (strncmp(name, "weir.", 5) == 0) {
    err_set(err, ERR_INVALID, "%s is '%s': names that begin with 'weir.' are taken", what, name);
    return -1;
  }
  value.name = arena_strdup(&reader->graph->arena, name);
  value.param = value.statistic = -1;
  index = graph_add_value(reader->graph, value);
  if (names_add(&reader->names, value.name, index))
    return index;
  err_set(err, ERR_INVALID, "two values are named '%s'", name);
  return -1;
}

/* Constants of f64 become f32, weights of f64 do not: the file could not keep what training makes of them. */
static int read_initializer(struct onnx_reader *reader, const Onnx__TensorProto *proto, struct err *err) {
  struct onnx_tensor tensor = {.dtype = DTYPE_NONE};
  char what[ONNX_NAME_BYTES_MAX + 32];
  struct value value = {.kind = VALUE_INITIALIZER, .producer = -1};
  if (onnx_name_check(proto->name, "the name of an initializer", err))
    return err->code;
  snprintf(what, sizeof what, "initializer '%s'", proto->name);
  if (proto->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE)
    listing_add(&reader->unsupported_tensors, "%s (f64)", what);
  else if (onnx_is_in_pieces(proto) ? onnx_pieces_read(reader, proto, what, &tensor, err)
                                    : onnx_tensor_read(reader, proto, what, &tensor, err))
    return err->code;
  value.dtype = tensor.dtype;
  value.shape = tensor.shape;
  value.data = tensor.data;
  value.pieces = tensor.pieces;
  return add_named(reader, proto->name, "the name of an initializer", value, err) < 0 ? (int)err->code : 0;
}

static int read_initializers(struct onnx_reader *reader, struct err *err) {
  for (size_t i = 0; i < reader->proto->n_initializer; i++)
    if (read_initializer(reader, reader->proto->initializer[i], err))
      return err->code;
  for (size_t i = 0; i < reader->proto->n_sparse_initializer; i++)
    listing_add(&reader->unsupported_tensors, "a sparse initializer");
  return 0;
}

static int read_input_shape(const Onnx__ValueInfoProto *info, const Onnx__TensorShapeProto *proto,
                            struct shape *shape, struct err *err) {
  if (!proto)
    return err_set(err, ERR_INVALID, "input '%s' has no shape", info->name);
  if (proto->n_dim > RANK_MAX)
    return err_set(err, ERR_INVALID, "input '%s' has %zu dimensions, at most %d are possible", info->name,
                   proto->n_dim, RANK_MAX);
  shape->rank = (int)proto->n_dim;
  for (int i = 0; i < shape->rank; i++) {
    const Onnx__TensorShapeProto__Dimension *dim = proto->dim[i];
    bool is_fixed = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    shape->dim[i] = is_fixed && dim->dim_value > 0 ? dim->dim_value : -1;
  }
  return 0;
}

static int read_input(struct onnx_reader *reader, const Onnx__ValueInfoProto *info, struct err *err) {
  struct value value = {.kind = VALUE_INPUT, .producer = -1};
  const Onnx__TypeProto__Tensor *tensor;
  const char *dtype_text;
  int index;
  if (!info->type || info->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
    return err_set(err, ERR_INVALID, "input '%s' is not a tensor", info->name);
  tensor = info->type->tensor_type;
  value.dtype = onnx_dtype(tensor->elem_type, &dtype_text);
  if (value.dtype == DTYPE_NONE || tensor->elem_type == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE)
    listing_add(&reader->unsupported_tensors, "input '%s' (%s)", info->name, dtype_text);
  if (read_input_shape(info, tensor->shape, &value.shape, err))
    return err->code;
  index = add_named(reader, info->name, "the name of an input", value, err);
  reader->graph->inputs[reader->graph->n_inputs++] = index;
  return index < 0 ? (int)err->code : 0;
}

static int read_inputs(struct onnx_reader *reader, struct err *err) {
  struct graph *graph = reader->graph;
  graph->inputs = arena_new(&graph->arena, reader->proto->n_input * sizeof *graph->inputs);
  for (size_t i = 0; i < reader->proto->n_input; i++) {
    const Onnx__ValueInfoProto *info = reader->proto->input[i];
    int index;
    if (onnx_name_check(info->name, "the name of an input", err))
      return err->code;
    /* Files before IR version 4 list their initializers among the inputs. */
    index = names_find(&reader->names, info->name);
    if (index >= 0 && graph->values[index].kind == VALUE_INITIALIZER)
      continue;
    if (read_input(reader, info, err))
      return err->code;
  }
  return 0;
}

/* The node's operator, or NULL: listed as not supported. */
static const struct op_def *find_op(struct onnx_reader *reader, const Onnx__NodeProto *proto,
                                    const char *name) {
  bool is_standard = onnx_domain_is_standard(proto->domain);
  const struct op_def *op = is_standard ? op_find("", proto->op_type) : NULL;
  if (op && op->min_opset <= reader->graph->opset)
    return op;
  if (op)
    listing_add(&reader->unsupported_nodes, "'%s' (%s before opset %d)", name, proto->op_type, op->min_opset);
  else if (is_standard)
    listing_add(&reader->unsupported_nodes, "'%s' (%s)", name, proto->op_type);
  else
    listing_add(&reader->unsupported_nodes, "'%s' (%s.%s)", name, proto->domain, proto->op_type);
  return NULL;
}

static int trimmed_count(char **names, size_t n) {
  while (n > 0 && !*names[n - 1])
    n--;
  return n > OP_INPUTS_MAX ? OP_INPUTS_MAX + 1 : (int)n;
}

static int check_counts(const struct node *node, const Onnx__NodeProto *proto, struct err *err) {
  const struct op_def *op = node->op;
  if (node->n_inputs > OP_INPUTS_MAX || node->n_inputs < op->min_inputs || node->n_inputs > op->max_inputs)
    return node_error(node, err, ERR_INVALID, "has %d%s inputs, it takes %d to %d", node->n_inputs,
                      node->n_inputs > OP_INPUTS_MAX ? " or more" : "", op->min_inputs, op->max_inputs);
  if (node->n_outputs > OP_OUTPUTS_MAX || node->n_outputs < op->min_outputs ||
      node->n_outputs > op->max_outputs)
    return node_error(node, err, ERR_INVALID, "has %d%s outputs, it gives %d to %d", node->n_outputs,
                      node->n_outputs > OP_OUTPUTS_MAX ? " or more" : "", op->min_outputs, op->max_outputs);
  for (int i = 0; i < op->min_inputs; i++)
    if (!*proto->input[i])
      return node_error(node, err, ERR_INVALID, "its input %d is missing", i);
  for (int o = 0; o < op->min_outputs; o++)
    if (!*proto->output[o])
      return node_error(node, err, ERR_INVALID, "its output %d is missing", o);
  return 0;
}

static int read_node_outputs(struct onnx_reader *reader, const Onnx__NodeProto *proto, struct node *node,
                             struct err *err) {
  node->outputs = arena_new(&reader->graph->arena, (size_t)node->n_outputs * sizeof *node->outputs);
  for (int o = 0; o < node->n_outputs; o++) {
    node->outputs[o] = -1;
    if (!*proto->output[o])
      continue;
    node->outputs[o] = add_named(reader, proto->output[o], "the name of an output",
                                 (struct value){.kind = VALUE_RESULT, .producer = node->index}, err);
    if (node->outputs[o] < 0)
      return err_prefix(err, "node '%s' (%s)", node->name, node->op->name);
  }
  return 0;
}

static int read_node(struct onnx_reader *reader, int index, struct err *err) {
  const Onnx__NodeProto *proto = reader->nodes[index].proto;
  struct graph *graph = reader->graph;
  struct node *node = arena_new(&graph->arena, sizeof *node);
  if (onnx_name_check(proto->op_type, "the operator of a node", err) ||
      (proto->name && *proto->name && onnx_name_check(proto->name, "the name of a node", err)) ||
      (proto->domain && *proto->domain && onnx_name_check(proto->domain, "the domain of a node", err)))
    return err_prefix(err, "node %d", index);
  node->name = proto->name && *proto->name ? arena_strdup(&graph->arena, proto->name)
                                           : arena_printf(&graph->arena, "%s_%d", proto->op_type, index);
  node->op = find_op(reader, proto, node->name);
  if (!node->op)
    return 0;
  node->forward = -1;
  node->guard = reader->nodes[index].guard;
  node->index = graph->n_nodes;
  node->n_inputs = trimmed_count(proto->input, proto->n_input);
  node->n_outputs = trimmed_count(proto->output, proto->n_output);
  if (check_counts(node, proto, err) || onnx_attrs_read(reader, proto, node, err) ||
      read_node_outputs(reader, proto, node, err))
    return err->code;
  if (strcmp(node->op->name, "Constant") == 0)
    return onnx_constant_read(reader, node, err);
  reader->node_protos[graph->n_nodes] = proto;
  graph->nodes[graph->n_nodes++] = node;
  return 0;
}

static int read_nodes(struct onnx_reader *reader, struct err *err) {
  struct graph *graph = reader->graph;
  int n = reader->n_nodes;
  reader->node_protos = arena_new(&graph->arena, (size_t)n * sizeof *reader->node_protos);
  graph->nodes = mem_new((size_t)n * sizeof *graph->nodes);
  graph->nodes_capacity = n;
  for (int i = 0; i < n; i++)
    if (read_node(reader, i, err))
      return err->code;
  return 0;
}

static int unsupported_error(struct onnx_reader *reader, struct err *err) {
  const struct {
    struct listing *listing;
    const char *one, *many;
  } kinds[] = {
      {&reader->unsupported_nodes, "node uses an operator that is", "nodes use operators that are"},
      {&reader->unsupported_tensors, "tensor has a type that is", "tensors have types that are"},
      {&reader->unsupported_attrs, "attribute is of a kind that is", "attributes are of kinds that are"},
  };
  char text[sizeof err->text] = "";
  size_t used = 0;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds && used < sizeof text; k++) {
    struct listing *listing = kinds[k].listing;
    if (listing->count)
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%d %s not supported: %s", used ? "; " : "",
                               listing->count, listing->count == 1 ? kinds[k].one : kinds[k].many,
                               listing_text(listing));
  }
  return used ? err_set(err, ERR_UNSUPPORTED, "%s", text) : 0;
}

static int resolve_inputs(struct onnx_reader *reader, struct err *err) {
  struct graph *graph = reader->graph;
  for (int n = 0; n < graph->n_nodes; n++) {
    const Onnx__NodeProto *proto = reader->node_protos[n];
    struct node *node = graph->nodes[n];
    node->inputs = arena_new(&graph->arena, (size_t)node->n_inputs * sizeof *node->inputs);
    for (int i = 0; i < node->n_inputs; i++) {
      const char *name = proto->input[i];
      node->inputs[i] = *name ? names_find(&reader->names, name) : -1;
      if (!*name || node->inputs[i] >= 0)
        continue;
      if (onnx_name_check(name, "the name of an input", err))
        return err_prefix(err, "node '%s' (%s)", node->name, node->op->name);
      return node_error(node, err, ERR_INVALID, "reads '%s', which nothing produces", name);
    }
  }
  return 0;
}

static int resolve_guards(struct onnx_reader *reader, struct err *err) {
  struct graph *graph = reader->graph;
  graph->n_guards = reader->n_guards;
  graph->guards = arena_new(&graph->arena, (size_t)reader->n_guards * sizeof *graph->guards);
  for (int g = 0; g < reader->n_guards; g++) {
    const struct onnx_guard *guard = &reader->guards[g];
    int condition = names_find(&reader->names, guard->condition);
    if (condition < 0) {
      if (onnx_name_check(guard->condition, "a condition", err))
        return err_prefix(err, "node '%s' (If)", guard->node);
      return err_set(err, ERR_INVALID, "node '%s' (If): reads '%s', which nothing produces", guard->node,
                     guard->condition);
    }
    graph->guards[g] =
        (struct guard){condition, guard->is_true, guard->outer, arena_strdup(&graph->arena, guard->node)};
  }
  return 0;
}

static int read_outputs(struct onnx_reader *reader, struct err *err) {
  struct graph *graph = reader->graph;
  if (reader->proto->n_output == 0)
    return err_set(err, ERR_INVALID, "the model has no output");
  graph->outputs = arena_new(&graph->arena, reader->proto->n_output * sizeof *graph->outputs);
  for (size_t i = 0; i < reader->proto->n_output; i++) {
    const Onnx__ValueInfoProto *info = reader->proto->output[i];
    int index;
    if (onnx_name_check(info->name, "the name of an output", err))
      return err->code;
    index = names_find(&reader->names, info->name);
    if (index < 0)
      return err_set(err, ERR_INVALID, "the model's output '%s' is produced by nothing", info->name);
    graph->outputs[graph->n_outputs++] = index;
  }
  return 0;
}
