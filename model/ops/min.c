/* Min: elementwise least of any number of tensors with broadcasting (ONNX 8..13). */
#include "model/ops/shared/extremum.h"

EXTREMUM_REF(min_ref, x < y)

const struct op_def op_Min = {
    .name = "Min",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = OP_INPUTS_MAX,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_POINTWISE,
    .infer = broadcast_infer,
    .backward = extremum_backward,
    .ref = min_ref,
    .cases = extremum_cases,
};
