/* Sign: elementwise -1, 0 or 1 (ONNX 9..13). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(sign_ref_f32, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x)
UNARY_LOOP(sign_ref_integer_i32, int32_t, int32_t, NO_PARAMS, (x > 0) - (x < 0))
UNARY_LOOP(sign_ref_integer_i64, int64_t, int64_t, NO_PARAMS, (x > 0) - (x < 0))
UNARY_LOOP(sign_ref_integer_u8, uint8_t, uint8_t, NO_PARAMS, x > 0)
INTEGER_DISPATCH(sign_ref_integer)
TYPE_DISPATCH(sign_ref)

static const struct op_case sign_cases[] = {
    {.inputs = "f32{apart}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "f32[3]=0,1,-1", .is_not_smooth = true},
    {.inputs = "i32[3]=-5,0,7"},
    {.inputs = "i64[3]=-5,0,7"},
    {.inputs = "u8{3}[2,3]"},
    {0},
};

const struct op_def op_Sign = {
    .name = "Sign",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_number,
    .backward = backward_zero,
    .ref = sign_ref,
    .cases = sign_cases,
};
