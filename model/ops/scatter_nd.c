/* ScatterND: each part of the updates goes to where its tuple of indices says (ONNX 11..18; reductions since
   16). */
#include "model/ops/shared/scatter.h"

static int scatter_nd_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape data = node_input(graph, node, 0)->shape, beside;
  if (places_infer_tuples(graph, node, &data, &beside, err))
    return err->code;
  return scatter_infer(graph, node, &beside, err);
}

static int scatter_nd_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                               struct err *err) {
  (void)err;
  return scatter_backward(
      ad, graph, node,
      &(struct scatter_grad){.gather = "GatherND", .grad = "ScatterNDGrad", .places = ATTRS_NONE});
}

static int scatter_nd_ref(const struct op_call *call, struct err *err) {
  struct places places;
  if (places_of_tuples(&places, call, &call->in[0].shape, err))
    return err->code;
  return scatter_updates(call, &places, err);
}

static const struct op_case scatter_nd_cases[] = {
    {.inputs = "f32[4,3] i64[2,1]=2,-4 f32[2,3]"},
    {.inputs = "f32[4,3] i64[3,2]=2,1,0,0,2,1 f32[3]"},
    {.inputs = "i64{9}[4] i64{4}[3,1] i64{9}[3]", .attrs = "reduction=min"},
    {.inputs = "f32[n,m] i64{n}[k,1] f32[k,m]",
     .attrs = "reduction=r",
     .draw = "n=1..4 m=1..3 k=1..5 r=none|add|mul"},
    {.inputs = "f32{apart}[n,n,m] i64{n}[k,2] f32{apart}[k,m]",
     .attrs = "reduction=r",
     .draw = "n=1..3 m=1..3 k=1..4 r=min|max"},
    {0},
};

static const struct op_def scatter_nd_grad;
static const struct op_def *const scatter_nd_gradients[] = {&scatter_nd_grad, NULL};

const struct op_def op_ScatterND = {
    .name = "ScatterND",
    .domain = "",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 11,
    .flags = OP_INPLACE,
    .infer = scatter_nd_infer,
    .backward = scatter_nd_backward,
    .ref = scatter_nd_ref,
    .cases = scatter_nd_cases,
    .gradients = scatter_nd_gradients,
};

static int scatter_nd_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape data = node_input(graph, node, 0)->shape, beside;
  if (places_infer_tuples(graph, node, &data, &beside, err))
    return err->code;
  return scatter_grad_infer(graph, node, &beside, err);
}

static int scatter_nd_grad_ref(const struct op_call *call, struct err *err) {
  struct places places;
  if (places_of_tuples(&places, call, &call->in[0].shape, err))
    return err->code;
  return scatter_grad(call, &places, err);
}

/* dy, indices, data, updates, y -> d_data, d_updates; reduction */
static const struct op_def scatter_nd_grad = {
    .name = "ScatterNDGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 5,
    .min_outputs = 2,
    .max_outputs = 2,
    .infer = scatter_nd_grad_infer,
    .ref = scatter_nd_grad_ref,
};
