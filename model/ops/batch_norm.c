/* BatchNormalization (ONNX 7..15). In inference form it uses the statistics that are its inputs. With
   training_mode (since 14) it uses the batch's and returns updated ones; a train graph has BatchNormTraining
   in its place. */
#include "model/ops/batch_norm.h"

#include <math.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

struct batch_norm batch_norm_of(const struct shape *x) {
  struct batch_norm bn = {.n = x->dim[0], .c = x->dim[1], .inner = 1};
  for (int d = 2; d < x->rank; d++)
    bn.inner *= x->dim[d];
  return bn;
}

int batch_norm_init(struct batch_norm *bn, const struct graph *graph, const struct node *node,
                    struct batch_norm_inputs inputs, struct err *err) {
  const struct shape *shape = &node_input(graph, node, inputs.x)->shape;
  char text[128];
  if (infer_check_f32(graph, node, err))
    return err->code;
  if (shape->rank < 2)
    return node_error(node, err, ERR_INVALID, "input of shape %s has no channels",
                      shape_text(shape, text, sizeof text));
  for (int i = inputs.first_vector; i <= inputs.last_vector; i++)
    if (infer_check_vector(graph, node, i, shape->dim[1], err))
      return err->code;
  *bn = batch_norm_of(shape);
  return ERR_OK;
}

void batch_norm_moments(const struct batch_norm *bn, const float *x, int64_t k, double *mean,
                        double *variance) {
  double sum = 0.0, squares = 0.0, count = (double)(bn->n * bn->inner);
  for (int64_t s = 0; s < bn->n; s++)
    for (int64_t i = 0; i < bn->inner; i++)
      sum += x[(s * bn->c + k) * bn->inner + i];
  *mean = sum / count;
  for (int64_t s = 0; s < bn->n; s++)
    for (int64_t i = 0; i < bn->inner; i++) {
      double centred = x[(s * bn->c + k) * bn->inner + i] - *mean;
      squares += centred * centred;
    }
  *variance = squares / count;
}

void batch_norm_apply(const struct batch_norm *bn, const float *x, float *y, int64_t k,
                      struct affine affine) {
  for (int64_t s = 0; s < bn->n; s++)
    for (int64_t i = 0; i < bn->inner; i++) {
      int64_t at = (s * bn->c + k) * bn->inner + i;
      y[at] = (float)(x[at] * affine.factor + affine.offset);
    }
}

/* Before opset 14 a node asks for training by having more outputs than y. */
static bool is_training_form(const struct graph *graph, const struct node *node) {
  return graph->opset >= 14 ? node_attr_int(node, "training_mode", 0) != 0 : node->n_outputs > 1;
}

static int batch_normalization_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct batch_norm bn;
  struct shape x = node_input(graph, node, 0)->shape, channels;
  if (!node_attr_int(node, "spatial", 1))
    return node_error(node, err, ERR_UNSUPPORTED, "spatial=0 (opset 7 and 8) is not supported");
  if (batch_norm_init(&bn, graph, node,
                      (struct batch_norm_inputs){.x = 0, .first_vector = 1, .last_vector = 4}, err) ||
      infer_f32(graph, node, 0, &x, err))
    return err->code;
  if (node->n_outputs > 1 && !is_training_form(graph, node))
    return node_error(node, err, ERR_INVALID, "only its training form has more than one output");
  channels = (struct shape){.rank = 1, .dim = {bn.c}};
  for (int i = 1; i < node->n_outputs; i++)
    if (infer_f32(graph, node, i, &channels, err))
      return err->code;
  return ERR_OK;
}

/* [c,1,...]: what a vector over channels becomes to broadcast to x. */
static struct shape row_shape(const struct graph *graph, const struct node *node) {
  struct shape x = node_input(graph, node, 0)->shape, row = {.rank = x.rank - 1};
  for (int d = 0; d < row.rank; d++)
    row.dim[d] = d == 0 ? x.dim[1] : 1;
  return row;
}

static int add_row(struct graph *graph, const struct node *node, int i) {
  struct shape row = row_shape(graph, node);
  return backward_reshape(graph, node->inputs[i], &row);
}

