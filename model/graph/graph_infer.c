/* Binding the batch, inference of types and shapes, and folding of what is known at load. */
#include <string.h>

#include "model/graph/graph.h"
#include "model/graph/op.h"

/* Larger tensors are refused: no machine holds them, and sizes in bytes cannot overflow below it. */
#define TENSOR_ELEMS_MAX ((int64_t)1 << 36)

/* A file of a few bytes must not fold into gigabytes, nor take minutes to fold: elements read, written and
   multiplied count. What is beyond is computed at each execution. */
#define FOLD_BYTES_MAX ((size_t)64 << 20)
#define FOLD_WORK_MAX ((double)(1 << 28))

struct fold_budget {
  size_t bytes;
  double work;
};

static int check_size(const struct value *value, const char *what, struct err *err) {
  char text[256];
  int64_t elems = shape_elems(&value->shape);
  if (elems < 0 || elems > TENSOR_ELEMS_MAX)
    return err_set(err, ERR_INVALID, "%s '%s' of shape %s is larger than any tensor may be", what,
                   value->name, shape_text(&value->shape, text, sizeof text));
  return 0;
}

int graph_bind_batch(struct graph *graph, int64_t batch, struct err *err) {
  for (int i = 0; i < graph->n_inputs; i++) {
    struct value *value = &graph->values[graph->inputs[i]];
    char text[256];
    if (value->shape.rank == 0)
      return err_set(err, ERR_INVALID, "input '%s' is a scalar: its first dimension should be the batch",
                     value->name);
    if (value->shape.dim[0] > 0)
      graph->file_batch = value->shape.dim[0];
    value->shape.dim[0] = batch;
    for (int d = 1; d < value->shape.rank; d++)
      if (value->shape.dim[d] < 1)
        return err_set(err, ERR_INVALID,
                       "input '%s' of shape %s: only the first dimension, the batch, may be open; export the "
                       "model with the others fixed",
                       value->name, shape_text(&value->shape, text, sizeof text));
    if (check_size(value, "input", err))
      return err->code;
  }
  return 0;
}

static int infer_node(struct graph *graph, const struct node *node, struct err *err) {
  if (node->op->infer(graph, node, err))
    return err->code;
  for (int i = 0; i < node->n_outputs; i++) {
    const struct value *value = node_output(graph, node, i);
    if (value && check_size(value, "result", err))
      return err_prefix(err, "node '%s' (%s)", node->name, node->op->name);
  }
  return 0;
}

static bool is_empty(const struct value *value) {
  return value && value->dtype == DTYPE_F32 && shape_elems(&value->shape) == 0;
}

/* A result without elements is known: x[..., n:] of n elements, which rotary embeddings join to what they
 * turned. */
static bool fold_empty(struct graph *graph, const struct node *node) {
  struct value *value = node->n_outputs == 1 ? node_output(graph, node, 0) : NULL;
  if (!is_empty(value))
    return false;
  value->kind = VALUE_CONSTANT;
  value->data = arena_new(&graph->arena, 1);
  value->producer = -1;
  return true;
}

/* Joining nothing to something is the one use of an empty tensor. */
static void drop_empty_inputs(const struct graph *graph, struct node *node) {
  int n = 0;
  if (strcmp(node->op->name, "Concat") != 0)
    return;
  for (int i = 0; i < node->n_inputs; i++)
    if (!is_empty(node_input(graph, node, i)))
      node->inputs[n++] = node->inputs[i];
  node->n_inputs = n;
}

static int empty_error(const struct node *node, const char *what, const struct value *value, const char *is,
                       struct err *err) {
  char text[256];
  return node_error(node, err, ERR_INVALID, "its %s '%s' of shape %s %s empty", what, value->name,
                    shape_text(&value->shape, text, sizeof text), is);
}

/* What is computed at each execution has elements, and is of elements; constants need not have any (Resize
   has empty vectors), and integers neither. */
static int check_results(const struct graph *graph, const struct node *node, struct err *err) {
  for (int i = 0; i < node->n_inputs; i++) {
    const struct value *value = node_input(graph, node, i);
    if (is_empty(value) && value->shape.rank > 1)
      return empty_error(node, "input", value, "is", err);
  }
  for (int i = 0; i < node->n_outputs; i++) {
    const struct value *value = node_output(graph, node, i);
    if (is_empty(value))
      return empty_error(node, "result", value, "would be", err);
  }
  return 0;
}

/* Trained weights are f32 initializers; the others never change, nor do the numbers that an exporter made. */
static bool is_known(const struct value *value) {
  if (value->kind == VALUE_INITIALIZER)
    return value->dtype != DTYPE_F32 || (value->origin == ORIGIN_EXPORTER && value->shape.rank == 0);
  return value->kind == VALUE_CONSTANT;
}

static double elems_of(const struct value *value) {
  return value ? (double)shape_elems(&value->shape) : 0;
}

static size_t bytes_of(const struct value *value) {
  return value ? (size_t)shape_elems(&value->shape) * dtype_size(value->dtype) : 0;
}

