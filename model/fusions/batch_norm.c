/* Batch norm without running statistics of its own, as PyTorch's exporters write it (weight standardisation,
   modules with track_running_stats=False): a BatchNormalization whose statistics are the mean and variance of
   its own input, computed beside it. It normalises with them in training and in evaluation alike, keeps
   nothing, and gradients flow through them. */
#include "model/fusions/fuse.h"
#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

/* The one axis over which a ReduceMean does not take the mean; -1: there are others, or none. */
static int kept_axis(const struct fuse *fuse, const struct node *mean) {
  int rank = fuse->graph->values[mean->inputs[0]].shape.rank, kept = -1;
  struct axis_set axes = {.rank = rank};
  struct err err = ERR_NONE;
  if (infer_axes(fuse->graph, mean, (struct ints_source){1, "axes"}, &axes, &err) || axes.n != rank - 1)
    return -1;
  for (int d = 0; d < rank; d++)
    if (!axes.has[d])
      kept = d;
  return kept;
}

/* True if the value is x, its axes perhaps in another order, and `axis` the one of x's channels. */
static bool is_of(const struct fuse *fuse, int value, int axis, int x) {
  const struct node *node;
  for (; value != x; value = node->inputs[0]) {
    if ((node = fuse_producer(fuse, value, "Transpose"))) {
      const struct attr *perm = node_attr(node, "perm");
      if (!perm || axis >= perm->n)
        return false;
      axis = (int)perm->ints[axis];
    } else if (!(node = fuse_producer(fuse, value, "Reshape")) ||
               !shape_is_same(&fuse->graph->values[value].shape, &fuse->graph->values[node->inputs[0]].shape))
      return false;
  }
  return axis == 1;
}

static bool is_mean_of(const struct fuse *fuse, int value, int x) {
  const struct node *mean = fuse_producer(fuse, value, "ReduceMean");
  int axis = mean ? kept_axis(fuse, mean) : -1;
  return axis >= 0 && is_of(fuse, mean->inputs[0], axis, x);
}

/* The mean of (x - mean)^2. */
static bool is_variance_of(const struct fuse *fuse, int value, int x) {
  const struct node *mean = fuse_producer(fuse, value, "ReduceMean"), *square, *difference;
  int axis = mean ? kept_axis(fuse, mean) : -1;
  square = axis >= 0 ? fuse_producer(fuse, mean->inputs[0], "Mul") : NULL;
  difference =
      square && square->inputs[0] == square->inputs[1] ? fuse_producer(fuse, square->inputs[0], "Sub") : NULL;
  return difference && is_of(fuse, difference->inputs[0], axis, x) &&
         is_mean_of(fuse, difference->inputs[1], x);
}

/* BatchNormTraining gives the batch's statistics, too; nothing reads them. */
static void add_outputs(struct graph *graph, struct node *node) {
  int *outputs = arena_new(&graph->arena, 4 * sizeof *outputs);
  struct err err = ERR_NONE;
  outputs[0] = node->outputs[0];
  for (int o = 1; o < 4; o++)
    outputs[o] = graph_add_value(
        graph, (struct value){.kind = VALUE_RESULT, .producer = node->index, .param = -1, .statistic = -1});
  node->outputs = outputs;
  node->n_outputs = 4;
  if (node->op->infer(graph, node, &err))
    check_failed(err.text, __FILE__, __LINE__);
}

static bool batch_norm_apply(struct fuse *fuse, struct node *node) {
  struct attr epsilon = attr_of_float("epsilon", node_attr_float(node, "epsilon", 1e-5f));
  for (int o = 1; o < node->n_outputs; o++)
    if (node->outputs[o] >= 0 && fuse->readers[node->outputs[o]])
      return false;
  if (!is_mean_of(fuse, node->inputs[3], node->inputs[0]) ||
      !is_variance_of(fuse, node->inputs[4], node->inputs[0]))
    return false;
  fuse_become(fuse, node, "BatchNormTraining", (struct value_list){node->inputs, 3}, ATTR_LIST(epsilon));
  add_outputs(fuse->graph, node);
  return true;
}

const struct fusion_def fusion_batch_norm = {"batch_norm", "BatchNormalization", batch_norm_apply};
