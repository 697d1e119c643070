/* Abs: elementwise absolute value (ONNX 6..13). The least integer of its type stays itself. */
#include "model/ops/shared/elementwise.h"

UNARY_REF(abs_ref_f32, fabsf(x))
UNARY_LOOP(abs_ref_integer_i32, int32_t, uint32_t, NO_PARAMS, x < 0 ? 0 - (uint32_t)x : (uint32_t)x)
UNARY_LOOP(abs_ref_integer_i64, int64_t, uint64_t, NO_PARAMS, x < 0 ? 0 - (uint64_t)x : (uint64_t)x)
UNARY_LOOP(abs_ref_integer_u8, uint8_t, uint8_t, NO_PARAMS, x)
INTEGER_DISPATCH(abs_ref_integer)
TYPE_DISPATCH(abs_ref)
UNARY_GRAD_REF(abs_grad_ref, NO_PARAMS, v > 0.0f ? dy : v < 0.0f ? -dy : 0.0f)

static const struct op_case abs_cases[] = {
    {.inputs = "f32{apart}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "f32[3]=0,1,-1", .is_not_smooth = true},
    {.inputs = "i32[3]=-5,0,7"},
    {.inputs = "i64[3]=-5,0,7"},
    {.inputs = "u8{256}[2,3]"},
    {0},
};

UNARY_GRADIENT(abs, "AbsGrad")

const struct op_def op_Abs = {
    .name = "Abs",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_number,
    .backward = backward_from_input,
    .ref = abs_ref,
    .cases = abs_cases,
    .gradients = abs_gradients,
};
