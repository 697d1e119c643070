/* Expand: a tensor repeated to the shape that its own and a given one broadcast to (ONNX 8..13). */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/broadcast.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

static int expand_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  struct shape wanted = {0}, y;
  char left[128], right[128];
  if (infer_few_ints(graph, node, (struct ints_source){1, NULL},
                     (struct ints_room){wanted.dim, RANK_MAX, &wanted.rank}, err))
    return err->code;
  for (int d = 0; d < wanted.rank; d++)
    if (wanted.dim[d] < 0)
      return node_error(node, err, ERR_INVALID, "cannot expand to a dimension of %lld",
                        (long long)wanted.dim[d]);
  if (!broadcast_shapes(&x.shape, &wanted, &y))
    return node_error(node, err, ERR_INVALID, "shapes %s and %s do not broadcast",
                      shape_text(&x.shape, left, sizeof left), shape_text(&wanted, right, sizeof right));
  return infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = y}, err);
}

static int expand_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                           struct err *err) {
  (void)err;
  backward_add_summed(ad, graph, node, 0, autodiff_grad(ad, node, 0));
  return ERR_OK;
}

static int expand_ref(const struct op_call *call, struct err *err) {
  const struct tensor *x = &call->in[0];
  const struct shape *y = &call->out[0].shape;
  struct strided walk = {0};
  (void)err;
  for (int d = 0; d < y->rank; d++) {
    int own = d - (y->rank - x->shape.rank);
    bool is_repeated = own < 0 || x->shape.dim[own] == 1;
    strided_dim(&walk, y->dim[d], is_repeated ? 0 : shape_stride(&x->shape, own), shape_stride(y, d));
  }
  strided_copy(&walk, dtype_size(x->dtype), x->data, call->out[0].data);
  return ERR_OK;
}

static const struct op_case expand_cases[] = {
    {.inputs = "f32[3,1] i64[3]==2,1,4"},
    {.inputs = "f32[3,2] i64[1]==1"},
    {.inputs = "f32[] i64[2]==2,3"},
    {.inputs = "i64{9}[1,3] i64[2]==2,3"},
    {.inputs = "bool{2}[2,1] i64[2]==1,4"},
    {.inputs = "f32[1,n,1] i64[3]==b,n,m", .draw = "b=1..3 n=1..3 m=1..3"},
    {0},
};

const struct op_def op_Expand = {
    .name = "Expand",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 8,
    .infer = expand_infer,
    .backward = expand_backward,
    .ref = expand_ref,
    .cases = expand_cases,
};
