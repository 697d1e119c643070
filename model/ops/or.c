/* Or: elementwise, whether at least one of two bools (0 or 1) is true, with broadcasting (ONNX 7). */
#include "model/ops/shared/pairwise.h"

BINARY_LOOP(or_ref, uint8_t, x | y)

const struct op_def op_Or = {
    .name = "Or",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .flags = OP_INPLACE,
    .infer = logic_infer,
    .ref = or_ref,
    .cases = logic_cases,
};
