/* LinearCrossEntropy: CrossEntropy of scores that are a product of hidden features and a weight, without the
   scores ever being in memory all at once: for many classes they, their softmax and their gradient are by far
   the largest tensors of a model.
   hidden f32[...,features], weight f32[features,classes] (or [classes,features] with trans_weight=1), bias
   f32[classes] (optional, of any shape with so many elements), labels i64 (as many as rows of hidden),
   weights f32[classes] (optional) -> the sums of class_rows.h, and where backward has asked for them the
   gradients of loss_sum by hidden, weight and bias, which the same pass computes: backward only multiplies
   them. */
#include "model/ops/linear_cross_entropy.h"

#include <stdlib.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

struct linear_sizes linear_sizes_of(const struct graph *graph, const struct node *node) {
  const struct shape *hidden = &node_input(graph, node, LINEAR_HIDDEN)->shape;
  const struct shape *weight = &node_input(graph, node, LINEAR_WEIGHT)->shape;
  struct linear_sizes sizes = {.rows = 1, .features = hidden->dim[hidden->rank - 1]};
  for (int d = 0; d + 1 < hidden->rank; d++)
    sizes.rows *= hidden->dim[d];
  sizes.is_transposed = node_attr_int(node, "trans_weight", 0) != 0;
  sizes.classes = weight->dim[!sizes.is_transposed];
  return sizes;
}

static int check_linear(const struct graph *graph, const struct node *node, struct err *err) {
  const struct value *hidden = node_input(graph, node, LINEAR_HIDDEN);
  const struct value *weight = node_input(graph, node, LINEAR_WEIGHT);
  const struct value *bias = node_input(graph, node, LINEAR_BIAS);
  struct linear_sizes sizes;
  char a[128], b[128];
  for (int i = LINEAR_HIDDEN; i <= LINEAR_BIAS; i++)
    if (node_input(graph, node, i) && node_input(graph, node, i)->dtype != DTYPE_F32)
      return node_error(node, err, ERR_INVALID, "input %d is %s; it must be f32", i,
                        dtype_name(node_input(graph, node, i)->dtype));
  if (hidden->shape.rank < 2 || weight->shape.rank != 2)
    return node_error(node, err, ERR_INVALID, "%s and %s are no rows and matrix",
                      shape_text(&hidden->shape, a, sizeof a), shape_text(&weight->shape, b, sizeof b));
  sizes = linear_sizes_of(graph, node);
  if (weight->shape.dim[sizes.is_transposed] != sizes.features)
    return node_error(node, err, ERR_INVALID, "%s and %s cannot be multiplied",
                      shape_text(&hidden->shape, a, sizeof a), shape_text(&weight->shape, b, sizeof b));
  if (bias && shape_elems(&bias->shape) != sizes.classes)
    return node_error(node, err, ERR_INVALID, "the bias has shape %s for %lld classes",
                      shape_text(&bias->shape, a, sizeof a), (long long)sizes.classes);
  return ERR_OK;
}

static int linear_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *labels = node_input(graph, node, LINEAR_LABELS);
  struct shape of_labels = labels->shape;
  struct linear_sizes sizes;
  if (check_linear(graph, node, err))
    return err->code;
  sizes = linear_sizes_of(graph, node);
  if (of_labels.rank == 0 || shape_elems(&of_labels) != sizes.rows)
    return node_error(node, err, ERR_INVALID, "%lld labels for %lld rows", (long long)shape_elems(&of_labels),
                      (long long)sizes.rows);
  if (class_rows_check_labels(graph, node, LINEAR_LABELS, &of_labels, err) ||
      class_rows_check_weights(graph, node, LINEAR_LABELS + 1, sizes.classes, err) ||
      class_rows_infer(graph, node, err))
    return err->code;
  for (int i = LINEAR_HIDDEN; i <= LINEAR_BIAS; i++) {
    const struct value *input = node_input(graph, node, i);
    struct shape shape = input ? input->shape : (struct shape){0};
    if (infer_f32(graph, node, LINEAR_GRADS + i, &shape, err))
      return err->code;
  }
  return ERR_OK;
}

