/* Sinh: elementwise hyperbolic sine (ONNX 9). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(sinh_ref, sinhf(x))
UNARY_GRAD_REF(sinh_grad_ref, NO_PARAMS, dy *coshf(v))

static const struct op_case sinh_cases[] = {
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(sinh, "SinhGrad")

const struct op_def op_Sinh = {
    .name = "Sinh",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = sinh_ref,
    .cases = sinh_cases,
    .gradients = sinh_gradients,
};
