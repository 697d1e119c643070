/* LayerNormalization over the last dimension, as exporters write it before opset 17:
   (x - mean) / sqrt(mean of (x - mean)^2 + epsilon) * scale + bias. */

#include "model/fusions/fuse.h"
#include "model/ops/shared/backward.h"

/* The mean over the last dimension of the given value, which is kept with size 1. */
static const struct node *match_mean(const struct fuse *fuse, int value) {
  const struct node *node = fuse_producer(fuse, value, "ReduceMean");
  const struct shape *in, *out;
  if (!node)
    return NULL;
  in = &fuse->graph->values[node->inputs[0]].shape;
  out = &fuse->graph->values[node->outputs[0]].shape;
  if (in->rank < 1 || out->rank != in->rank || out->dim[in->rank - 1] != 1 || in->dim[in->rank - 1] == 1)
    return NULL;
  for (int d = 0; d < in->rank - 1; d++)
    if (in->dim[d] != out->dim[d])
      return NULL;
  return node;
}

static bool is_square_of(const struct fuse *fuse, int value, int root) {
  const struct node *node = fuse_sole_producer(fuse, value, "Pow");
  double power;
  if (node)
    return node->inputs[0] == root && fuse_scalar(fuse, node->inputs[1], &power) && power == 2;
  node = fuse_sole_producer(fuse, value, "Mul");
  return node && node->inputs[0] == root && node->inputs[1] == root;
}

/* sqrt(mean(centered^2) + epsilon) */
static bool match_deviation(const struct fuse *fuse, int value, int centered, double *epsilon) {
  const struct node *root = fuse_sole_producer(fuse, value, "Sqrt"), *sum, *mean = NULL;
  sum = root ? fuse_sole_producer(fuse, root->inputs[0], "Add") : NULL;
  for (int i = 0; sum && i < 2 && !mean; i++)
    if (fuse_scalar(fuse, sum->inputs[i], epsilon))
      mean = match_mean(fuse, sum->inputs[!i]);
  return mean && is_square_of(fuse, mean->inputs[0], centered);
}

/* One value per element of the last dimension. */
static bool is_affine(const struct fuse *fuse, int value, int64_t elems) {
  const struct shape *shape = &fuse->graph->values[value].shape;
  return shape->rank == 1 && shape->dim[0] == elems;
}

/* Of a commutative node: the operand that is a vector of `elems` becomes *vector, the other is returned. */
static int split_affine(const struct fuse *fuse, const struct node *node, int64_t elems, int *vector) {
  for (int i = 0; i < 2; i++)
    if (is_affine(fuse, node->inputs[i], elems)) {
      *vector = node->inputs[i];
      return node->inputs[!i];
    }
  return -1;
}

static bool layer_norm_apply(struct fuse *fuse, struct node *node) {
  const struct shape *shape = &fuse->graph->values[node->outputs[0]].shape;
  int64_t elems = shape->rank > 1 ? shape->dim[shape->rank - 1] : 0;
  const struct node *scaled, *quotient, *centered, *mean;
  struct attr attrs[2] = {attr_of_int("axis", -1)};
  int inputs[3], value = split_affine(fuse, node, elems, &inputs[2]);
  double epsilon;
  scaled = fuse_sole_producer(fuse, value, "Mul");
  value = scaled ? split_affine(fuse, scaled, elems, &inputs[1]) : -1;
  quotient = fuse_sole_producer(fuse, value, "Div");
  centered = quotient ? fuse_producer(fuse, quotient->inputs[0], "Sub") : NULL;
  mean = centered ? match_mean(fuse, centered->inputs[1]) : NULL;
  if (!mean || mean->inputs[0] != centered->inputs[0] ||
      !match_deviation(fuse, quotient->inputs[1], centered->outputs[0], &epsilon))
    return false;
  inputs[0] = mean->inputs[0];
  attrs[1] = attr_of_float("epsilon", (float)epsilon);
  fuse_become(fuse, node, "LayerNormalization", (struct value_list){inputs, 3}, (struct attr_list){attrs, 2});
  return true;
}

const struct fusion_def fusion_layer_norm = {"layer_norm", "Add", layer_norm_apply};
