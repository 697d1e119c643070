/* IsInf: elementwise, whether x is infinite (ONNX 10), of the signs that the attributes ask for. */
#include "model/ops/shared/elementwise.h"

#define INFINITIES                                                                                           \
  bool positive = node_attr_int(call->node, "detect_positive", 1) != 0;                                      \
  bool negative = node_attr_int(call->node, "detect_negative", 1) != 0

UNARY_LOOP(is_inf_ref, float, uint8_t, INFINITIES,
           (x == INFINITY && positive) || (x == -INFINITY && negative))

static int is_inf_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct value x = *node_input(graph, node, 0);
  if (infer_check_f32(graph, node, err))
    return err->code;
  return infer_output(graph, node, 0, &(struct tensor){.dtype = DTYPE_BOOL, .shape = x.shape}, err);
}

static const struct op_case is_inf_cases[] = {
    {.inputs = "f32[5]=1,nan,inf,-inf,0"},
    {.inputs = "f32[3]=inf,-inf,0", .attrs = "detect_negative=0"},
    {.inputs = "f32[3]=inf,-inf,0", .attrs = "detect_positive=0"},
    {0},
};

const struct op_def op_IsInf = {
    .name = "IsInf",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 10,
    .infer = is_inf_infer,
    .ref = is_inf_ref,
    .cases = is_inf_cases,
};
