/* The graph: values, nodes and what grows them. */
#include "model/graph/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/graph/op.h"

static const struct {
  const char *name;
  size_t size;
} dtypes[] = {
    [DTYPE_NONE] = {"none", 0}, [DTYPE_F32] = {"f32", 4}, [DTYPE_F64] = {"f64", 8},
    [DTYPE_I32] = {"i32", 4},   [DTYPE_I64] = {"i64", 8}, [DTYPE_U8] = {"u8", 1},
    [DTYPE_BOOL] = {"bool", 1},
};

size_t dtype_size(enum dtype dtype) {
  return dtypes[dtype].size;
}

const char *dtype_name(enum dtype dtype) {
  return dtypes[dtype].name;
}

int64_t shape_elems(const struct shape *shape) {
  int64_t elems = 1;
  for (int i = 0; i < shape->rank; i++)
    if (shape->dim[i] < 0 || __builtin_mul_overflow(elems, shape->dim[i], &elems))
      return -1;
  return elems;
}

bool shape_is_same(const struct shape *a, const struct shape *b) {
  return a->rank == b->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) == 0;
}

char *shape_text(const struct shape *shape, char *text, size_t size) {
  size_t used = (size_t)snprintf(text, size, "[");
  for (int i = 0; i < shape->rank && used < size; i++) {
    const char *comma = i ? "," : "";
    used += shape->dim[i] < 0
                ? (size_t)snprintf(text + used, size - used, "%s?", comma)
                : (size_t)snprintf(text + used, size - used, "%s%lld", comma, (long long)shape->dim[i]);
  }
  if (used < size)
    snprintf(text + used, size - used, "]");
  return text;
}

struct graph *graph_new(void) {
  struct graph *graph = mem_new(sizeof *graph);
  arena_init(&graph->arena);
  return graph;
}

void graph_free(struct graph *graph) {
  if (!graph)
    return;
  arena_fini(&graph->arena);
  free(graph->values);
  free(graph->nodes);
  free(graph);
}

int graph_find(const struct graph *graph, const char *name) {
  for (int i = 0; i < graph->n_values; i++)
    if (strcmp(graph->values[i].name, name) == 0)
      return i;
  return -1;
}

int graph_add_value(struct graph *graph, struct value value) {
  int index = graph->n_values;
  array_reserve((void **)&graph->values, &graph->values_capacity, index, sizeof *graph->values);
  if (!value.name)
    value.name = arena_printf(&graph->arena, "weir.%d", graph->next_name++);
  graph->values[index] = value;
  graph->n_values++;
  return index;
}

int graph_add_input(struct graph *graph, const char *name, enum dtype dtype, const struct shape *shape) {
  int *inputs = arena_new(&graph->arena, (size_t)(graph->n_inputs + 1) * sizeof *inputs);
  if (graph->n_inputs)
    memcpy(inputs, graph->inputs, (size_t)graph->n_inputs * sizeof *inputs);
  graph->inputs = inputs;
  inputs[graph->n_inputs] = graph_add_value(graph, (struct value){.name = name,
                                                                  .kind = VALUE_INPUT,
                                                                  .dtype = dtype,
                                                                  .shape = *shape,
                                                                  .producer = -1,
                                                                  .param = -1,
                                                                  .statistic = -1});
  return inputs[graph->n_inputs++];
}

static int add_constant(struct graph *graph, enum dtype dtype, struct shape shape, const void *data) {
  size_t size = (size_t)shape_elems(&shape) * dtype_size(dtype);
  return graph_add_value(graph, (struct value){.kind = VALUE_CONSTANT,
                                               .dtype = dtype,
                                               .shape = shape,
                                               .data = arena_copy(&graph->arena, data, size),
                                               .producer = -1,
                                               .param = -1,
                                               .statistic = -1});
}

int graph_add_constant_f32(struct graph *graph, float value) {
  return add_constant(graph, DTYPE_F32, (struct shape){0}, &value);
}

int graph_add_constant_vector(struct graph *graph, const float *values, int64_t n) {
  return add_constant(graph, DTYPE_F32, (struct shape){.rank = 1, .dim = {n}}, values);
}

int graph_add_constant_i64(struct graph *graph, const int64_t *values, int n) {
  return add_constant(graph, DTYPE_I64, (struct shape){.rank = 1, .dim = {n}}, values);
}

static const char *const *strings_copy(struct arena *arena, const char *const *strings, int n) {
  const char **copy = arena_new(arena, (size_t)n * sizeof *copy);
  for (int i = 0; i < n; i++)
    copy[i] = arena_strdup(arena, strings[i]);
  return copy;
}

