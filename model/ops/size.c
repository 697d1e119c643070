/* Size: how many elements a tensor has (ONNX 1..21). */
#include "model/ops/shared/infer.h"

static int size_infer(struct graph *graph, const struct node *node, struct err *err) {
  return infer_output(graph, node, 0, &(struct tensor){.dtype = DTYPE_I64, .shape = (struct shape){0}}, err);
}

static int size_ref(const struct op_call *call, struct err *err) {
  (void)err;
  *(int64_t *)call->out[0].data = shape_elems(&call->in[0].shape);
  return ERR_OK;
}

static const struct op_case size_cases[] = {
    {.inputs = "f32[n,m]", .draw = "n=1..4 m=1..4"},
    {.inputs = "i64{3}[0]"},
    {.inputs = "f32[]"},
    {0},
};

const struct op_def op_Size = {
    .name = "Size",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_SHAPES,
    .infer = size_infer,
    .ref = size_ref,
    .cases = size_cases,
};
