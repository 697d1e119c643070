/* Cos: elementwise cosine (ONNX 7). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(cos_ref, cosf(x))
UNARY_GRAD_REF(cos_grad_ref, NO_PARAMS, -dy *sinf(v))

static const struct op_case cos_cases[] = {
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(cos, "CosGrad")

const struct op_def op_Cos = {
    .name = "Cos",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = cos_ref,
    .cases = cos_cases,
    .gradients = cos_gradients,
};
