/* ElementLoss: a loss of each element against its target, summed, and its gradient.
   x f32[n,...], target f32 of that shape, weights f32[k] (optional: of 1, or of the dimension `axis`, default
   0)
   -> loss_sum f32[]. `kind` is a row of element_kinds; `parameter` is its beta or delta. Targets get no
   gradient: they are data. */
#include <math.h>
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

/* In f64, of one element: the loss and its derivative by x. p: parameter; w: weight, 1 without. */
struct element_kind {
  const char *name;
  double (*value)(double x, double t, double p, double w);
  double (*slope)(double x, double t, double p, double w);
};

static double sign_of(double d) {
  return (d > 0) - (d < 0);
}

static double mse_value(double x, double t, double p, double w) {
  (void)p;
  return w * (x - t) * (x - t);
}

static double mse_slope(double x, double t, double p, double w) {
  (void)p;
  return w * 2 * (x - t);
}

static double l1_value(double x, double t, double p, double w) {
  (void)p;
  return w * fabs(x - t);
}

static double l1_slope(double x, double t, double p, double w) {
  (void)p;
  return w * sign_of(x - t);
}

/* p may be 0: then it is l1. */
static double smooth_l1_value(double x, double t, double p, double w) {
  double d = fabs(x - t);
  return w * (d < p ? 0.5 * d * d / p : d - 0.5 * p);
}

static double smooth_l1_slope(double x, double t, double p, double w) {
  double d = x - t;
  return w * (fabs(d) < p ? d / p : sign_of(d));
}

static double huber_value(double x, double t, double p, double w) {
  double d = fabs(x - t);
  return w * (d <= p ? 0.5 * d * d : p * (d - 0.5 * p));
}

static double huber_slope(double x, double t, double p, double w) {
  double d = x - t;
  return w * (fabs(d) <= p ? d : p * sign_of(d));
}

/* log(1 + exp(-x)), for any x */
static double softplus_of_minus(double x) {
  return log1p(exp(-fabs(x))) + fmax(-x, 0);
}

/* w weighs positives: (1 - t) x + (1 + (w - 1) t) log(1 + exp(-x)). */
static double bce_value(double x, double t, double p, double w) {
  (void)p;
  return (1 - t) * x + (1 + (w - 1) * t) * softplus_of_minus(x);
}

static double bce_slope(double x, double t, double p, double w) {
  (void)p;
  return (1 - t) - (1 + (w - 1) * t) / (1 + exp(x));
}

/* 0 log 0 is 0. */
static double kl_div_value(double x, double t, double p, double w) {
  (void)p;
  return t > 0 ? w * t * (log(t) - x) : 0;
}

static double kl_div_slope(double x, double t, double p, double w) {
  (void)x, (void)p;
  return t > 0 ? -w * t : 0;
}

static double kl_div_log_value(double x, double t, double p, double w) {
  (void)p;
  return w * exp(t) * (t - x);
}

static double kl_div_log_slope(double x, double t, double p, double w) {
  (void)x, (void)p;
  return -w * exp(t);
}

static const struct element_kind element_kinds[] = {
    {"mse", mse_value, mse_slope},
    {"l1", l1_value, l1_slope},
    {"smooth_l1", smooth_l1_value, smooth_l1_slope},
    {"huber", huber_value, huber_slope},
    {"bce_with_logits", bce_value, bce_slope},
    {"kl_div", kl_div_value, kl_div_slope},
    {"kl_div_log", kl_div_log_value, kl_div_log_slope},
};

static const struct element_kind *find_kind(const struct node *node) {
  const char *name = node_attr_string(node, "kind", "");
  for (size_t k = 0; k < sizeof element_kinds / sizeof *element_kinds; k++)
    if (strcmp(element_kinds[k].name, name) == 0)
      return &element_kinds[k];
  return NULL;
}

/* Element i has weight i / inner % n. */
struct element_weights {
  const float *values;
  int64_t inner, n;
};

static struct element_weights weights_of(const struct node *node, const struct shape *x,
                                         const struct tensor *weights) {
  struct element_weights w = {weights->data, 1, weights->data ? shape_elems(&weights->shape) : 1};
  for (int d = (int)node_attr_int(node, "axis", 0) + 1; d < x->rank; d++)
    w.inner *= x->dim[d];
  return w;
}

static double weight_at(const struct element_weights *w, int64_t i) {
  return w->values ? (double)w->values[i / w->inner % w->n] : 1.0;
}

/* Inputs `first` (x) and the two behind it. */
static int check_inputs(const struct graph *graph, const struct node *node, int first, struct err *err) {
  const struct value *x = node_input(graph, node, first), *target = node_input(graph, node, first + 1);
  const struct value *weights = node_input(graph, node, first + 2);
  int64_t axis = node_attr_int(node, "axis", 0);
  char have[128], want[128];
  if (!find_kind(node))
    return node_error(node, err, ERR_INVALID, "its kind '%s' is not known",
                      node_attr_string(node, "kind", ""));
  if (infer_check_f32(graph, node, err))
    return err->code;
  if (!shape_is_same(&x->shape, &target->shape))
    return node_error(node, err, ERR_INVALID, "targets have shape %s where %s is needed",
                      shape_text(&target->shape, have, sizeof have),
                      shape_text(&x->shape, want, sizeof want));
  if (axis < 0 || (axis > 0 && axis >= x->shape.rank))
    return node_error(node, err, ERR_INVALID, "its axis is %lld", (long long)axis);
  if (!weights || (weights->shape.rank == 1 && weights->shape.dim[0] == 1))
    return ERR_OK;
  return infer_check_vector(graph, node, first + 2, x->shape.dim[axis], err);
}