/* Sums `grad`, of x's shape, over all but the channels, for input i. */
static void add_channel_sums(struct autodiff *ad, struct graph *graph, const struct node *node, int i,
                             int grad) {
  struct shape row = row_shape(graph, node), own = node_input(graph, node, i)->shape;
  autodiff_add(ad, node, i, backward_reshape(graph, backward_sum_to(graph, grad, &row), &own));
}

/* y = scale * x_hat + b with x_hat = (x - mean) / sqrt(var + epsilon). The statistics are constants to it: no
   gradient flows to mean and var, so that they are never trained. */
static int batch_normalization_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                        struct err *err) {
  int dy = autodiff_grad(ad, node, 0), epsilon, deviation;
  if (is_training_form(graph, node))
    return node_error(node, err, ERR_UNSUPPORTED, "the training form has no gradient outside a train graph");
  epsilon = graph_add_constant_f32(graph, node_attr_float(node, "epsilon", 1e-5f));
  deviation = backward_binary(graph, "Add", add_row(graph, node, 4), epsilon);
  deviation = backward_unary(graph, "Sqrt", deviation);
  if (autodiff_wants(ad, node, 1)) {
    int centred = backward_binary(graph, "Sub", node->inputs[0], add_row(graph, node, 3));
    int x_hat = backward_binary(graph, "Div", centred, deviation);
    add_channel_sums(ad, graph, node, 1, backward_binary(graph, "Mul", dy, x_hat));
  }
  if (autodiff_wants(ad, node, 2))
    add_channel_sums(ad, graph, node, 2, dy);
  if (autodiff_wants(ad, node, 0)) {
    int slope = backward_binary(graph, "Div", add_row(graph, node, 1), deviation);
    autodiff_add(ad, node, 0, backward_binary(graph, "Mul", dy, slope));
  }
  return ERR_OK;
}

static void channel_store(const struct op_call *call, int output, int64_t k, double value) {
  if (call->out[output].data)
    ((float *)call->out[output].data)[k] = (float)value;
}

static int batch_normalization_ref(const struct op_call *call, struct err *err) {
  const float *x = call->in[0].data, *scale = call->in[1].data, *b = call->in[2].data;
  const float *running_mean = call->in[3].data, *running_variance = call->in[4].data;
  double epsilon = node_attr_float(call->node, "epsilon", 1e-5f);
  double momentum = node_attr_float(call->node, "momentum", 0.9f);
  bool is_training = is_training_form(call->graph, call->node);
  struct batch_norm bn = batch_norm_of(&call->in[0].shape);
  (void)err;
  for (int64_t k = 0; k < bn.c; k++) {
    double mean = running_mean[k], variance = running_variance[k], factor;
    if (is_training) {
      batch_norm_moments(&bn, x, k, &mean, &variance);
      channel_store(call, 1, k, running_mean[k] * momentum + mean * (1.0 - momentum));
      channel_store(call, 2, k, running_variance[k] * momentum + variance * (1.0 - momentum));
      channel_store(call, 3, k, mean);
      channel_store(call, 4, k, variance);
    }
    factor = scale[k] / sqrt(variance + epsilon);
    batch_norm_apply(&bn, x, call->out[0].data, k, (struct affine){factor, b[k] - mean * factor});
  }
  return ERR_OK;
}

static const struct op_case batch_normalization_cases[] = {
    {.inputs = "f32[2,3,4,5] f32[3] f32[3] f32[3] f32[3]=0.5,1,2"},
    {.inputs = "f32[4,3] f32[3] f32[3] f32[3] f32[3]=0.5,1,2", .attrs = "epsilon=0.1f"},
    {.inputs = "f32[2,2,5] f32[2] f32[2] f32[2] f32[2]=0.5,1", .is_eval = true},
    {.inputs = "f32[n,c,h,w] f32[c] f32[c] f32[c] f32{0.5..2}[c]",
     .attrs = "epsilon=e",
     .draw = "n=1..3 c=1..4 h=1..3 w=1..4 e=0.1f|0.001f"},
    {0},
};

const struct op_def op_BatchNormalization = {
    .name = "BatchNormalization",
    .domain = "",
    .min_inputs = 5,
    .max_inputs = 5,
    .min_outputs = 1,
    .max_outputs = 5,
    .min_opset = 7,
    .flags = OP_INPLACE,
    .infer = batch_normalization_infer,
    .backward = batch_normalization_backward,
    .ref = batch_normalization_ref,
    .cases = batch_normalization_cases,
};
