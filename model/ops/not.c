/* Not: elementwise negation of a bool (ONNX 1). */
#include "model/ops/shared/elementwise.h"

UNARY_LOOP(not_ref, uint8_t, uint8_t, NO_PARAMS, !x)

static int not_infer(struct graph *graph, const struct node *node, struct err *err) {
  if (infer_check_dtype(graph, node, 0, 1 << DTYPE_BOOL, err))
    return err->code;
  return infer_same(graph, node, err);
}

static const struct op_case not_cases[] = {
    {.inputs = "bool{2}[2,3,4]"},
    {.inputs = "bool{2}[]"},
    {0},
};

const struct op_def op_Not = {
    .name = "Not",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_INPLACE,
    .infer = not_infer,
    .ref = not_ref,
    .cases = not_cases,
};
