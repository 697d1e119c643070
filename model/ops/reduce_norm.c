/* ReduceL1 and ReduceL2: norms along axes (ONNX 1..18: axes by attribute before 18, by input since), and the
   gradient of a norm of any order. */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/lp.h"
#include "model/ops/shared/reduce.h"

static int norm_backward(struct autodiff *ad, struct graph *graph, const struct node *node, int64_t p) {
  int inputs[] = {reduce_kept_grad(ad, graph, node), node->inputs[0], reduce_kept_output(graph, node)};
  struct attr attr = attr_of_int("p", p);
  autodiff_add(ad, node, 0,
               backward_node(graph, "ReduceNormGrad", (struct value_list){inputs, 3}, ATTR_LIST(attr)));
  return ERR_OK;
}

static int reduce_l1_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                              struct err *err) {
  (void)err;
  return norm_backward(ad, graph, node, 1);
}

static int reduce_l2_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                              struct err *err) {
  (void)err;
  return norm_backward(ad, graph, node, 2);
}

REDUCE_LOOP(reduce_l1_ref, float, double, 0.0, a + fabs(x), a)
REDUCE_LOOP(reduce_l2_ref, float, double, 0.0, a + x * x, sqrt(a))

static const struct op_case norm_cases[] = {
    REDUCE_CASES("f32{apart}"),
    {.inputs = "f32[2,3]=0,0,0,1,0,2", .attrs = "axes=1,", .is_not_smooth = true},
    REDUCE_DRAWN_CASE("f32{apart}"),
    {0},
};

static const struct op_def reduce_norm_grad;
static const struct op_def *const norm_gradients[] = {&reduce_norm_grad, NULL};

const struct op_def op_ReduceL1 = {
    .name = "ReduceL1",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = reduce_infer_f32,
    .backward = reduce_l1_backward,
    .ref = reduce_l1_ref,
    .cases = norm_cases,
    .gradients = norm_gradients,
};

const struct op_def op_ReduceL2 = {
    .name = "ReduceL2",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = reduce_infer_f32,
    .backward = reduce_l2_backward,
    .ref = reduce_l2_ref,
    .cases = norm_cases,
};

static int reduce_norm_grad_ref(const struct op_call *call, struct err *err) {
  const float *dy = call->in[0].data, *x = call->in[1].data, *y = call->in[2].data;
  float *dx = call->out[0].data;
  struct broadcast walk;
  double p;
  if (lp_order(call->node, &p, err))
    return err->code;
  broadcast_init(&walk, &call->in[1].shape, &call->in[0].shape, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), x += walk.run, dx += walk.run)
    for (int64_t j = 0; j < walk.run; j++) {
      int64_t at = walk.at[0] + j * walk.step[0];
      dx[j] = (float)(dy[at] * lp_slope(x[j], y[at], p));
    }
  return ERR_OK;
}

/* dy, x, y -> dx; p; dy and y with the reduced axes kept */
static const struct op_def reduce_norm_grad = {
    .name = "ReduceNormGrad",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = reduce_grad_infer,
    .ref = reduce_norm_grad_ref,
};
