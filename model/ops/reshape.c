/* Reshape (ONNX 5..19): 0 keeps a dimension (unless allowzero), -1 stands for what is left. The shape must be
   known before execution. */
#include "model/ops/shared/alias.h"
#include "model/ops/shared/infer.h"

static int reshape_error(const struct node *node, const struct shape *from, const struct shape *to,
                         struct err *err) {
  char left[128], right[128];
  return node_error(node, err, ERR_INVALID, "shape %s cannot become %s (-1 shows as ?)",
                    shape_text(from, left, sizeof left), shape_text(to, right, sizeof right));
}

/* The shape as given, with 0 resolved; -1 stays, once. */
static int read_dims(const struct node *node, const struct shape *from, const struct int_list *dims,
                     struct shape *to, struct err *err) {
  bool keeps_zero = node_attr_int(node, "allowzero", 0) != 0, is_open = false;
  if (dims->n > RANK_MAX)
    return node_error(node, err, ERR_UNSUPPORTED, "a shape of %d dimensions; at most %d are supported",
                      dims->n, RANK_MAX);
  *to = (struct shape){.rank = dims->n};
  for (int d = 0; d < dims->n; d++) {
    to->dim[d] = dims->at[d];
    if (to->dim[d] == 0 && !keeps_zero) {
      if (d >= from->rank)
        return reshape_error(node, from, to, err);
      to->dim[d] = from->dim[d];
    }
    if (to->dim[d] < -1 || (to->dim[d] == -1 && is_open))
      return reshape_error(node, from, to, err);
    is_open |= to->dim[d] == -1;
  }
  return ERR_OK;
}

static int reshape_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct value x = *node_input(graph, node, 0);
  struct shape y, known;
  struct int_list dims;
  int64_t elems = shape_elems(&x.shape), known_elems;
  int open = -1;
  if (infer_ints(graph, node, (struct ints_source){1, NULL}, &dims, err) ||
      read_dims(node, &x.shape, &dims, &y, err))
    return err->code;
  for (int d = 0; d < y.rank; d++)
    if (y.dim[d] == -1)
      open = d;
  known = y;
  if (open >= 0)
    known.dim[open] = 1;
  known_elems = shape_elems(&known);
  if (open >= 0 && known_elems > 0 && elems % known_elems == 0)
    y.dim[open] = elems / known_elems;
  if (shape_elems(&y) != elems)
    return reshape_error(node, &x.shape, &y, err);
  return infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = y}, err);
}

static const struct op_case reshape_cases[] = {
    {.inputs = "f32[2,3,4] i64[2]==4,6"},
    {.inputs = "f32[2,3,4] i64[3]==0,-1,2"},
    {.inputs = "f32[2,3,4] i64[1]==-1"},
    {.inputs = "f32[1,1] i64[0]=="},
    {.inputs = "i64{7}[2,3] i64[2]==3,2"},
    {.inputs = "f32[a,b*c] s",
     .draw = "a=1..3 b=1..3 c=1..4 s=i64[1]==-1|i64[2]==b,-1|i64[3]==a,b,c|i64[3]==0,c,-1"},
    {0},
};

const struct op_def op_Reshape = {
    .name = "Reshape",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 5,
    .flags = OP_ALIAS,
    .infer = reshape_infer,
    .backward = alias_backward,
    .ref = alias_ref,
    .cases = reshape_cases,
};
