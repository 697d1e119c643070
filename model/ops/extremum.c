/* The gradient of Min and Max. */
#include "model/ops/shared/extremum.h"

#include <string.h>

enum { FIRST_INPUT = 2 }; /* of ExtremumGrad: dy, y, and the inputs */

int extremum_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int inputs[FIRST_INPUT + OP_INPUTS_MAX] = {autodiff_grad(ad, node, 0), node->outputs[0]};
  int n = node->n_inputs;
  if (FIRST_INPUT + n > OP_INPUTS_MAX)
    return node_error(node, err, ERR_UNSUPPORTED, "has %d inputs; with a gradient at most %d", n,
                      OP_INPUTS_MAX - FIRST_INPUT);
  for (int i = 0; i < n; i++)
    inputs[FIRST_INPUT + i] = node->inputs[i];
  for (int i = 0; i < n; i++) {
    struct attr attr = attr_of_int("input", i);
    if (autodiff_wants(ad, node, i))
      backward_add_summed(ad, graph, node, i,
                          backward_node(graph, "ExtremumGrad", (struct value_list){inputs, FIRST_INPUT + n},
                                        ATTR_LIST(attr)));
  }
  return ERR_OK;
}

static int extremum_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  return broadcast_infer_as(graph, node, 1 << DTYPE_F32, DTYPE_NONE, err);
}

/* Adds to out[] how many of the inputs equal y. */
static void count_winners(const struct op_call *call, const float *y, float *out) {
  struct broadcast walk;
  memset(out, 0, (size_t)shape_elems(&call->out[0].shape) * sizeof *out);
  for (int i = FIRST_INPUT; i < call->node->n_inputs; i++) {
    const float *in = call->in[i].data;
    int64_t at = 0;
    broadcast_init(&walk, &call->out[0].shape, &call->in[i].shape, NULL);
    for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), at += walk.run)
      ELEMENTWISE_FOR (j, walk.run)
        out[at + j] += in[walk.at[0] + j * walk.step[0]] == y[at + j] ? 1.0f : 0.0f;
  }
}

static int extremum_grad_ref(const struct op_call *call, struct err *err) {
  const struct tensor *input = &call->in[FIRST_INPUT + node_attr_int(call->node, "input", 0)];
  const float *dy = call->in[0].data, *y = call->in[1].data, *in = input->data;
  float *out = call->out[0].data;
  struct broadcast walk;
  int64_t at = 0;
  (void)err;
  count_winners(call, y, out);
  broadcast_init(&walk, &call->out[0].shape, &input->shape, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), at += walk.run)
    ELEMENTWISE_FOR (j, walk.run)
      out[at + j] = in[walk.at[0] + j * walk.step[0]] == y[at + j] ? dy[at + j] / out[at + j] : 0.0f;
  return ERR_OK;
}

/* dy, y, x0, x1, ... -> the gradient of the input that the attribute tells, in y's shape */
static const struct op_def extremum_grad = {
    .name = "ExtremumGrad",
    .domain = "ai.weir",
    .min_inputs = FIRST_INPUT + 1,
    .max_inputs = OP_INPUTS_MAX,
    .min_outputs = 1,
    .max_outputs = 1,
    .flags = OP_POINTWISE,
    .infer = extremum_grad_infer,
    .ref = extremum_grad_ref,
};
const struct op_def *const extremum_gradients[] = {&extremum_grad, NULL};

const struct op_case extremum_cases[] = {
    {.inputs = "f32[2,3]"},
    {.inputs = "f32{apart}[a,b] x y",
     .draw = "a=1..4 b=1..5 x=f32{apart}[b]|f32{apart}[a,1] y=|f32{apart}[a,b]"},
    {.inputs = "f32[2,3]=1,2,3,-1,-2,-3 f32[3]=2,-1,0"},
    {.inputs = "f32[2,1]=1,-2 f32[3]=2,-1,0 f32[]=0.5"},
    {.inputs = "f32[4]=1,2,3,4 f32[4]=1,3,2,4 f32[4]=0,3,1,4", .is_not_smooth = true},
    {.inputs = "i32{9}[a,b,c] i32{9}[b,1] i32{9}[c]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "i64[3]=-5,7,0 i64[]=-1"},
    {.inputs = "u8{256}[2,3] u8{256}[3]"},
    {0},
};
