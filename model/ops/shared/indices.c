/* Integer inputs that say where elements lie. */
#include "model/ops/shared/indices.h"

int infer_check_indices(const struct graph *graph, const struct node *node, int input, struct err *err) {
  const struct value *value = node_input(graph, node, input);
  if (value->dtype == DTYPE_I64 || value->dtype == DTYPE_I32)
    return ERR_OK;
  return node_error(node, err, ERR_INVALID, "input %d ('%s') is %s; indices are i64 or i32", input,
                    value->name, dtype_name(value->dtype));
}

int index_check(const struct op_call *call, int input, int64_t i, int64_t n, struct err *err) {
  int64_t index = index_raw(&call->in[input], i);
  if (index >= -n && index < n)
    return ERR_OK;
  return node_error(call->node, err, ERR_INVALID,
                    "index %lld (element %lld of input %d) is outside a dimension of %lld", (long long)index,
                    (long long)i, input, (long long)n);
}

int indices_check(const struct op_call *call, int input, int64_t n, struct err *err) {
  int64_t elems = shape_elems(&call->in[input].shape);
  for (int64_t i = 0; i < elems; i++)
    if (index_check(call, input, i, n, err))
      return err->code;
  return ERR_OK;
}
