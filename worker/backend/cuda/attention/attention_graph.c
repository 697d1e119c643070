/* The patterns. Source: Dao et al., FlashAttention, 2022; which operations stand for it, the documentation of
   cuDNN's graph API (fused flash attention, forward and backward). */
#include "worker/backend/cuda/attention/attention_graph.h"

#include <math.h>

/* A graph under construction. */
struct sketch {
  struct attention_graph *graph;
  struct dnn_graph *dnn;
  const struct attention_kind *kind;
};

/* Matrices [rows, columns]; turned: stored as [columns, rows]. */
static struct dnn_tensor sketch_matrices(const struct sketch *sketch, cudnnDataType_t type, int64_t rows,
                                         int64_t columns, bool is_turned) {
  const struct attention_kind *kind = sketch->kind;
  int64_t elems = rows * columns;
  return (struct dnn_tensor){
      .type = type,
      .dim = {kind->batch, kind->heads, rows, columns},
      .stride = {kind->heads * elems, elems, is_turned ? 1 : columns, is_turned ? rows : 1}};
}

static int matrices_bound(const struct sketch *sketch, enum attention_role role, cudnnDataType_t type,
                          int64_t rows, int64_t columns) {
  struct dnn_tensor tensor = sketch_matrices(sketch, type, rows, columns, false);
  return sketch->graph->tensors[role] = dnn_graph_tensor(sketch->dnn, &tensor);
}

/* An input that products read as [columns, rows]. */
static int bound_turned(const struct sketch *sketch, enum attention_role role, int64_t rows,
                        int64_t columns) {
  struct dnn_tensor tensor = sketch_matrices(sketch, CUDNN_DATA_BFLOAT16, columns, rows, true);
  return sketch->graph->tensors[role] = dnn_graph_tensor(sketch->dnn, &tensor);
}

static int matrices_within(const struct sketch *sketch, cudnnDataType_t type, int64_t rows, int64_t columns) {
  struct dnn_tensor tensor = sketch_matrices(sketch, type, rows, columns, false);
  return dnn_graph_virtual(sketch->dnn, &tensor);
}

/* f32[t, s] */
static int scores_of(const struct sketch *sketch) {
  return matrices_within(sketch, CUDNN_DATA_FLOAT, sketch->kind->t, sketch->kind->s);
}

/* f32[t, 1] */
static int row_numbers(const struct sketch *sketch) {
  return matrices_within(sketch, CUDNN_DATA_FLOAT, sketch->kind->t, 1);
}

static int sketch_point(const struct sketch *sketch, cudnnPointwiseMode_t mode, int x, int b, int y) {
  dnn_graph_pointwise(
      sketch->dnn,
      &(struct dnn_pointwise){.mode = mode, .compute = CUDNN_DATA_FLOAT, .x = x, .b = b, .t = -1, .y = y});
  return y;
}

/* The row or column that each score is in. */
static int index_of(const struct sketch *sketch, int scores, int64_t axis) {
  int index = matrices_within(sketch, CUDNN_DATA_INT32, sketch->kind->t, sketch->kind->s);
  dnn_graph_pointwise(sketch->dnn, &(struct dnn_pointwise){.mode = CUDNN_POINTWISE_GEN_INDEX,
                                                           .compute = CUDNN_DATA_FLOAT,
                                                           .axis = axis,
                                                           .x = scores,
                                                           .b = -1,
                                                           .t = -1,
                                                           .y = index});
  return index;
}

/* What is beyond the diagonal becomes -inf. */
static int scores_hide(const struct sketch *sketch, int scores) {
  const struct attention_kind *kind = sketch->kind;
  int rows = index_of(sketch, scores, 2), columns = index_of(sketch, scores, 3);
  int seen = matrices_within(sketch, CUDNN_DATA_BOOLEAN, kind->t, kind->s), hidden = scores_of(sketch);
  dnn_graph_pointwise(sketch->dnn, &(struct dnn_pointwise){.mode = CUDNN_POINTWISE_CMP_GE,
                                                           .compute = CUDNN_DATA_BOOLEAN,
                                                           .x = rows,
                                                           .b = columns,
                                                           .t = -1,
                                                           .y = seen});
  dnn_graph_pointwise(sketch->dnn, &(struct dnn_pointwise){.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                                           .compute = CUDNN_DATA_FLOAT,
                                                           .x = scores,
                                                           .b = dnn_graph_number(sketch->dnn, -INFINITY),
                                                           .t = seen,
                                                           .y = hidden});
  return hidden;
}

