/* ReduceMean: the mean along axes (ONNX 1..18: axes by attribute before 18, by input since). */
#include "common/ops/reduce.h"

/* 1 / the elements that one mean is over. */
static double mean_scale(const struct shape *x, const struct shape *kept) {
  return (double)shape_elems(kept) / (double)shape_elems(x);
}

static int reduce_mean_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                struct err *err) {
  struct shape kept;
  if (reduce_kept_shape(graph, node, &kept, err))
    return err->code;
  return reduce_backward(ad, graph, node, (float)mean_scale(&node_input(graph, node, 0)->shape, &kept), err);
}

static int reduce_mean_ref(const struct op_call *call, struct err *err) {
  struct shape kept;
  if (reduce_kept_shape(call->graph, call->node, &kept, err))
    return err->code;
  return reduce_sum_to(call, &call->in[0].shape, &kept, mean_scale(&call->in[0].shape, &kept), err);
}

static const struct op_case reduce_mean_cases[] = {
    {.inputs = "f32[2,3,4]"},
    {.inputs = "f32[2,3,4]", .attrs = "axes=0,-1 keepdims=0"},
    {.inputs = "f32[2,3,4]", .attrs = "axes=1,"},
    {.inputs = "f32[2,3,4] i64[1]==-2", .attrs = "keepdims=0", .opset = 18},
    {.inputs = "f32[2,3] i64[0]==", .attrs = "noop_with_empty_axes=1", .opset = 18},
    {.inputs = "f32[a,b,c]",
     .attrs = "axes=x keepdims=k",
     .draw = "a=1..3 b=1..4 c=1..4 k=0|1 x=0,|-1,|1,|0,2|-2,-1|0,1,2"},
    {0},
};

const struct op_def op_ReduceMean = {
    .name = "ReduceMean",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = reduce_infer,
    .backward = reduce_mean_backward,
    .ref = reduce_mean_ref,
    .cases = reduce_mean_cases,
};
