/* GreaterOrEqual: elementwise x >= y with broadcasting, a bool (ONNX 12..16). */
#include "model/ops/shared/pairwise.h"

COMPARE_REF(greater_or_equal_ref, x >= y)

const struct op_def op_GreaterOrEqual = {
    .name = "GreaterOrEqual",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 12,
    .infer = order_infer,
    .ref = greater_or_equal_ref,
    .cases = order_cases,
};