/* scale * query x key */
static int scaled_scores(const struct sketch *sketch, int query, int key, int scale) {
  int products = scores_of(sketch);
  dnn_graph_matmul(sketch->dnn, query, key, products);
  return sketch_point(sketch, CUDNN_POINTWISE_MUL, products, scale, scores_of(sketch));
}

/* Weights in the type of factors; sums: y of the logarithms. */
static int scores_softmax(const struct sketch *sketch, int scores, int sums) {
  const struct attention_kind *kind = sketch->kind;
  int greatest = row_numbers(sketch), sum = row_numbers(sketch);
  dnn_graph_reduce(sketch->dnn, CUDNN_REDUCE_TENSOR_MAX, scores, greatest);
  int less = sketch_point(sketch, CUDNN_POINTWISE_SUB, scores, greatest, scores_of(sketch));
  int powers = sketch_point(sketch, CUDNN_POINTWISE_EXP, less, -1, scores_of(sketch));
  dnn_graph_reduce(sketch->dnn, CUDNN_REDUCE_TENSOR_ADD, powers, sum);
  int logarithm = sketch_point(sketch, CUDNN_POINTWISE_LOG, sum, -1, row_numbers(sketch));
  sketch_point(sketch, CUDNN_POINTWISE_ADD, greatest, logarithm, sums);
  return sketch_point(sketch, CUDNN_POINTWISE_DIV, powers, sum,
                      matrices_within(sketch, CUDNN_DATA_BFLOAT16, kind->t, kind->s));
}

static void sketch_forward(const struct sketch *sketch) {
  const struct attention_kind *kind = sketch->kind;
  int query = matrices_bound(sketch, ATTENTION_QUERY, CUDNN_DATA_BFLOAT16, kind->t, kind->d);
  int key = bound_turned(sketch, ATTENTION_KEY, kind->s, kind->d);
  int value = matrices_bound(sketch, ATTENTION_VALUE, CUDNN_DATA_BFLOAT16, kind->s, kind->e);
  int y = matrices_bound(sketch, ATTENTION_Y, CUDNN_DATA_BFLOAT16, kind->t, kind->e);
  int sums = matrices_bound(sketch, ATTENTION_SUMS, CUDNN_DATA_FLOAT, kind->t, 1);
  int scores = scaled_scores(sketch, query, key, dnn_graph_number(sketch->dnn, kind->scale));
  if (kind->is_causal)
    scores = scores_hide(sketch, scores);
  dnn_graph_matmul(sketch->dnn, scores_softmax(sketch, scores, sums), value, y);
}

/* dy . y of each row. */
static int along_of(const struct sketch *sketch, int dy, int y) {
  const struct attention_kind *kind = sketch->kind;
  int products = sketch_point(sketch, CUDNN_POINTWISE_MUL, dy, y,
                              matrices_within(sketch, CUDNN_DATA_FLOAT, kind->t, kind->e));
  int sum = row_numbers(sketch),
      along = matrices_bound(sketch, ATTENTION_ALONG, CUDNN_DATA_FLOAT, kind->t, 1);
  dnn_graph_reduce(sketch->dnn, CUDNN_REDUCE_TENSOR_ADD, products, sum);
  return sketch_point(sketch, CUDNN_POINTWISE_MUL, sum, dnn_graph_number(sketch->dnn, 1), along);
}

/* [t, s] as factors [s, t]. */
static int matrices_turned(const struct sketch *sketch, int scores) {
  struct dnn_tensor tensor =
      sketch_matrices(sketch, CUDNN_DATA_BFLOAT16, sketch->kind->s, sketch->kind->t, true);
  int y = dnn_graph_virtual(sketch->dnn, &tensor);
  dnn_graph_reshape(sketch->dnn, scores, y);
  return y;
}

