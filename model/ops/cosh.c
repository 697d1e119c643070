/* Cosh: elementwise hyperbolic cosine (ONNX 9). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(cosh_ref, coshf(x))
UNARY_GRAD_REF(cosh_grad_ref, NO_PARAMS, dy *sinhf(v))

static const struct op_case cosh_cases[] = {
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(cosh, "CoshGrad")

const struct op_def op_Cosh = {
    .name = "Cosh",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = cosh_ref,
    .cases = cosh_cases,
    .gradients = cosh_gradients,
};
