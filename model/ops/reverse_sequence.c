/* ReverseSequence: of each sequence of a batch the first so many entries in reverse order (ONNX 10). It is
   its own gradient. */
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

static int time_axis(const struct node *node) {
  return node_attr_int(node, "time_axis", 0) != 0;
}

static int reverse_sequence_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *x = node_input(graph, node, 0), *lengths = node_input(graph, node, 1);
  int64_t batch = node_attr_int(node, "batch_axis", 1), time = node_attr_int(node, "time_axis", 0);
  if (batch + time != 1 || batch < 0 || time < 0 || x->shape.rank < 2)
    return node_error(node, err, ERR_INVALID, "batch and time must be the first two axes, not %lld and %lld",
                      (long long)batch, (long long)time);
  if (lengths->dtype != DTYPE_I64)
    return node_error(node, err, ERR_INVALID, "the lengths ('%s') must be i64", lengths->name);
  if (infer_check_vector(graph, node, 1, x->shape.dim[batch], err))
    return err->code;
  return infer_same(graph, node, err);
}

static int reverse_sequence_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                     struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[1]};
  struct attr attrs[] = {attr_of_int("time_axis", time_axis(node)),
                         attr_of_int("batch_axis", !time_axis(node))};
  (void)err;
  autodiff_add(
      ad, node, 0,
      backward_node(graph, "ReverseSequence", (struct value_list){inputs, 2}, (struct attr_list){attrs, 2}));
  return ERR_OK;
}

static int reverse_sequence_ref(const struct op_call *call, struct err *err) {
  const struct shape *x = &call->in[0].shape;
  int time = time_axis(call->node);
  int64_t steps = x->dim[time], time_stride = shape_stride(x, time), batch_stride = shape_stride(x, !time);
  int64_t inner = shape_stride(x, 1);
  const int64_t *lengths = call->in[1].data;
  size_t element = dtype_size(call->in[0].dtype), row = (size_t)inner * element;
  for (int64_t b = 0; b < x->dim[!time]; b++) {
    if (lengths[b] < 0 || lengths[b] > steps)
      return node_error(call->node, err, ERR_INVALID, "length %lld of sequence %lld is outside 0 to %lld",
                        (long long)lengths[b], (long long)b, (long long)steps);
    for (int64_t t = 0; t < steps && row > 0; t++) {
      int64_t source = t < lengths[b] ? lengths[b] - 1 - t : t;
      memcpy((char *)call->out[0].data + (size_t)(b * batch_stride + t * time_stride) * element,
             (const char *)call->in[0].data + (size_t)(b * batch_stride + source * time_stride) * element,
             row);
    }
  }
  return ERR_OK;
}

static const struct op_case reverse_sequence_cases[] = {
    {.inputs = "f32[4,3] i64[3]=4,1,2"},
    {.inputs = "i64{9}[2,3] i64[2]=0,3", .attrs = "batch_axis=0 time_axis=1"},
    {.inputs = "f32[t,b,c] i64{t+1}[b]", .draw = "t=1..5 b=1..3 c=1..3"},
    {.inputs = "f32[b,t,c] i64{t+1}[b]", .attrs = "batch_axis=0 time_axis=1", .draw = "t=1..5 b=1..3 c=1..3"},
    {0},
};

const struct op_def op_ReverseSequence = {
    .name = "ReverseSequence",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 10,
    .infer = reverse_sequence_infer,
    .backward = reverse_sequence_backward,
    .ref = reverse_sequence_ref,
    .cases = reverse_sequence_cases,
};
