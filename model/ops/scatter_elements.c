/* ScatterElements (ONNX 11..18; reductions since 16), by its older name Scatter (9 and 10): each update goes
   to where its index along an axis says. */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/scatter.h"

static int scatter_elements_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape data = node_input(graph, node, 0)->shape, indices = node_input(graph, node, 1)->shape;
  if (places_infer_elements(graph, node, &data, err))
    return err->code;
  return scatter_infer(graph, node, &indices, err);
}

static int scatter_elements_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                     struct err *err) {
  struct attr axis = attr_of_int("axis", node_attr_int(node, "axis", 0));
  (void)err;
  return scatter_backward(ad, graph, node,
                          &(struct scatter_grad){.gather = "GatherElements",
                                                 .grad = "ScatterElementsGrad",
                                                 .places = ATTR_LIST(axis)});
}

static int scatter_elements_ref(const struct op_call *call, struct err *err) {
  struct places places;
  if (places_of_elements(&places, call, &call->in[0].shape, err))
    return err->code;
  return scatter_updates(call, &places, err);
}

static const struct op_case scatter_elements_cases[] = {
    {.inputs = "f32[3,3] i64[2,3]=1,0,2,0,2,1 f32[2,3]"},
    {.inputs = "f32[1,5] i32[1,4]=1,1,-2,1 f32[1,4]", .attrs = "axis=1"},
    {.inputs = "i64{1..9}[4] i64{4}[3] i64{1..9}[3]", .attrs = "reduction=mul"},
    {.inputs = "i32[2]=-7,9 i64[2]=0,0 i32[2]=-9,-8", .attrs = "reduction=max"},
    {.inputs = "f32[3]=2,1,5 i64[4]=0,0,1,2 f32[4]=2,2,1,4",
     .attrs = "reduction=max",
     .is_not_smooth = true}, /* ties */
    {.inputs = "bool{2}[4] i64{4}[3] bool{2}[3]"},
    {.inputs = "f32[3,2] i64{3}[4,2] f32[4,2]=0,1,0,0.5,1,0,2,0", .attrs = "reduction=mul"},
    {.inputs = "u8{9}[4] i64{4}[6] u8{9}[6]", .attrs = "reduction=max"},
    {.inputs = "f32[n,m] i64{n}[k,m] f32[k,m]",
     .attrs = "reduction=r",
     .draw = "n=1..4 m=1..3 k=1..5 r=none|add|mul"},
    {.inputs = "f32{apart}[n,m] i64{m}[n,k] f32{apart}[n,k]",
     .attrs = "axis=1 reduction=r",
     .draw = "n=1..3 m=1..4 k=1..5 r=min|max"},
    {0},
};

static const struct op_def scatter_elements_grad;
static const struct op_def *const scatter_elements_gradients[] = {&scatter_elements_grad, NULL};

const struct op_def op_ScatterElements = {
    .name = "ScatterElements",
    .domain = "",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 11,
    .flags = OP_INPLACE,
    .infer = scatter_elements_infer,
    .backward = scatter_elements_backward,
    .ref = scatter_elements_ref,
    .cases = scatter_elements_cases,
    .gradients = scatter_elements_gradients,
};

static const struct op_case scatter_cases[] = {
    {.inputs = "f32[n,m] i64{m}[n,k] f32[n,k]",
     .attrs = "axis=1",
     .draw = "n=1..3 m=1..4 k=1..4",
     .opset = 9},
    {0},
};

const struct op_def op_Scatter = {
    .name = "Scatter",
    .domain = "",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .flags = OP_INPLACE,
    .infer = scatter_elements_infer,
    .backward = scatter_elements_backward,
    .ref = scatter_elements_ref,
    .cases = scatter_cases,
};

static int scatter_elements_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape data = node_input(graph, node, 0)->shape, indices = node_input(graph, node, 1)->shape;
  if (places_infer_elements(graph, node, &data, err))
    return err->code;
  return scatter_grad_infer(graph, node, &indices, err);
}

static int scatter_elements_grad_ref(const struct op_call *call, struct err *err) {
  struct places places;
  if (places_of_elements(&places, call, &call->in[0].shape, err))
    return err->code;
  return scatter_grad(call, &places, err);
}

/* dy, indices, data, updates, y -> d_data, d_updates; axis, reduction */
static const struct op_def scatter_elements_grad = {
    .name = "ScatterElementsGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 5,
    .min_outputs = 2,
    .max_outputs = 2,
    .infer = scatter_elements_grad_infer,
    .ref = scatter_elements_grad_ref,
};
