/* Greater: elementwise x > y with broadcasting, a bool (ONNX 7..13). */
#include "model/ops/shared/pairwise.h"

COMPARE_REF(greater_ref, x > y)

const struct op_def op_Greater = {
    .name = "Greater",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .infer = order_infer,
    .ref = greater_ref,
    .cases = order_cases,
};
