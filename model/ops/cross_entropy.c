/* CrossEntropy: the loss of a classifier over one microbatch, and its gradient.
   scores f32[n,...] with the classes along `axis` (default 1), labels i64 of that shape without the axis,
   weights f32[classes] (optional) -> loss_sum, correct, scored, denominator, each f32[] (class_rows.h, which
   also has the attributes). */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/class_rows.h"
#include "model/ops/shared/infer.h"

/* Checks inputs `first` (scores) and the two behind it. */
static int check_inputs(const struct graph *graph, const struct node *node, int first, struct err *err) {
  const struct value *scores = node_input(graph, node, first);
  struct class_axis axis;
  struct shape labels;
  if (scores->dtype != DTYPE_F32)
    return node_error(node, err, ERR_INVALID, "scores must be f32, they are %s", dtype_name(scores->dtype));
  if (scores->shape.rank < 2)
    return node_error(node, err, ERR_INVALID, "scores need a dimension besides the classes");
  if (class_rows_axis(node, &scores->shape, &axis, &labels, err))
    return err->code;
  if (class_rows_check_labels(graph, node, first + 1, &labels, err))
    return err->code;
  return class_rows_check_weights(graph, node, first + 2, axis.classes, err);
}

static int cross_entropy_infer(struct graph *graph, const struct node *node, struct err *err) {
  return check_inputs(graph, node, 0, err) ? (int)err->code : class_rows_infer(graph, node, err);
}

static int cross_entropy_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                  struct err *err) {
  int dsum = autodiff_grad(ad, node, 0);
  int inputs[] = {dsum, node->inputs[0], node->inputs[1], node->n_inputs > 2 ? node->inputs[2] : -1};
  (void)err;
  if (dsum >= 0)
    autodiff_add(ad, node, 0,
                 backward_node(graph, "CrossEntropyGrad", (struct value_list){inputs, 4}, node_attrs(node)));
  return ERR_OK;
}

static int cross_entropy_ref(const struct op_call *call, struct err *err) {
  const float *x = call->in[0].data;
  const int64_t *label = call->in[1].data;
  struct class_sums sums = {0};
  struct class_rows loss;
  struct class_axis axis;
  struct shape labels;
  if (class_rows_axis(call->node, &call->in[0].shape, &axis, &labels, err) ||
      class_rows_init(&loss, call->node, &call->in[1], axis.classes, err))
    return err->code;
  for (int64_t o = 0; o < axis.outer; o++, x += axis.classes * axis.inner)
    for (int64_t i = 0; i < axis.inner; i++)
      class_rows_add(&loss, &(struct class_row){x + i, axis.inner, *label++}, &sums);
  class_rows_finish(&sums, call->out);
  return ERR_OK;
}

static const struct op_case cross_entropy_cases[] = {
    {.inputs = "f32[4,5] i64{5}[4]", .outputs = 4},
    {.inputs = "f32[1,3] i64[1]=2"},
    {.inputs = "f32[7,10] i64{10}[7]", .outputs = 2},
    {.inputs = "f32[2,3]=500,-500,499,-300,-301,-302 i64[2]=1,0", .outputs = 2, .is_not_smooth = true},
    {.inputs = "f32[n,c] i64{c}[n]", .draw = "n=1..6 c=2..7", .outputs = 2},
    {.inputs = "f32[4,3] i64[4]=2,-100,0,-100 f32[3]==0.5,1,2", .outputs = 4},
    {.inputs = "f32[2,4] i64[2]=-100,-100", .outputs = 4},
    {.inputs = "f32[3,9001] i64[3]=9000,-100,4", .outputs = 4, .is_not_smooth = true},
    {.inputs = "f32[3,5000] i64[3]=4999,-100,4", .outputs = 4, .is_not_smooth = true},
    {.inputs = "f32[2,3,5] i64[2,3]=1,-1,4,-1,0,2", .attrs = "axis=2 ignore_index=-1", .outputs = 4},
    {.inputs = "f32[n,3,h,w] i64{3}[n,h,w] f32[3]==0.25,1,0",
     .attrs = "axis=1 label_smoothing=0.125f ignore_index=1",
     .draw = "n=1..3 h=1..4 w=1..3",
     .outputs = 4},
    {.inputs = "f32[n,t,c] i64{c}[n,t] w",
     .attrs = "axis=-1 label_smoothing=0.5f log_probabilities=l",
     .draw = "n=1..3 t=1..4 c=2..6 l=0|1 w=-|f32{0..2}[c]",
     .outputs = 4},
    {.inputs = "f32[3,4] i64[3]=3,-100,1 f32[4]==1,2,3,4", .attrs = "log_probabilities=1", .outputs = 4},
    {0},
};

static const struct op_def cross_entropy_grad;
static const struct op_def *const cross_entropy_gradients[] = {&cross_entropy_grad, NULL};

const struct op_def op_CrossEntropy = {
    .name = "CrossEntropy",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = CLASS_ROWS_SUMS,
    .infer = cross_entropy_infer,
    .backward = cross_entropy_backward,
    .ref = cross_entropy_ref,
    .cases = cross_entropy_cases,
    .gradients = cross_entropy_gradients,
};

static int cross_entropy_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape scores = node_input(graph, node, 1)->shape;
  if (infer_check_rank(graph, node, 0, 0, err) || check_inputs(graph, node, 1, err))
    return err->code;
  return infer_f32(graph, node, 0, &scores, err);
}

static int cross_entropy_grad_ref(const struct op_call *call, struct err *err) {
  const float *dsum = call->in[0].data, *x = call->in[1].data;
  const int64_t *label = call->in[2].data;
  float *dx = call->out[0].data;
  struct class_rows loss;
  struct class_axis axis;
  struct shape labels;
  if (class_rows_axis(call->node, &call->in[1].shape, &axis, &labels, err) ||
      class_rows_init(&loss, call->node, &call->in[2], axis.classes, err))
    return err->code;
  for (int64_t o = 0; o < axis.outer; o++, x += axis.classes * axis.inner, dx += axis.classes * axis.inner)
    for (int64_t i = 0; i < axis.inner; i++)
      class_rows_gradient(&loss, &(struct class_row){x + i, axis.inner, *label++}, *dsum, dx + i);
  return ERR_OK;
}

/* dsum f32[], scores, labels, weights -> dscores */
static const struct op_def cross_entropy_grad = {
    .name = "CrossEntropyGrad",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 4,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = cross_entropy_grad_infer,
    .ref = cross_entropy_grad_ref,
};
