/* IsNaN: elementwise, whether x is not a number (ONNX 9..13). */
#include "model/ops/shared/elementwise.h"

UNARY_LOOP(is_nan_ref, float, uint8_t, NO_PARAMS, x != x)

static int is_nan_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct value x = *node_input(graph, node, 0);
  if (infer_check_f32(graph, node, err))
    return err->code;
  return infer_output(graph, node, 0, &(struct tensor){.dtype = DTYPE_BOOL, .shape = x.shape}, err);
}

static const struct op_case is_nan_cases[] = {
    {.inputs = "f32[5]=1,nan,-nan,inf,0"},
    {0},
};

const struct op_def op_IsNaN = {
    .name = "IsNaN",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .infer = is_nan_infer,
    .ref = is_nan_ref,
    .cases = is_nan_cases,
};
