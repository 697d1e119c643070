/* ReduceSum: the sum along axes (ONNX 1..13: axes by attribute before 13, by input since). */
#include "model/ops/shared/reduce.h"

static int reduce_sum_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                               struct err *err) {
  return reduce_backward(ad, graph, node, 1.0f, err);
}

static int reduce_sum_ref_f32(const struct op_call *call, struct err *err) {
  struct shape kept;
  if (reduce_kept_shape(call->graph, call->node, &kept, err))
    return err->code;
  return reduce_sum_to(call, &call->in[0].shape, &kept, 1.0, err);
}

/* Integers wrap, so they are added unsigned. */
REDUCE_LOOP(reduce_sum_ref_i32, int32_t, uint64_t, 0, a + x, a)
REDUCE_LOOP(reduce_sum_ref_i64, int64_t, uint64_t, 0, a + x, a)
REDUCE_NUMBER(reduce_sum_ref)

static const struct op_case reduce_sum_cases[] = {
    {.inputs = "f32[2,3,4]"},
    {.inputs = "f32[2,3,4] i64[2]==0,-1", .attrs = "keepdims=0"},
    {.inputs = "f32[2,3,4] i64[1]==1"},
    {.inputs = "f32[2,3,4] i64[0]==", .attrs = "noop_with_empty_axes=1"},
    {.inputs = "f32[2,3,4]", .attrs = "axes=1,2 keepdims=0", .opset = 11},
    {.inputs = "i64{-9..9}[2,3] i64[1]==0"},
    {.inputs = "i32{-9..9}[2,3]"},
    {.inputs = "f32[2,9001] i64[1]==1", .is_not_smooth = true},
    {.inputs = "f32[2,1500,40] i64[1]==1", .is_not_smooth = true},
    {.inputs = "f32[700,40] i64[1]==0", .is_not_smooth = true},
    {.inputs = "f32[a,b,c] x",
     .attrs = "keepdims=k",
     .draw = "a=1..3 b=1..4 c=1..4 k=0|1 x=i64[1]==0|i64[1]==-1|i64[2]==0,2|i64[2]==-2,-1|-"},
    {0},
};

const struct op_def op_ReduceSum = {
    .name = "ReduceSum",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = reduce_infer_number,
    .backward = reduce_sum_backward,
    .ref = reduce_sum_ref,
    .cases = reduce_sum_cases,
};
