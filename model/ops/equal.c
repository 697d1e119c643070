/* Equal: elementwise equality with broadcasting, a bool (ONNX 7..19). */
#include "model/ops/shared/elementwise.h"

COMPARE_REF(equal_ref, x == y)

static int equal_infer(struct graph *graph, const struct node *node, struct err *err) {
  return broadcast_infer_as(graph, node, DTYPES_ALL, DTYPE_BOOL, err);
}

static const struct op_case equal_cases[] = {
    {.inputs = "f32[2,4]=1,-2,3,0,5,0.5,-0.5,2 f32[4]=1,-1,3,0.25"},
    {.inputs = "i32{3}[a,b,c] i32{3}[b,1]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "i64{3}[a,1] i64{3}[b,1,c]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "u8{3}[2,3] u8{3}[]"},
    {.inputs = "bool{2}[2,3] bool{2}[3]"},
    {0},
};

const struct op_def op_Equal = {
    .name = "Equal",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .infer = equal_infer,
    .ref = equal_ref,
    .cases = equal_cases,
};
