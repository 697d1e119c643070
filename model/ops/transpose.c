/* Transpose: dimension d of the result is dimension perm[d] of the input (ONNX 1..13; reversed by default).
 */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

static int read_perm(const struct node *node, int rank, int perm[RANK_MAX], struct err *err) {
  const struct attr *attr = node_attr(node, "perm");
  bool is_used[RANK_MAX] = {false};
  if (attr && (attr->type != ATTR_INTS || attr->n != rank))
    return node_error(node, err, ERR_INVALID, "attribute 'perm' must be a list of %d integers", rank);
  for (int d = 0; d < rank; d++) {
    if (attr && (attr->ints[d] < 0 || attr->ints[d] >= rank || is_used[attr->ints[d]]))
      return node_error(node, err, ERR_INVALID, "attribute 'perm' is not a permutation");
    perm[d] = attr ? (int)attr->ints[d] : rank - 1 - d;
    is_used[perm[d]] = true;
  }
  return ERR_OK;
}

static int transpose_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct value x = *node_input(graph, node, 0);
  struct shape y = x.shape;
  int perm[RANK_MAX];
  if (read_perm(node, x.shape.rank, perm, err))
    return err->code;
  for (int d = 0; d < y.rank; d++)
    y.dim[d] = x.shape.dim[perm[d]];
  return infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = y}, err);
}

static int transpose_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                              struct err *err) {
  int rank = node_input(graph, node, 0)->shape.rank, perm[RANK_MAX], dy = autodiff_grad(ad, node, 0);
  int64_t inverse[RANK_MAX] = {0};
  struct attr attr = attr_of_ints("perm", inverse, rank);
  if (read_perm(node, rank, perm, err))
    return err->code;
  for (int d = 0; d < rank; d++)
    inverse[perm[d]] = d;
  autodiff_add(ad, node, 0, backward_node(graph, "Transpose", VALUES(dy), ATTR_LIST(attr)));
  return ERR_OK;
}

static int transpose_ref(const struct op_call *call, struct err *err) {
  const struct tensor *in = &call->in[0];
  const struct shape *y = &call->out[0].shape;
  struct strided walk = {0};
  int perm[RANK_MAX];
  if (read_perm(call->node, y->rank, perm, err))
    return err->code;
  for (int d = 0; d < y->rank; d++)
    strided_dim(&walk, y->dim[d], shape_stride(&in->shape, perm[d]), shape_stride(y, d));
  strided_copy(&walk, dtype_size(in->dtype), in->data, call->out[0].data);
  return ERR_OK;
}

static const struct op_case transpose_cases[] = {
    {.inputs = "f32[2,3,4]"},
    {.inputs = "f32[2,3,4,5]", .attrs = "perm=0,2,3,1"},
    {.inputs = "f32[2,3,4]", .attrs = "perm=1,2,0"},
    {.inputs = "f32[3,4]"},
    {.inputs = "i64{7}[2,3]"},
    {.inputs = "f32[a,b,c]",
     .attrs = "perm=p",
     .draw = "a=1..3 b=1..4 c=1..4 p=0,1,2|0,2,1|1,0,2|1,2,0|2,0,1|2,1,0"},
    {.inputs = "f32[a,b,c,d]",
     .attrs = "perm=p",
     .draw = "a=1..3 b=1..3 c=1..3 d=1..4 p=0,2,3,1|0,3,1,2|3,2,1,0|1,0,3,2"},
    {.inputs = "bool{2}[2,3,2]", .attrs = "perm=2,0,1"},
    {.inputs = "f32[2,70,45]", .attrs = "perm=p", .draw = "p=0,2,1|2,1,0|1,2,0"},
    {.inputs = "u8{256}[9,33,8]", .attrs = "perm=2,0,1"},
    {0},
};

const struct op_def op_Transpose = {
    .name = "Transpose",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = transpose_infer,
    .backward = transpose_backward,
    .ref = transpose_ref,
    .cases = transpose_cases,
};