/* What folding the node takes. Work without inputs' elements where only their shapes are read. */
static struct fold_budget fold_cost(const struct graph *graph, const struct node *node) {
  struct fold_budget cost = {0, node->op->multiply_adds ? node->op->multiply_adds(graph, node) : 0};
  for (int i = 0; i < node->n_inputs && !(node->op->flags & OP_SHAPES); i++)
    cost.work += elems_of(node_input(graph, node, i));
  for (int o = 0; o < node->n_outputs; o++) {
    cost.bytes += bytes_of(node_output(graph, node, o));
    cost.work += elems_of(node_output(graph, node, o));
  }
  return cost;
}

static bool is_foldable(const struct graph *graph, const struct node *node,
                        const struct fold_budget *budget) {
  struct fold_budget cost;
  int present = 0;
  if (!node->op->ref || node->op->flags & OP_RANDOM)
    return false;
  for (int i = 0; i < node->n_inputs; i++) {
    const struct value *value = node_input(graph, node, i);
    if (value && !is_known(value) && !(node->op->flags & OP_SHAPES))
      return false;
    present += value != NULL;
  }
  cost = fold_cost(graph, node);
  return present > 0 && cost.bytes <= budget->bytes && cost.work <= budget->work;
}

static int fold_node(struct graph *graph, const struct node *node, struct fold_budget *budget,
                     struct err *err) {
  struct fold_budget cost = fold_cost(graph, node);
  struct op_call call;
  budget->bytes -= cost.bytes;
  budget->work -= cost.work;
  op_call_init(&call, &graph->arena, graph, node);
  for (int i = 0; i < node->n_inputs; i++)
    if (node->inputs[i] >= 0)
      call.in[i].data = (void *)graph->values[node->inputs[i]].data;
  for (int i = 0; i < node->n_outputs; i++) {
    const struct value *value = node_output(graph, node, i);
    if (value)
      call.out[i].data = arena_new(&graph->arena, bytes_of(value));
  }
  if (node->op->ref(&call, err))
    return err->code;
  for (int i = 0; i < node->n_outputs; i++) {
    struct value *value = node_output(graph, node, i);
    if (!value)
      continue;
    value->kind = VALUE_CONSTANT;
    value->data = call.out[i].data;
    value->producer = -1;
  }
  return 0;
}

/* 1 or 0 where the condition is known, else -1. */
static int condition_of(const struct value *value) {
  bool is_scalar = value->dtype == DTYPE_BOOL && shape_elems(&value->shape) == 1;
  return is_known(value) && is_scalar ? *(const uint8_t *)value->data != 0 : -1;
}

/* Whether a node with that guard runs: 1, 0, or -1 where a condition is not known. */
static int branch_runs(const struct graph *graph, int index) {
  const struct guard *guard;
  int outer, condition;
  if (index == 0)
    return 1;
  guard = &graph->guards[index - 1];
  outer = branch_runs(graph, guard->outer);
  if (outer != 1)
    return outer;
  condition = condition_of(&graph->values[guard->condition]);
  return condition < 0 ? -1 : (condition != 0) == guard->is_true;
}

/* Drops a node whose branch is not taken (*is_dropped), and makes of an If the one that passes its branch's
   value on. */
static int resolve_branch(struct graph *graph, struct node *node, bool *is_dropped, struct err *err) {
  int runs = branch_runs(graph, node->guard), condition;
  *is_dropped = runs == 0;
  if (runs < 0)
    return err_set(err, ERR_UNSUPPORTED,
                   "node '%s' (If): its condition is computed from the model's data; only branches that "
                   "constants and shapes decide are supported",
                   graph->guards[node->guard - 1].node);
  node->guard = 0;
  if (*is_dropped || strcmp(node->op->name, "If") != 0)
    return 0;
  condition = condition_of(&graph->values[node->inputs[0]]);
  if (condition < 0)
    return node->op->infer(graph, node, err);
  node->inputs[0] = node->inputs[condition ? 1 : 2];
  node->n_inputs = 1;
  node->op = op_find("", "Identity");
  return 0;
}

int graph_infer(struct graph *graph, struct err *err) {
  struct fold_budget budget = {FOLD_BYTES_MAX, FOLD_WORK_MAX};
  int n = graph->n_nodes;
  graph->n_nodes = 0;
  for (int i = 0; i < n; i++) {
    struct node *node = graph->nodes[i];
    bool is_dropped;
    if (resolve_branch(graph, node, &is_dropped, err))
      return err->code;
    if (is_dropped)
      continue;
    if (infer_node(graph, node, err))
      return err->code;
    if (fold_empty(graph, node))
      continue;
    drop_empty_inputs(graph, node);
    if (is_foldable(graph, node, &budget)) {
      if (fold_node(graph, node, &budget, err))
        return err->code;
      continue;
    }
    if (check_results(graph, node, err))
      return err->code;
    node->index = graph->n_nodes;
    graph->nodes[graph->n_nodes++] = node;
    for (int o = 0; o < node->n_outputs; o++)
      if (node->outputs[o] >= 0)
        graph->values[node->outputs[o]].producer = node->index;
  }
  graph->n_guards = 0;
  return 0;
}