static struct attr *attrs_copy(struct arena *arena, struct attr_list attrs) {
  struct attr *copy = arena_copy(arena, attrs.at, (size_t)attrs.n * sizeof *copy);
  for (int i = 0; i < attrs.n; i++) {
    struct attr *attr = &copy[i];
    attr->name = arena_strdup(arena, attr->name);
    if (attr->s)
      attr->s = arena_strdup(arena, attr->s);
    if (attr->ints)
      attr->ints = arena_copy(arena, attr->ints, (size_t)attr->n * sizeof *attr->ints);
    if (attr->floats)
      attr->floats = arena_copy(arena, attr->floats, (size_t)attr->n * sizeof *attr->floats);
    if (attr->strings)
      attr->strings = strings_copy(arena, attr->strings, attr->n);
    if (attr->data)
      attr->data = arena_copy(arena, attr->data, (size_t)shape_elems(&attr->shape) * dtype_size(attr->dtype));
  }
  return copy;
}

struct node *graph_append_node(struct graph *graph, const char *name, struct value_list inputs, int n_outputs,
                               struct attr_list attrs) {
  struct node *node = arena_new(&graph->arena, sizeof *node);
  const struct op_def *op = op_find("", name);
  if (!op)
    op = op_find("ai.weir", name);
  CHECK(op && inputs.n <= OP_INPUTS_MAX && n_outputs <= OP_OUTPUTS_MAX);
  *node = (struct node){.op = op,
                        .index = graph->n_nodes,
                        .n_inputs = inputs.n,
                        .n_outputs = n_outputs,
                        .n_attrs = attrs.n,
                        .forward = -1};
  node->name = arena_printf(&graph->arena, "%s_%d", name, node->index);
  node->inputs = arena_copy(&graph->arena, inputs.at, (size_t)inputs.n * sizeof *inputs.at);
  node->outputs = arena_new(&graph->arena, (size_t)n_outputs * sizeof *node->outputs);
  node->attrs = attrs_copy(&graph->arena, attrs);
  for (int i = 0; i < n_outputs; i++)
    node->outputs[i] = graph_add_value(
        graph, (struct value){.kind = VALUE_RESULT, .producer = node->index, .param = -1, .statistic = -1});
  array_reserve((void **)&graph->nodes, &graph->nodes_capacity, graph->n_nodes, sizeof(struct node *));
  graph->nodes[graph->n_nodes++] = node;
  return node;
}

struct node *graph_add_node(struct graph *graph, const char *name, struct value_list inputs, int n_outputs,
                            struct attr_list attrs) {
  struct node *node = graph_append_node(graph, name, inputs, n_outputs, attrs);
  struct err err = ERR_NONE;
  if (node->op->infer(graph, node, &err))
    check_failed(err.text, __FILE__, __LINE__);
  return node;
}

struct attr_list node_attrs(const struct node *node) {
  return (struct attr_list){node->attrs, node->n_attrs};
}

const struct attr *node_attr(const struct node *node, const char *name) {
  for (int i = 0; i < node->n_attrs; i++)
    if (strcmp(node->attrs[i].name, name) == 0)
      return &node->attrs[i];
  return NULL;
}

int64_t node_attr_int(const struct node *node, const char *name, int64_t otherwise) {
  const struct attr *attr = node_attr(node, name);
  return attr && attr->type == ATTR_INT ? attr->i : otherwise;
}

float node_attr_float(const struct node *node, const char *name, float otherwise) {
  const struct attr *attr = node_attr(node, name);
  return attr && attr->type == ATTR_FLOAT ? attr->f : otherwise;
}

const char *node_attr_string(const struct node *node, const char *name, const char *otherwise) {
  const struct attr *attr = node_attr(node, name);
  return attr && attr->type == ATTR_STRING ? attr->s : otherwise;
}

struct value *node_input(const struct graph *graph, const struct node *node, int i) {
  return i < node->n_inputs && node->inputs[i] >= 0 ? &graph->values[node->inputs[i]] : NULL;
}

struct value *node_output(const struct graph *graph, const struct node *node, int i) {
  return i < node->n_outputs && node->outputs[i] >= 0 ? &graph->values[node->outputs[i]] : NULL;
}

int node_error(const struct node *node, struct err *err, enum err_code code, const char *format, ...) {
  char text[sizeof err->text];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return err_set(err, code, "node '%s' (%s): %s", node->name, node->op->name, text);
}
