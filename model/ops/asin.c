/* Asin: elementwise arc sine (ONNX 7). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(asin_ref, asinf(x))
UNARY_GRAD_REF(asin_grad_ref, NO_PARAMS, dy / sqrtf(1.0f - v * v))

static const struct op_case asin_cases[] = {
    {.inputs = "f32{-0.8..0.8}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(asin, "AsinGrad")

const struct op_def op_Asin = {
    .name = "Asin",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = asin_ref,
    .cases = asin_cases,
    .gradients = asin_gradients,
};
