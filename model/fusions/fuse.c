/* The table of fusions, and what their patterns share. */
#include "model/fusions/fuse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/graph/op.h"

#define FUSION(symbol) extern const struct fusion_def fusion_##symbol;
#include "model/fusions/fusion.def"
#undef FUSION

static const struct fusion_def *const fusions[] = {
#define FUSION(symbol) &fusion_##symbol,
#include "model/fusions/fusion.def"
#undef FUSION
    NULL};

static void fuse_init(struct fuse *fuse, struct graph *graph) {
  *fuse = (struct fuse){.graph = graph, .n_values = graph->n_values};
  fuse->readers = mem_new((size_t)graph->n_values * sizeof *fuse->readers);
  fuse->is_weight = mem_new((size_t)graph->n_values * sizeof *fuse->is_weight);
  for (int v = 0; v < graph->n_values; v++)
    fuse->is_weight[v] = graph->values[v].kind == VALUE_INITIALIZER && graph->values[v].dtype == DTYPE_F32 &&
                         graph->values[v].origin != ORIGIN_EXPORTER;
  for (int o = 0; o < graph->n_outputs; o++)
    fuse->readers[graph->outputs[o]]++;
  for (int n = 0; n < graph->n_nodes; n++) {
    const struct node *node = graph->nodes[n];
    bool depends = false;
    for (int i = 0; i < node->n_inputs; i++)
      if (node->inputs[i] >= 0) {
        fuse->readers[node->inputs[i]]++;
        depends |= fuse->is_weight[node->inputs[i]];
      }
    for (int o = 0; o < node->n_outputs && depends; o++)
      if (node->outputs[o] >= 0 && graph->values[node->outputs[o]].dtype == DTYPE_F32)
        fuse->is_weight[node->outputs[o]] = true;
  }
}

static void fuse_fini(struct fuse *fuse) {
  free(fuse->readers);
  free(fuse->is_weight);
}

void graph_fuse(struct graph *graph) {
  struct fuse fuse;
  fuse_init(&fuse, graph);
  for (int n = 0; n < graph->n_nodes; n++)
    for (int f = 0; fusions[f]; f++)
      if (strcmp(graph->nodes[n]->op->name, fusions[f]->op) == 0 && fusions[f]->apply(&fuse, graph->nodes[n]))
        break;
  fuse_fini(&fuse);
}

struct node *fuse_producer(const struct fuse *fuse, int value, const char *op) {
  int producer = value >= 0 ? fuse->graph->values[value].producer : -1;
  struct node *node = producer >= 0 ? fuse->graph->nodes[producer] : NULL;
  return node && strcmp(node->op->name, op) == 0 && node->outputs[0] == value ? node : NULL;
}

struct node *fuse_sole_producer(const struct fuse *fuse, int value, const char *op) {
  return value >= 0 && fuse->readers[value] == 1 ? fuse_producer(fuse, value, op) : NULL;
}

bool fuse_scalar(const struct fuse *fuse, int index, double *number) {
  const struct value *value = index >= 0 ? &fuse->graph->values[index] : NULL;
  if (!value || !value->data || value->dtype != DTYPE_F32 || fuse->is_weight[index] ||
      shape_elems(&value->shape) != 1)
    return false;
  *number = *(const float *)value->data;
  return true;
}

bool fuse_is_near(double number, double expected) {
  return fabs(number - expected) <= 1e-4 * fabs(expected);
}

bool fuse_scaled(const struct fuse *fuse, const struct node *product, int *other, double *number) {
  const struct shape *shape = &fuse->graph->values[product->outputs[0]].shape;
  for (int i = 0; i < 2; i++) {
    *other = product->inputs[!i];
    if (fuse_scalar(fuse, product->inputs[i], number) &&
        shape_is_same(shape, &fuse->graph->values[*other].shape))
      return true;
  }
  return false;
}

/* Readers are counted before a node leaves a value, and after it came to read one, so that later patterns see
   what the fused graph looks like. */
void fuse_become(struct fuse *fuse, struct node *node, const char *op, struct value_list inputs,
                 struct attr_list attrs) {
  struct arena *arena = &fuse->graph->arena;
  struct err err = ERR_NONE;
  struct attr *copy = arena_copy(arena, attrs.at, (size_t)attrs.n * sizeof *attrs.at);
  for (int i = 0; i < node->n_inputs; i++)
    if (node->inputs[i] >= 0)
      fuse->readers[node->inputs[i]]--;
  for (int i = 0; i < inputs.n; i++)
    if (inputs.at[i] >= 0)
      fuse->readers[inputs.at[i]]++;
  for (int a = 0; a < attrs.n; a++)
    CHECK(copy[a].type == ATTR_INT || copy[a].type == ATTR_FLOAT || copy[a].type == ATTR_STRING);
  node->op = op_find("", op) ? op_find("", op) : op_find("ai.weir", op);
  CHECK(node->op);
  node->inputs = arena_copy(arena, inputs.at, (size_t)inputs.n * sizeof *inputs.at);
  node->n_inputs = inputs.n;
  node->n_outputs = 1;
  node->attrs = copy;
  node->n_attrs = attrs.n;
  if (node->op->infer(fuse->graph, node, &err))
    check_failed(err.text, __FILE__, __LINE__);
}
