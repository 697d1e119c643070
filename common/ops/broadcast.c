/* Broadcasting: shapes, and the walk over the elements. */
#include "common/ops/broadcast.h"

#include "common/ops/infer.h"

bool broadcast_shapes(const struct shape *a, const struct shape *b, struct shape *out) {
  const struct shape *longer = a->rank >= b->rank ? a : b;
  const struct shape *shorter = longer == a ? b : a;
  int offset = longer->rank - shorter->rank;
  struct shape result = *longer;
  for (int i = 0; i < shorter->rank; i++) {
    int64_t x = longer->dim[offset + i], y = shorter->dim[i];
    if (x != y && x != 1 && y != 1)
      return false;
    result.dim[offset + i] = x == 1 ? y : x;
  }
  *out = result;
  return true;
}

static bool is_arithmetic(enum dtype dtype) {
  return dtype == DTYPE_F32 || dtype == DTYPE_I32 || dtype == DTYPE_I64 || dtype == DTYPE_U8;
}

int broadcast_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *first = node_input(graph, node, 0);
  struct shape shape = first->shape;
  char left[128], right[128];
  if (node_attr(node, "axis"))
    return node_error(node, err, ERR_UNSUPPORTED, "broadcasting along 'axis' (opset 6) is not supported");
  if (!is_arithmetic(first->dtype))
    return node_error(node, err, ERR_UNSUPPORTED, "arithmetic on %s is not supported",
                      dtype_name(first->dtype));
  for (int i = 1; i < node->n_inputs; i++) {
    const struct value *next = node_input(graph, node, i);
    if (next->dtype != first->dtype)
      return node_error(node, err, ERR_INVALID, "input '%s' is %s and input '%s' is %s", first->name,
                        dtype_name(first->dtype), next->name, dtype_name(next->dtype));
    if (!broadcast_shapes(&shape, &next->shape, &shape))
      return node_error(node, err, ERR_INVALID, "shapes %s and %s do not broadcast",
                        shape_text(&shape, left, sizeof left), shape_text(&next->shape, right, sizeof right));
  }
  return infer_output(graph, node, 0, first->dtype, &shape, err);
}

/* The stride of `shape` along dimension d of `out`: 0 where it is broadcast. */
static int64_t stride_along(const struct shape *shape, const struct shape *out, int d) {
  int own = d - (out->rank - shape->rank);
  int64_t stride = 1;
  if (own < 0 || shape->dim[own] == 1)
    return 0;
  for (int i = own + 1; i < shape->rank; i++)
    stride *= shape->dim[i];
  return stride;
}

void broadcast_init(struct broadcast *walk, const struct shape *out, const struct shape *a,
                    const struct shape *b) {
  *walk = (struct broadcast){.run = 1, .runs = 1, .step = {1, 1}};
  for (int d = out->rank - 1, is_inner = true; d >= 0; d--) {
    int64_t dim = out->dim[d], stride[2] = {stride_along(a, out, d), b ? stride_along(b, out, d) : 0};
    if (dim == 1)
      continue;
    if (walk->run == 1 && is_inner) {
      walk->step[0] = stride[0];
      walk->step[1] = stride[1];
      walk->run = dim;
    } else if (is_inner && stride[0] == walk->step[0] * walk->run && stride[1] == walk->step[1] * walk->run) {
      walk->run *= dim;
    } else {
      is_inner = false;
      walk->dim[walk->rank] = dim;
      walk->stride[0][walk->rank] = stride[0];
      walk->stride[1][walk->rank++] = stride[1];
      walk->runs *= dim;
    }
  }
}

void broadcast_next(struct broadcast *walk) {
  for (int d = 0; d < walk->rank; d++) {
    walk->at[0] += walk->stride[0][d];
    walk->at[1] += walk->stride[1][d];
    if (++walk->count[d] < walk->dim[d])
      return;
    walk->at[0] -= walk->stride[0][d] * walk->dim[d];
    walk->at[1] -= walk->stride[1][d] * walk->dim[d];
    walk->count[d] = 0;
  }
}
