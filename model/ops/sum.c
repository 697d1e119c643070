/* Sum: elementwise sum of any number of tensors with broadcasting (ONNX 8..13). */
#include "model/ops/sum.h"

#include "model/ops/shared/elementwise.h"

int sum_infer(struct graph *graph, const struct node *node, struct err *err) {
  return broadcast_infer_as(graph, node, 1 << DTYPE_F32, DTYPE_NONE, err);
}

static int sum_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  (void)err;
  for (int i = 0; i < node->n_inputs; i++)
    if (autodiff_wants(ad, node, i))
      backward_add_summed(ad, graph, node, i, dy);
  return ERR_OK;
}

int sum_ref(const struct op_call *call, struct err *err) {
  struct broadcast walk;
  (void)err;
  for (int i = 0; i < call->node->n_inputs; i++) {
    const float *in = call->in[i].data;
    float *out = call->out[0].data;
    broadcast_init(&walk, &call->out[0].shape, &call->in[i].shape, NULL);
    for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), out += walk.run)
      ELEMENTWISE_FOR (j, walk.run) {
        float x = in[walk.at[0] + j * walk.step[0]];
        out[j] = i == 0 ? x : out[j] + x;
      }
  }
  return ERR_OK;
}

static const struct op_case sum_cases[] = {
    {.inputs = "f32[2,3]"},
    {.inputs = "f32[2,3] f32[2,3] f32[2,3]"},
    {.inputs = "f32[3] f32[2,1] f32[] f32[4,1,1]"},
    {.inputs = "f32[a,b] x y f32[d,b]", .draw = "a=1..4 b=1..5 d=1|a x=f32[b]|f32[a,1]|f32[] y=|f32[a,b]"},
    {0},
};

const struct op_def op_Sum = {
    .name = "Sum",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = OP_INPUTS_MAX,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .infer = sum_infer,
    .backward = sum_backward,
    .ref = sum_ref,
    .cases = sum_cases,
};
