/* Constant (ONNX 1..19). The loader turns such nodes into constant values, so none is ever executed. */
#include "model/graph/op.h"

static int constant_infer(struct graph *graph, const struct node *node, struct err *err) {
  (void)graph;
  return node_error(node, err, ERR_UNSUPPORTED, "its value was not read at load");
}

const struct op_def op_Constant = {
    .name = "Constant",
    .domain = "",
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = constant_infer,
};
