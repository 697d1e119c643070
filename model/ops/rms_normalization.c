/* RMSNormalization (ONNX 23): y = x / sqrt(mean of x^2 + epsilon) * scale, with the mean over the dimensions
   from `axis` on, and its gradient. Source: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.
 */
#include <math.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/broadcast.h"
#include "model/ops/shared/infer.h"

/* x f32[rows, n], dense. */
struct rms_norm {
  int64_t rows, n;
  double epsilon;
};

static int rms_norm_init(struct rms_norm *norm, const struct graph *graph, const struct node *node, int input,
                         struct err *err) {
  const struct shape *x = &node_input(graph, node, input)->shape;
  int axis;
  if (infer_axis(node, node_attr_int(node, "axis", -1), x->rank, &axis, err))
    return err->code;
  *norm = (struct rms_norm){.rows = 1, .n = 1, .epsilon = node_attr_float(node, "epsilon", 1e-5f)};
  for (int d = 0; d < x->rank; d++)
    *(d < axis ? &norm->rows : &norm->n) *= x->dim[d];
  return ERR_OK;
}

static int rms_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape, common;
  struct rms_norm norm;
  if (infer_check_f32(graph, node, err) || rms_norm_init(&norm, graph, node, 0, err))
    return err->code;
  if (!broadcast_shapes(&x, &node_input(graph, node, 1)->shape, &common) || !shape_is_same(&common, &x))
    return node_error(node, err, ERR_INVALID, "the scale '%s' does not broadcast to the input",
                      node_input(graph, node, 1)->name);
  return infer_f32(graph, node, 0, &x, err);
}

static int rms_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  int scaled = backward_binary(graph, "Mul", dy, node->inputs[1]);
  const struct node *grad =
      graph_add_node(graph, "RMSNormalizationGrad", VALUES(dy, scaled, node->inputs[0]), 2, node_attrs(node));
  (void)err;
  autodiff_add(ad, node, 0, grad->outputs[0]);
  if (autodiff_wants(ad, node, 1))
    backward_add_summed(ad, graph, node, 1, grad->outputs[1]);
  return ERR_OK;
}

static double inverse_rms(const struct rms_norm *norm, const float *x) {
  double sum = 0;
  for (int64_t i = 0; i < norm->n; i++)
    sum += (double)x[i] * x[i];
  return 1 / sqrt(sum / (double)norm->n + norm->epsilon);
}

static int rms_ref(const struct op_call *call, struct err *err) {
  const float *x = call->in[0].data, *scale = call->in[1].data;
  float *y = call->out[0].data;
  struct rms_norm norm;
  struct broadcast walk;
  if (rms_norm_init(&norm, call->graph, call->node, 0, err))
    return err->code;
  for (int64_t r = 0; r < norm.rows; r++) {
    float inverse = (float)inverse_rms(&norm, x + r * norm.n);
    for (int64_t i = r * norm.n; i < (r + 1) * norm.n; i++)
      y[i] = x[i] * inverse;
  }
  broadcast_init(&walk, &call->out[0].shape, &call->in[1].shape, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), y += walk.run)
    for (int64_t j = 0; j < walk.run; j++)
      y[j] *= scale[walk.at[0] + j * walk.step[0]];
  return ERR_OK;
}

static const struct op_case rms_cases[] = {
    {.inputs = "f32[2,3,4] f32[4]"},
    {.inputs = "f32[2,3] f32[]", .attrs = "axis=0 epsilon=0.1f"},
    {.draw = "b=1..3 t=1..3 n=2..5 a=-1|2", .inputs = "f32[b,t,n] f32[n]", .attrs = "axis=a epsilon=0.01f"},
    {.draw = "b=1..3 t=1..3 n=2..5", .inputs = "f32[b,t,n] f32[t,n]", .attrs = "axis=1 epsilon=0.01f"},
    {0},
};

static const struct op_def rms_normalization_grad;
static const struct op_def *const rms_normalization_gradients[] = {&rms_normalization_grad, NULL};

const struct op_def op_RMSNormalization = {
    .name = "RMSNormalization",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 23,
    .infer = rms_infer,
    .backward = rms_backward,
    .ref = rms_ref,
    .cases = rms_cases,
    .gradients = rms_normalization_gradients,
};

static int rms_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 2)->shape;
  struct rms_norm norm;
  if (infer_check_f32(graph, node, err) || rms_norm_init(&norm, graph, node, 2, err) ||
      infer_f32(graph, node, 0, &x, err))
    return err->code;
  return infer_f32(graph, node, 1, &x, err);
}

/* With normal = x / rms: dx = (scaled - normal * mean(scaled * normal)) / rms, dscales = dy * normal. */
static int rms_grad_ref(const struct op_call *call, struct err *err) {
  const float *dy = call->in[0].data, *scaled = call->in[1].data, *x = call->in[2].data;
  float *dx = call->out[0].data, *dscales = call->out[1].data;
  struct rms_norm norm;
  if (rms_norm_init(&norm, call->graph, call->node, 2, err))
    return err->code;
  for (int64_t r = 0; r < norm.rows; r++) {
    int64_t begin = r * norm.n, end = begin + norm.n;
    float inverse = (float)inverse_rms(&norm, x + begin), along;
    double sum = 0;
    for (int64_t i = begin; i < end; i++)
      sum += (double)scaled[i] * x[i];
    along = (float)(sum / (double)norm.n * inverse);
    for (int64_t i = begin; i < end; i++) {
      float normal = x[i] * inverse;
      dscales[i] = dy[i] * normal;
      dx[i] = (scaled[i] - normal * along) * inverse;
    }
  }
  return ERR_OK;
}

/* dy, scaled (dy times scale), x, all of one shape -> dx, dscales (of each element of x) */
static const struct op_def rms_normalization_grad = {
    .name = "RMSNormalizationGrad",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 2,
    .max_outputs = 2,
    .infer = rms_grad_infer,
    .ref = rms_grad_ref,
};
