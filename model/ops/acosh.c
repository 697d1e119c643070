/* Acosh: elementwise inverse hyperbolic cosine (ONNX 9). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(acosh_ref, acoshf(x))
UNARY_GRAD_REF(acosh_grad_ref, NO_PARAMS, dy / sqrtf(v * v - 1.0f))

static const struct op_case acosh_cases[] = {
    {.inputs = "f32{1.2..5}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(acosh, "AcoshGrad")

const struct op_def op_Acosh = {
    .name = "Acosh",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = acosh_ref,
    .cases = acosh_cases,
    .gradients = acosh_gradients,
};
