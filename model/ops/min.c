/* Min: elementwise least of any number of tensors with broadcasting (ONNX 8..13). */
#include "model/ops/shared/extremum.h"

EXTREMUM_REF(min_ref, x < y)

static const struct op_case min_cases[] = {
    {.inputs = "f32[2,3]"},
    {.inputs = "f32{apart}[a,b] x y",
     .draw = "a=1..4 b=1..5 x=f32{apart}[b]|f32{apart}[a,1] y=|f32{apart}[a,b]"},
    {.inputs = "f32[2,3]=1,2,3,-1,-2,-3 f32[3]=2,-1,0"},
    {.inputs = "f32[2,1]=1,-2 f32[3]=2,-1,0 f32[]=0.5"},
    {.inputs = "f32[4]=1,2,3,4 f32[4]=1,3,2,4 f32[4]=0,3,1,4", .is_not_smooth = true},
    {.inputs = "i32{9}[a,b,c] i32{9}[b,1] i32{9}[c]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "i64[3]=-5,7,0 i64[]=-1"},
    {.inputs = "u8{256}[2,3] u8{256}[3]"},
    {0},
};

const struct op_def op_Min = {
    .name = "Min",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = OP_INPUTS_MAX,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_POINTWISE,
    .infer = broadcast_infer,
    .backward = extremum_backward,
    .ref = min_ref,
    .cases = min_cases,
};