static int element_loss_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct shape scalar = {0};
  return check_inputs(graph, node, 0, err) ? (int)err->code : infer_f32(graph, node, 0, &scalar, err);
}

static int element_loss_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                 struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[0], node->inputs[1],
                  node->n_inputs > 2 ? node->inputs[2] : -1};
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "ElementLossGrad", (struct value_list){inputs, 4}, node_attrs(node)));
  return ERR_OK;
}

static int element_loss_ref(const struct op_call *call, struct err *err) {
  const float *x = call->in[0].data, *t = call->in[1].data;
  const struct element_kind *kind = find_kind(call->node);
  struct element_weights weights = weights_of(call->node, &call->in[0].shape, &call->in[2]);
  double parameter = (double)node_attr_float(call->node, "parameter", 0), sum = 0.0;
  int64_t n = shape_elems(&call->in[0].shape);
  (void)err;
  for (int64_t i = 0; i < n; i++)
    sum += kind->value(x[i], t[i], parameter, weight_at(&weights, i));
  *(float *)call->out[0].data = (float)sum;
  return ERR_OK;
}

/* Data keeps away from the kinks, where finite differences would step over them. */
static const struct op_case element_loss_cases[] = {
    {.inputs = "f32[3,4] f32[3,4]==1,2,3,4,5,6,-1,-2,-3,-4,-5,-6", .attrs = "kind=mse"},
    {.inputs = "f32[2,3] f32[2,3]==3,4,5,-3,-4,-5", .attrs = "kind=l1"},
    {.inputs = "f32[4]=0.1,2.1,-2,0 f32[4]==0,0,1,0.3", .attrs = "kind=smooth_l1 parameter=0.5f"},
    {.inputs = "f32[4]=0.1,2.1,-2,0 f32[4]==0,0,1,0.3", .attrs = "kind=huber parameter=1.5f"},
    {.inputs = "f32[2]=0.5,-0.5 f32[2]==0.25,0.25", .attrs = "kind=smooth_l1"},
    {.inputs = "f32[2,3] f32[2,3]==0,1,0.5,1,0,0.25", .attrs = "kind=bce_with_logits"},
    {.inputs = "f32[2,2]=60,-60,-200,200 f32[2,2]==0,1,0,1", .attrs = "kind=bce_with_logits"},
    {.inputs = "f32[2,3,2] f32[2,3,2]==0,1,1,0,1,1,0,1,0.5,1,1,0 f32[3]==0.5,2,4",
     .attrs = "kind=bce_with_logits axis=1"},
    {.inputs = "f32[2,3] f32[2,3]==1,1,0,1,0,1 f32[1]==3", .attrs = "kind=bce_with_logits"},
    {.inputs = "f32{apart}[n,c,m] f32{apart}[n,c,m] w",
     .attrs = "kind=k axis=1 parameter=3f",
     .draw = "n=1..3 c=1..3 m=1..2 k=mse|l1|bce_with_logits|huber|smooth_l1|kl_div|kl_div_log "
             "w=-|f32{0.5..3}[c]|f32{0.5..3}[1]"},
    {.inputs = "f32[2,3] f32[2,3]==0.5,0.5,0,0.25,0,0.75", .attrs = "kind=kl_div"},
    {.inputs = "f32[2,3] f32[2,3]==-1,-2,-3,-0.5,-4,-1", .attrs = "kind=kl_div_log"},
    {0},
};

static const struct op_def element_loss_grad;
static const struct op_def *const element_loss_gradients[] = {&element_loss_grad, NULL};

const struct op_def op_ElementLoss = {
    .name = "ElementLoss",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = element_loss_infer,
    .backward = element_loss_backward,
    .ref = element_loss_ref,
    .cases = element_loss_cases,
    .gradients = element_loss_gradients,
};

static int element_loss_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 1)->shape;
  if (infer_check_rank(graph, node, 0, 0, err) || check_inputs(graph, node, 1, err))
    return err->code;
  return infer_f32(graph, node, 0, &x, err);
}

static int element_loss_grad_ref(const struct op_call *call, struct err *err) {
  const float *dsum = call->in[0].data, *x = call->in[1].data, *t = call->in[2].data;
  const struct element_kind *kind = find_kind(call->node);
  struct element_weights weights = weights_of(call->node, &call->in[1].shape, &call->in[3]);
  double parameter = (double)node_attr_float(call->node, "parameter", 0);
  float *dx = call->out[0].data;
  int64_t n = shape_elems(&call->in[1].shape);
  (void)err;
  for (int64_t i = 0; i < n; i++)
    dx[i] = (float)(*dsum * kind->slope(x[i], t[i], parameter, weight_at(&weights, i)));
  return ERR_OK;
}

/* dsum f32[], x, target, weights -> dx */
static const struct op_def element_loss_grad = {
    .name = "ElementLossGrad",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 4,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = element_loss_grad_infer,
    .ref = element_loss_grad_ref,
};
