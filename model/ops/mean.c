/* Mean: elementwise mean of any number of tensors with broadcasting (ONNX 8..13). */
#include "model/ops/shared/elementwise.h"
#include "model/ops/sum.h"

static int mean_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int share = backward_scale(graph, autodiff_grad(ad, node, 0), 1.0f / (float)node->n_inputs);
  (void)err;
  for (int i = 0; i < node->n_inputs; i++)
    if (autodiff_wants(ad, node, i))
      backward_add_summed(ad, graph, node, i, share);
  return ERR_OK;
}

static int mean_ref(const struct op_call *call, struct err *err) {
  float *out = call->out[0].data, n = (float)call->node->n_inputs;
  int64_t elems = shape_elems(&call->out[0].shape);
  sum_ref(call, err);
  ELEMENTWISE_FOR (i, elems)
    out[i] /= n;
  return ERR_OK;
}

static const struct op_case mean_cases[] = {
    {.inputs = "f32[2,3]"},
    {.inputs = "f32[a,b,c] f32[a,b,c] f32[a,b,c]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "f32[c] f32[b,1] f32[] f32[a,1,1]", .draw = "a=1..3 b=1..4 c=1..5"},
    {0},
};

const struct op_def op_Mean = {
    .name = "Mean",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = OP_INPUTS_MAX,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .infer = sum_infer,
    .backward = mean_backward,
    .ref = mean_ref,
    .cases = mean_cases,
};