/* Gives the forward node the outputs that backward reads. */
static void ask_for_gradients(const struct autodiff *ad, struct graph *graph, struct node *forward) {
  int *outputs = arena_new(&graph->arena, LINEAR_OUTPUTS * sizeof *outputs), n = LINEAR_GRADS;
  for (int o = 0; o < LINEAR_OUTPUTS; o++)
    outputs[o] = o < forward->n_outputs ? forward->outputs[o] : -1;
  for (int i = LINEAR_HIDDEN; i <= LINEAR_BIAS; i++) {
    struct value gradient = {.kind = VALUE_RESULT, .producer = forward->index, .param = -1, .statistic = -1};
    if (!autodiff_wants(ad, forward, i))
      continue;
    outputs[LINEAR_GRADS + i] = graph_add_value(graph, gradient);
    n = LINEAR_GRADS + i + 1;
  }
  forward->outputs = outputs;
  forward->n_outputs = n;
}

static int linear_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                           struct err *err) {
  int dsum = autodiff_grad(ad, node, 0);
  if (dsum < 0)
    return ERR_OK;
  ask_for_gradients(ad, graph, graph->nodes[node->index]);
  if (linear_infer(graph, node, err))
    return err->code;
  for (int i = LINEAR_HIDDEN; i <= LINEAR_BIAS; i++)
    if (autodiff_wants(ad, node, i))
      autodiff_add(ad, node, i, backward_binary(graph, "Mul", node->outputs[LINEAR_GRADS + i], dsum));
  return ERR_OK;
}

/* scores = h weight + bias, summed in f64. */
static void row_scores(const struct linear_sizes *sizes, const struct op_call *call, const float *h,
                       double *sums, float *scores) {
  const float *w = call->in[LINEAR_WEIGHT].data, *bias = call->in[LINEAR_BIAS].data;
  for (int64_t c = 0; c < sizes->classes; c++)
    sums[c] = bias ? (double)bias[c] : 0.0;
  if (sizes->is_transposed)
    for (int64_t c = 0; c < sizes->classes; c++, w += sizes->features)
      for (int64_t f = 0; f < sizes->features; f++)
        sums[c] += (double)h[f] * w[f];
  else
    for (int64_t f = 0; f < sizes->features; f++, w += sizes->classes)
      for (int64_t c = 0; c < sizes->classes; c++)
        sums[c] += (double)h[f] * w[c];
  for (int64_t c = 0; c < sizes->classes; c++)
    scores[c] = (float)sums[c];
}

/* dh = weight dscores; sums f64[features] */
static void row_hidden_gradient(const struct linear_sizes *sizes, const float *w, const float *dscores,
                                double *sums, float *dh) {
  for (int64_t f = 0; f < sizes->features; f++)
    sums[f] = 0.0;
  for (int64_t c = 0; c < sizes->classes && sizes->is_transposed; c++)
    for (int64_t f = 0; f < sizes->features; f++)
      sums[f] += (double)dscores[c] * w[c * sizes->features + f];
  for (int64_t f = 0; f < sizes->features && !sizes->is_transposed; f++)
    for (int64_t c = 0; c < sizes->classes; c++)
      sums[f] += (double)dscores[c] * w[f * sizes->classes + c];
  for (int64_t f = 0; f < sizes->features; f++)
    dh[f] = (float)sums[f];
}

/* dweight += h dscores */
static void row_weight_gradient(const struct linear_sizes *sizes, const float *h, const float *dscores,
                                float *dweight) {
  const float *outer = sizes->is_transposed ? dscores : h, *inner = sizes->is_transposed ? h : dscores;
  int64_t n_outer = sizes->is_transposed ? sizes->classes : sizes->features;
  int64_t n_inner = sizes->is_transposed ? sizes->features : sizes->classes;
  for (int64_t o = 0; o < n_outer; o++, dweight += n_inner)
    for (int64_t i = 0; i < n_inner; i++)
      dweight[i] += outer[o] * inner[i];
}

static void tensor_clear(const struct tensor *tensor) {
  float *data = tensor->data;
  for (int64_t i = 0; data && i < shape_elems(&tensor->shape); i++)
    data[i] = 0;
}

static void row_gradients(const struct linear_sizes *sizes, const struct op_call *call, int64_t row,
                          const float *dscores, double *sums) {
  const float *h = (const float *)call->in[LINEAR_HIDDEN].data + row * sizes->features;
  const struct tensor *grads = &call->out[LINEAR_GRADS];
  float *dhidden = grads[LINEAR_HIDDEN].data, *dweight = grads[LINEAR_WEIGHT].data;
  float *dbias = grads[LINEAR_BIAS].data;
  if (dhidden)
    row_hidden_gradient(sizes, call->in[LINEAR_WEIGHT].data, dscores, sums, dhidden + row * sizes->features);
  if (dweight)
    row_weight_gradient(sizes, h, dscores, dweight);
  for (int64_t c = 0; dbias && c < sizes->classes; c++)
    dbias[c] += dscores[c];
}

