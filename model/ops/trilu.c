/* Trilu: the upper or lower triangle of matrices from the k-th diagonal on, zeros elsewhere (ONNX 14). */
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

static int trilu_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *x = node_input(graph, node, 0), *k = node_input(graph, node, 1);
  if (x->shape.rank < 2)
    return node_error(node, err, ERR_INVALID, "input '%s' has %d dimensions, a matrix has 2", x->name,
                      x->shape.rank);
  if (k && (k->dtype != DTYPE_I64 || shape_elems(&k->shape) != 1))
    return node_error(node, err, ERR_INVALID, "k ('%s') must be a scalar i64", k->name);
  return infer_same(graph, node, err);
}

static int trilu_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                          struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->n_inputs > 1 ? node->inputs[1] : -1};
  struct attr attr = attr_of_int("upper", node_attr_int(node, "upper", 1));
  (void)err;
  autodiff_add(
      ad, node, 0,
      backward_node(graph, "Trilu", (struct value_list){inputs, inputs[1] < 0 ? 1 : 2}, ATTR_LIST(attr)));
  return ERR_OK;
}

/* to = from[begin, end) among zeros, of n bytes; from may be to. */
static void keep_part(const char *from, char *to, size_t n, size_t begin, size_t end) {
  if (from != to)
    memcpy(to + begin, from + begin, end - begin);
  memset(to, 0, begin);
  memset(to + end, 0, n - end);
}

static int trilu_ref(const struct op_call *call, struct err *err) {
  const struct tensor *x = &call->in[0];
  int64_t rows = x->shape.dim[x->shape.rank - 2], cols = x->shape.dim[x->shape.rank - 1];
  int64_t elems = shape_elems(&x->shape), k = call->in[1].data ? *(const int64_t *)call->in[1].data : 0;
  bool is_upper = node_attr_int(call->node, "upper", 1) != 0;
  size_t element = dtype_size(x->dtype);
  const char *from = x->data;
  char *to = call->out[0].data;
  (void)err;
  k = k < -rows ? -rows : k > cols ? cols : k;
  for (int64_t r = 0; elems > 0 && r < elems / cols; r++, from += (size_t)cols * element) {
    int64_t diagonal = r % rows + k + !is_upper;
    size_t row_bytes = (size_t)cols * element, cut;
    diagonal = diagonal < 0 ? 0 : diagonal > cols ? cols : diagonal;
    cut = (size_t)diagonal * element;
    keep_part(from, to + (from - (const char *)x->data), row_bytes, is_upper ? cut : 0,
              is_upper ? row_bytes : cut);
  }
  return ERR_OK;
}

static const struct op_case trilu_cases[] = {
    {.inputs = "f32[3,4]"},
    {.inputs = "f32[2,4,3]", .attrs = "upper=0"},
    {.inputs = "i64{9}[3,3] i64[]=-1", .attrs = "upper=0"},
    {.inputs = "bool{2}[2,3] i64[]=1"},
    {.inputs = "f32[b,n,m] i64[]=k", .attrs = "upper=u", .draw = "b=1..2 n=1..5 m=1..5 k=-6..6 u=0..1"},
    {0},
};

const struct op_def op_Trilu = {
    .name = "Trilu",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 14,
    .flags = OP_INPLACE,
    .infer = trilu_infer,
    .backward = trilu_backward,
    .ref = trilu_ref,
    .cases = trilu_cases,
};
