/* GlobalLpPool: the norm of order p over all spatial dimensions (ONNX 2). */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/global_pool.h"
#include "model/ops/shared/lp.h"

static int global_lp_pool_infer(struct graph *graph, const struct node *node, struct err *err) {
  double p;
  if (lp_order(node, &p, err))
    return err->code;
  return global_pool_infer(graph, node, err);
}

static int global_lp_pool_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                   struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[0], node->outputs[0]};
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "ReduceNormGrad", (struct value_list){inputs, 3}, node_attrs(node)));
  return ERR_OK;
}

static int global_lp_pool_ref(const struct op_call *call, struct err *err) {
  const float *x = call->in[0].data;
  float *y = call->out[0].data;
  int64_t planes = shape_elems(&call->out[0].shape), elems = global_pool_elems(&call->in[0].shape);
  double p;
  if (lp_order(call->node, &p, err))
    return err->code;
  for (int64_t plane = 0; plane < planes; plane++, x += elems) {
    double sum = 0.0;
    for (int64_t i = 0; i < elems; i++)
      sum += lp_power(x[i], p);
    y[plane] = (float)lp_root(sum, p);
  }
  return ERR_OK;
}

static const struct op_case global_lp_pool_cases[] = {
    {.inputs = "f32{apart}[2,3,3,4]"},
    {.inputs = "f32{apart}[2,3]", .attrs = "p=1"},
    {.inputs = "f32[1,2,2]=0,0,0,1", .is_not_smooth = true},
    {.inputs = "f32{apart}[n,c,h,w]", .attrs = "p=q", .draw = "n=1..2 c=1..3 h=1..4 w=1..4 q=1..3"},
    {0},
};

const struct op_def op_GlobalLpPool = {
    .name = "GlobalLpPool",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 2,
    .infer = global_lp_pool_infer,
    .backward = global_lp_pool_backward,
    .ref = global_lp_pool_ref,
    .cases = global_lp_pool_cases,
};
