/* Greater: elementwise x > y with broadcasting, a bool (ONNX 7..13). */
#include "model/ops/shared/elementwise.h"

COMPARE_REF(greater_ref, x > y)

static int greater_infer(struct graph *graph, const struct node *node, struct err *err) {
  return broadcast_infer_as(graph, node, DTYPES_NUMBERS, DTYPE_BOOL, err);
}

static const struct op_case greater_cases[] = {
    {.inputs = "f32[2,4]=1,-2,3,0,5,0.5,-0.5,2 f32[4]=1,-1,3,0.25"},
    {.inputs = "i32{3}[a,b,c] i32{3}[b,1]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "i64{3}[a,1] i64{3}[b,1,c]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "u8{3}[2,3] u8{3}[]"},
    {0},
};

const struct op_def op_Greater = {
    .name = "Greater",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .infer = greater_infer,
    .ref = greater_ref,
    .cases = greater_cases,
};
