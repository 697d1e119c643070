/* Log: elementwise natural logarithm (ONNX 6..13). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(log_ref, logf(x))
UNARY_GRAD_REF(log_grad_ref, NO_PARAMS, dy / v)

static const struct op_case log_cases[] = {
    {.inputs = "f32{0.3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(log, "LogGrad")

const struct op_def op_Log = {
    .name = "Log",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = log_ref,
    .cases = log_cases,
    .gradients = log_gradients,
};
