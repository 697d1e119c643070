/* If (ONNX 7..): the loader puts the nodes of both branches into the graph, guarded, and one node of this op
   for each output, which reads the condition and what either branch gives. graph_infer makes it the Identity
   of the branch that is taken, so none is ever executed. */
#include "model/ops/shared/infer.h"

static int if_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *condition = node_input(graph, node, 0);
  return node_error(node, err, ERR_UNSUPPORTED,
                    "its condition '%s' is computed from the model's data; only branches that constants and "
                    "shapes decide are supported",
                    condition->name);
}

const struct op_def op_If = {
    .name = "If",
    .domain = "",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .infer = if_infer,
};
