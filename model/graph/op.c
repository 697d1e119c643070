/* The table of operators, from model/graph/op.def: one row OP(NAME) for each const struct op_def op_NAME,
   whose gradient ops hang on it. */
#include "model/graph/op.h"

#include <string.h>

#define OP(name) extern const struct op_def op_##name;
#include "model/graph/op.def"
#undef OP

static const struct op_def *const op_table[] = {
#define OP(name) &op_##name,
#include "model/graph/op.def"
#undef OP
    NULL};

static bool is_named(const struct op_def *op, const char *domain, const char *name) {
  return strcmp(op->name, name) == 0 && strcmp(op->domain, domain) == 0;
}

const struct op_def *op_find(const char *domain, const char *name) {
  for (int i = 0; op_table[i]; i++) {
    if (is_named(op_table[i], domain, name))
      return op_table[i];
    for (const struct op_def *const *grad = op_table[i]->gradients; grad && *grad; grad++)
      if (is_named(*grad, domain, name))
        return *grad;
  }
  return NULL;
}

const struct op_def *op_at(int index) {
  for (int i = 0; op_table[i]; i++) {
    if (index-- == 0)
      return op_table[i];
    for (const struct op_def *const *grad = op_table[i]->gradients; grad && *grad; grad++)
      if (index-- == 0)
        return *grad;
  }
  return NULL;
}

/* Optional inputs and outputs that a node leaves out at its end, kernels look at all the same. */
static struct tensor *tensors_new(struct arena *arena, const struct graph *graph, const int *values, int n,
                                  int n_possible) {
  struct tensor *tensors;
  int slots = n_possible < OP_OPTIONAL_MAX ? n_possible : OP_OPTIONAL_MAX;
  tensors = arena_new(arena, (size_t)(n > slots ? n : slots) * sizeof *tensors);
  for (int i = 0; i < n; i++)
    if (values[i] >= 0)
      tensors[i] = (struct tensor){graph->values[values[i]].dtype, graph->values[values[i]].shape, NULL};
  return tensors;
}

void op_call_init(struct op_call *call, struct arena *arena, const struct graph *graph,
                  const struct node *node) {
  *call = (struct op_call){.graph = graph, .node = node};
  call->in = tensors_new(arena, graph, node->inputs, node->n_inputs, node->op->max_inputs);
  call->out = tensors_new(arena, graph, node->outputs, node->n_outputs, node->op->max_outputs);
}
