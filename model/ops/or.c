/* Or: elementwise, whether at least one of two bools (0 or 1) is true, with broadcasting (ONNX 7). */
#include "model/ops/shared/elementwise.h"

BINARY_LOOP(or_ref, uint8_t, x | y)

static int or_infer(struct graph *graph, const struct node *node, struct err *err) {
  return broadcast_infer_as(graph, node, 1 << DTYPE_BOOL, DTYPE_BOOL, err);
}

static const struct op_case or_cases[] = {
    {.inputs = "bool{2}[a,b,c] bool{2}[a,b,c]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "bool{2}[a,1,c] bool{2}[b,1]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "bool{2}[] bool{2}[3]"},
    {0},
};

const struct op_def op_Or = {
    .name = "Or",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .flags = OP_INPLACE,
    .infer = or_infer,
    .ref = or_ref,
    .cases = or_cases,
};
