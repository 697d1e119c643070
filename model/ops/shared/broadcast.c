/* Broadcasting: shapes, and the walk over the elements. */
#include "model/ops/shared/broadcast.h"

#include <string.h>

#include "model/ops/shared/infer.h"

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

int broadcast_infer_shape(const struct graph *graph, const struct node *node, struct shape *shape,
                          struct err *err) {
  char left[128], right[128];
  *shape = (struct shape){0};
  if (node_attr(node, "axis"))
    return node_error(node, err, ERR_UNSUPPORTED, "broadcasting along 'axis' (opset 6) is not supported");
  for (int i = 0; i < node->n_inputs; i++) {
    const struct value *next = node_input(graph, node, i);
    if (next && !broadcast_shapes(shape, &next->shape, shape))
      return node_error(node, err, ERR_INVALID, "shapes %s and %s do not broadcast",
                        shape_text(shape, left, sizeof left), shape_text(&next->shape, right, sizeof right));
  }
  return ERR_OK;
}

int broadcast_infer(struct graph *graph, const struct node *node, struct err *err) {
  return broadcast_infer_as(graph, node, DTYPES_NUMBERS, DTYPE_NONE, err);
}

int broadcast_infer_as(struct graph *graph, const struct node *node, unsigned dtypes, enum dtype out,
                       struct err *err) {
  const struct value *first = node_input(graph, node, 0);
  struct shape shape;
  for (int i = 0; i < node->n_inputs; i++) {
    const struct value *next = node_input(graph, node, i);
    if (infer_check_dtype(graph, node, i, dtypes, err))
      return err->code;
    if (next->dtype != first->dtype)
      return node_error(node, err, ERR_INVALID, "input '%s' is %s and input '%s' is %s", first->name,
                        dtype_name(first->dtype), next->name, dtype_name(next->dtype));
  }
  if (broadcast_infer_shape(graph, node, &shape, err))
    return err->code;
  return infer_output(graph, node, 0,
                      &(struct tensor){.dtype = out == DTYPE_NONE ? first->dtype : out, .shape = shape}, err);
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

static bool is_merged(const struct broadcast *walk, const int64_t *stride) {
  for (int i = 0; i < walk->operands; i++)
    if (stride[i] != walk->step[i] * walk->run)
      return false;
  return true;
}

void broadcast_init_n(struct broadcast *walk, const struct shape *out, const struct shape *const *operands,
                      int n) {
  *walk = (struct broadcast){.run = 1, .runs = 1, .operands = n}; /* an absent operand stays where it is */
  CHECK(n <= BROADCAST_OPERANDS_MAX);
  for (int d = out->rank - 1, is_inner = true; d >= 0; d--) {
    int64_t dim = out->dim[d], stride[BROADCAST_OPERANDS_MAX];
    if (dim == 1)
      continue;
    for (int i = 0; i < n; i++)
      stride[i] = stride_along(operands[i], out, d);
    if (walk->run == 1 && is_inner) {
      memcpy(walk->step, stride, (size_t)n * sizeof stride[0]);
      walk->run = dim;
    } else if (is_inner && is_merged(walk, stride)) {
      walk->run *= dim;
    } else {
      is_inner = false;
      walk->dim[walk->rank] = dim;
      for (int i = 0; i < n; i++)
        walk->stride[i][walk->rank] = stride[i];
      walk->rank++;
      walk->runs *= dim;
    }
  }
}

void broadcast_init(struct broadcast *walk, const struct shape *out, const struct shape *a,
                    const struct shape *b) {
  broadcast_init_n(walk, out, (const struct shape *const[]){a, b}, b ? 2 : 1);
}

void broadcast_next(struct broadcast *walk) {
  for (int d = 0; d < walk->rank; d++) {
    bool is_done = ++walk->count[d] < walk->dim[d];
    for (int i = 0; i < walk->operands; i++)
      walk->at[i] += walk->stride[i][d] * (is_done ? 1 : 1 - walk->dim[d]);
    if (is_done)
      return;
    walk->count[d] = 0;
  }
}
