/* Attention: softmax(scale * query x key + mask) x value, which both exporters decompose, becomes one node
   that never holds the scores of all heads at once. query f32[..., t, d], key f32[..., d, s] (transposed
   already), value f32[..., s, e]; the mask broadcasts to f32[..., t, s] and depends on no weights. */
#include "model/fusions/fuse.h"
#include "model/ops/shared/backward.h"
#include "model/ops/shared/broadcast.h"

struct attention {
  int query, key, value, mask; /* mask: -1 if there is none */
  double scale;
};

static const struct shape *shape_of(const struct fuse *fuse, int value) {
  return &fuse->graph->values[value].shape;
}

/* Dropout that never drops lies between softmax and the product with the values. */
static int skip_dropout(const struct fuse *fuse, int value) {
  const struct node *dropout = fuse_sole_producer(fuse, value, "Dropout");
  double ratio;
  if (dropout && dropout->n_outputs == 1 && dropout->n_inputs > 1 &&
      fuse_scalar(fuse, dropout->inputs[1], &ratio) && ratio == 0)
    return dropout->inputs[0];
  return value;
}

/* The scores are [scale *] (query x key) [+ mask], in any order of these. */
static const struct node *match_scores(const struct fuse *fuse, int scores, struct attention *found) {
  for (int depth = 0; depth < 3; depth++) {
    const struct node *node;
    double number;
    int other;
    if ((node = fuse_sole_producer(fuse, scores, "MatMul")))
      return node;
    if ((node = fuse_sole_producer(fuse, scores, "Mul")) && fuse_scaled(fuse, node, &other, &number)) {
      found->scale *= number;
      scores = other;
    } else if ((node = fuse_sole_producer(fuse, scores, "Div")) &&
               fuse_scalar(fuse, node->inputs[1], &number) && number != 0) {
      found->scale /= number;
      scores = node->inputs[0];
    } else if (found->mask < 0 && found->scale == 1 && (node = fuse_sole_producer(fuse, scores, "Add"))) {
      bool is_second = !fuse->is_weight[node->inputs[1]];
      found->mask = node->inputs[is_second];
      scores = node->inputs[!is_second];
    } else {
      return NULL;
    }
  }
  return fuse_sole_producer(fuse, scores, "MatMul");
}

/* Exporters scale query and key by the root of the scale each, before the product. */
static int take_scale(const struct fuse *fuse, int value, double *scale) {
  const struct node *node = fuse_sole_producer(fuse, value, "Mul");
  double number;
  int other;
  if (!node || !fuse_scaled(fuse, node, &other, &number))
    return value;
  *scale *= number;
  return other;
}

static bool attention_fits(const struct fuse *fuse, const struct attention *a, const struct node *node) {
  const struct shape *q = shape_of(fuse, a->query), *k = shape_of(fuse, a->key),
                     *v = shape_of(fuse, a->value), *out = shape_of(fuse, node->outputs[0]);
  struct shape scores = *q, common;
  if (q->rank < 2 || k->rank != q->rank || v->rank != q->rank || out->rank != q->rank)
    return false;
  for (int d = 0; d < q->rank - 2; d++)
    if (q->dim[d] != k->dim[d] || q->dim[d] != v->dim[d])
      return false;
  if (q->dim[q->rank - 1] != k->dim[k->rank - 2] || k->dim[k->rank - 1] != v->dim[v->rank - 2])
    return false;
  scores.dim[q->rank - 1] = k->dim[k->rank - 1];
  if (a->mask < 0)
    return true;
  return !fuse->is_weight[a->mask] && fuse->graph->values[a->mask].dtype == DTYPE_F32 &&
         broadcast_shapes(shape_of(fuse, a->mask), &scores, &common) && shape_is_same(&common, &scores);
}

static bool attention_apply(struct fuse *fuse, struct node *node) {
  struct attention found = {.value = node->inputs[1], .mask = -1, .scale = 1};
  int weights = skip_dropout(fuse, node->inputs[0]);
  const struct node *softmax = fuse_sole_producer(fuse, weights, "Softmax"), *product;
  struct attr scale;
  int rank;
  if (!softmax || fuse->graph->opset < 13)
    return false;
  rank = shape_of(fuse, weights)->rank;
  if (node_attr_int(softmax, "axis", -1) != -1 && node_attr_int(softmax, "axis", -1) != rank - 1)
    return false;
  product = match_scores(fuse, softmax->inputs[0], &found);
  if (!product)
    return false;
  found.query = take_scale(fuse, product->inputs[0], &found.scale);
  found.key = take_scale(fuse, product->inputs[1], &found.scale);
  if (!attention_fits(fuse, &found, node))
    return false;
  scale = attr_of_float("scale", (float)found.scale);
  fuse_become(
      fuse, node, "ScaledAttention",
      (struct value_list){(int[]){found.query, found.key, found.value, found.mask}, found.mask < 0 ? 3 : 4},
      ATTR_LIST(scale));
  return true;
}

const struct fusion_def fusion_attention = {"attention", "MatMul", attention_apply};
