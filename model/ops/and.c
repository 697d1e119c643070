/* And: elementwise, whether both of two bools (0 or 1) are true, with broadcasting (ONNX 7). */
#include "model/ops/shared/elementwise.h"

BINARY_LOOP(and_ref, uint8_t, x &y)

static int and_infer(struct graph *graph, const struct node *node, struct err *err) {
  return broadcast_infer_as(graph, node, 1 << DTYPE_BOOL, DTYPE_BOOL, err);
}

static const struct op_case and_cases[] = {
    {.inputs = "bool{2}[a,b,c] bool{2}[a,b,c]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "bool{2}[a,1,c] bool{2}[b,1]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "bool{2}[] bool{2}[3]"},
    {0},
};

const struct op_def op_And = {
    .name = "And",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .flags = OP_INPLACE,
    .infer = and_infer,
    .ref = and_ref,
    .cases = and_cases,
};