static void query_gradient(const struct sketch *sketch, int d_scores, int key, bool is_fast) {
  const struct attention_kind *kind = sketch->kind;
  int keys = matrices_within(sketch, CUDNN_DATA_BFLOAT16, kind->s, kind->d);
  int dquery = matrices_bound(sketch, ATTENTION_DQUERY, CUDNN_DATA_BFLOAT16, kind->t, kind->d);
  dnn_graph_reshape(sketch->dnn, key, keys);
  if (!is_fast) {
    dnn_graph_matmul(sketch->dnn, d_scores, keys, dquery);
    return;
  }
  int sum = matrices_bound(sketch, ATTENTION_DQUERY_SUM, CUDNN_DATA_FLOAT, kind->t, kind->d);
  dnn_graph_matmul(sketch->dnn, d_scores, keys, sum);
  sketch_point(sketch, CUDNN_POINTWISE_IDENTITY, sum, -1, dquery);
}

static void sketch_backward(const struct sketch *sketch, bool is_fast) {
  const struct attention_kind *kind = sketch->kind;
  int query = matrices_bound(sketch, ATTENTION_QUERY, CUDNN_DATA_BFLOAT16, kind->t, kind->d);
  int key = bound_turned(sketch, ATTENTION_KEY, kind->s, kind->d);
  int value = bound_turned(sketch, ATTENTION_VALUE, kind->s, kind->e);
  int y = matrices_bound(sketch, ATTENTION_Y, CUDNN_DATA_BFLOAT16, kind->t, kind->e);
  int dy = matrices_bound(sketch, ATTENTION_DY, CUDNN_DATA_BFLOAT16, kind->t, kind->e);
  int sums = matrices_bound(sketch, ATTENTION_SUMS, CUDNN_DATA_FLOAT, kind->t, 1);
  int scale = dnn_graph_number(sketch->dnn, kind->scale), along = along_of(sketch, dy, y);
  int scores = scaled_scores(sketch, query, key, scale), d_weights = scores_of(sketch);
  scores = sketch_point(sketch, CUDNN_POINTWISE_SUB, scores, sums, scores_of(sketch));
  if (kind->is_causal)
    scores = scores_hide(sketch, scores);
  int weights = sketch_point(sketch, CUDNN_POINTWISE_EXP, scores, -1, scores_of(sketch));
  dnn_graph_matmul(sketch->dnn, matrices_turned(sketch, weights), dy,
                   matrices_bound(sketch, ATTENTION_DVALUE, CUDNN_DATA_BFLOAT16, kind->s, kind->e));
  dnn_graph_matmul(sketch->dnn, dy, value, d_weights);
  int less = sketch_point(sketch, CUDNN_POINTWISE_SUB, d_weights, along, scores_of(sketch));
  int d_scores = sketch_point(sketch, CUDNN_POINTWISE_MUL, less, weights, scores_of(sketch));
  d_scores = sketch_point(sketch, CUDNN_POINTWISE_MUL, d_scores, scale, scores_of(sketch));
  dnn_graph_matmul(sketch->dnn, matrices_turned(sketch, d_scores), query,
                   matrices_bound(sketch, ATTENTION_DKEY, CUDNN_DATA_BFLOAT16, kind->s, kind->d));
  query_gradient(sketch, d_scores, key, is_fast);
}

void attention_graph_init(struct attention_graph *graph, const struct attention_kind *kind, bool is_fast) {
  struct sketch sketch = {.graph = graph, .dnn = dnn_graph_new(), .kind = kind};
  graph->dnn = sketch.dnn;
  for (int role = 0; role < ATTENTION_ROLES; role++)
    graph->tensors[role] = -1;
  if (kind->is_grad)
    sketch_backward(&sketch, is_fast);
  else
    sketch_forward(&sketch);
}

void attention_graph_fini(struct attention_graph *graph) {
  dnn_graph_free(graph->dnn);
}