static int linear_ref(const struct op_call *call, struct err *err) {
  struct linear_sizes sizes = linear_sizes_of(call->graph, call->node);
  const struct tensor *grads = &call->out[LINEAR_GRADS];
  const int64_t *labels = call->in[LINEAR_LABELS].data;
  bool has_gradients = grads[LINEAR_HIDDEN].data || grads[LINEAR_WEIGHT].data || grads[LINEAR_BIAS].data;
  size_t longer = (size_t)(sizes.features > sizes.classes ? sizes.features : sizes.classes) + 1;
  double *sums = calloc(longer, sizeof *sums);
  float *scores = calloc((size_t)sizes.classes + 1, sizeof *scores);
  struct class_sums total = {0};
  struct class_rows rows;
  int code = ERR_OK;
  if (!sums || !scores)
    code = node_error(call->node, err, ERR_NO_MEMORY, "no memory for a row of %zu", longer);
  else
    code = class_rows_init(&rows, call->node, &call->in[LINEAR_LABELS], sizes.classes, err);
  tensor_clear(&grads[LINEAR_WEIGHT]);
  tensor_clear(&grads[LINEAR_BIAS]);
  for (int64_t r = 0; r < sizes.rows && !code; r++) {
    const float *h = (const float *)call->in[LINEAR_HIDDEN].data + r * sizes.features;
    const struct class_row row = {scores, 1, labels[r]};
    row_scores(&sizes, call, h, sums, scores);
    class_rows_add(&rows, &row, &total);
    if (!has_gradients)
      continue;
    class_rows_gradient(&rows, &row, 1.0, scores);
    row_gradients(&sizes, call, r, scores, sums);
  }
  if (!code)
    class_rows_finish(&total, call->out);
  free(sums);
  free(scores);
  return code;
}

/* The scores, and once more for the gradient of hidden and of weight, if they are asked for. */
static double linear_multiply_adds(const struct graph *graph, const struct node *node) {
  struct linear_sizes sizes = linear_sizes_of(graph, node);
  int products = 1 + (node_output(graph, node, LINEAR_GRADS + LINEAR_HIDDEN) != NULL) +
                 (node_output(graph, node, LINEAR_GRADS + LINEAR_WEIGHT) != NULL);
  return products * (double)sizes.rows * (double)sizes.features * (double)sizes.classes;
}

static const struct op_case linear_cases[] = {
    {.inputs = "f32[4,3] f32[3,5] - i64{5}[4]", .outputs = 4},
    {.inputs = "f32[2,3,4] f32[6,4] f32[6] i64[2,3]=1,-100,5,0,-100,2",
     .attrs = "trans_weight=1 label_smoothing=0.25f",
     .outputs = 4},
    {.inputs = "f32[2,3] f32[3,4] f32[4] i64[2]=-100,-100", .outputs = 4},
    {.inputs = "f32[3,2] f32[2,3001] f32[3001] i64[3]=3000,-100,4", .outputs = 4, .is_not_smooth = true},
    {.inputs = "f32[3,8] f32[1027,8] - i64[3]=1026,-100,1023",
     .attrs = "trans_weight=1",
     .outputs = 4,
     .is_not_smooth = true},
    {.inputs = "f32[n,t,f] w b i64{c}[n*t] k",
     .attrs = "trans_weight=p label_smoothing=s ignore_index=0",
     .draw = "n=1..3 t=1..3 f=1..4 c=2..6 p=0|1 w=f32[f,c]|f32[c,f] b=-|f32[c]|f32[1,c] "
             "k=-|f32{0.5..2}[c] s=0f|0.5f",
     .outputs = 4},
    {0},
};

const struct op_def op_LinearCrossEntropy = {
    .name = "LinearCrossEntropy",
    .domain = "ai.weir",
    .min_inputs = 4,
    .max_inputs = LINEAR_INPUTS,
    .min_outputs = 1,
    .max_outputs = LINEAR_OUTPUTS,
    .infer = linear_infer,
    .backward = linear_backward,
    .ref = linear_ref,
    .multiply_adds = linear_multiply_adds,
    .cases = linear_cases,
};
