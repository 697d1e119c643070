/* Erf: elementwise error function (ONNX 9..13). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(erf_ref, erff(x))
/* dx = dy 2 / sqrt(pi) exp(-x^2) */
UNARY_GRAD_REF(erf_grad_ref, NO_PARAMS, 1.12837917f * expf(-v * v) * dy)

static const struct op_case erf_cases[] = {
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "f32[6]=-7,-2.5,-0.001,0,1.7,40"},
    {0},
};

UNARY_GRADIENT(erf, "ErfGrad")

const struct op_def op_Erf = {
    .name = "Erf",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = erf_ref,
    .cases = erf_cases,
    .gradients = erf_gradients,
};
