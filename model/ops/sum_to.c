/* SumTo and BroadcastTo, each the gradient of the other: a tensor summed to a shape that broadcasts to its
   own, and a tensor repeated to a shape that its own broadcasts to. The shape is the ints attribute "shape".
 */
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/broadcast.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/reduce.h"

/* Sets output 0 to the attribute's shape; small must broadcast to large. */
static int resize_infer(struct graph *graph, const struct node *node, bool is_sum, struct err *err) {
  struct shape from = node_input(graph, node, 0)->shape, to, common;
  char left[128], right[128];
  if (infer_check_f32(graph, node, err) || infer_shape_attr(node, &to, err))
    return err->code;
  if (!broadcast_shapes(&from, &to, &common) || !shape_is_same(&common, is_sum ? &from : &to))
    return node_error(node, err, ERR_INVALID, "shape %s does not become %s",
                      shape_text(&from, left, sizeof left), shape_text(&to, right, sizeof right));
  return infer_f32(graph, node, 0, &to, err);
}

static int sum_to_infer(struct graph *graph, const struct node *node, struct err *err) {
  return resize_infer(graph, node, true, err);
}

static int broadcast_to_infer(struct graph *graph, const struct node *node, struct err *err) {
  return resize_infer(graph, node, false, err);
}

static int sum_to_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                           struct err *err) {
  struct shape shape = node_input(graph, node, 0)->shape;
  (void)err;
  autodiff_add(ad, node, 0, backward_broadcast_to(graph, autodiff_grad(ad, node, 0), &shape));
  return ERR_OK;
}

static int broadcast_to_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                 struct err *err) {
  (void)err;
  backward_add_summed(ad, graph, node, 0, autodiff_grad(ad, node, 0));
  return ERR_OK;
}

static int sum_to_ref(const struct op_call *call, struct err *err) {
  return reduce_sum_to(call, &call->in[0].shape, &call->out[0].shape, 1.0, err);
}

static int broadcast_to_ref(const struct op_call *call, struct err *err) {
  const float *in = call->in[0].data;
  float *out = call->out[0].data;
  struct broadcast walk;
  (void)err;
  broadcast_init(&walk, &call->out[0].shape, &call->in[0].shape, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), out += walk.run) {
    const float *from = in + walk.at[0], first = *from;
    for (int64_t j = 0; j < walk.run && !walk.step[0]; j++)
      out[j] = first;
    if (walk.step[0])
      memcpy(out, from, (size_t)walk.run * sizeof *out);
  }
  return ERR_OK;
}

static const struct op_case sum_to_cases[] = {
    {.inputs = "f32[2,3,4]", .attrs = "shape=4,"},
    {.inputs = "f32[2,3,4]", .attrs = "shape=2,1,4"},
    {.inputs = "f32[2,3,4]", .attrs = "shape=1,3,1"},
    {.inputs = "f32[5]", .attrs = "shape=,"},
    {.inputs = "f32[a,b,c]", .attrs = "shape=s", .draw = "a=1..3 b=1..4 c=1..4 s=,|c,|b,1|1,b,1|a,1,c|a,b,c"},
    {0},
};

const struct op_def op_SumTo = {
    .name = "SumTo",
    .domain = "ai.weir",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = sum_to_infer,
    .backward = sum_to_backward,
    .ref = sum_to_ref,
    .cases = sum_to_cases,
};

static const struct op_case broadcast_to_cases[] = {
    {.inputs = "f32[4]", .attrs = "shape=2,3,4"},
    {.inputs = "f32[2,1,4]", .attrs = "shape=2,3,4"},
    {.inputs = "f32[]", .attrs = "shape=2,2"},
    {.inputs = "f32[s]", .attrs = "shape=a,b,c", .draw = "a=1..3 b=1..4 c=1..4 s=|c|b,1|1,b,1|a,1,c|a,b,c"},
    {0},
};

const struct op_def op_BroadcastTo = {
    .name = "BroadcastTo",
    .domain = "ai.weir",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = broadcast_to_infer,
    .backward = broadcast_to_backward,
    .ref = broadcast_to_ref,
    .cases = broadcast_to_cases,
};
