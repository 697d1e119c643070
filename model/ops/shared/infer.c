/* What the shape inference of several ops shares. */
#include "model/ops/shared/infer.h"

int infer_output(struct graph *graph, const struct node *node, int output, const struct tensor *tensor,
                 struct err *err) {
  struct value *value = node_output(graph, node, output);
  char text[128];
  if (!value)
    return ERR_OK;
  if (shape_elems(&tensor->shape) < 0)
    return node_error(node, err, ERR_INVALID, "a result of shape %s cannot be computed",
                      shape_text(&tensor->shape, text, sizeof text));
  value->dtype = tensor->dtype;
  value->shape = tensor->shape;
  return ERR_OK;
}

int infer_f32(struct graph *graph, const struct node *node, int output, const struct shape *shape,
              struct err *err) {
  return infer_output(graph, node, output, &(struct tensor){.dtype = DTYPE_F32, .shape = *shape}, err);
}

int infer_same(struct graph *graph, const struct node *node, struct err *err) {
  struct value x = *node_input(graph, node, 0);
  return infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = x.shape}, err);
}

int infer_same_f32(struct graph *graph, const struct node *node, struct err *err) {
  if (infer_check_f32(graph, node, err))
    return err->code;
  return infer_same(graph, node, err);
}

int infer_check_f32(const struct graph *graph, const struct node *node, struct err *err) {
  for (int i = 0; i < node->n_inputs; i++) {
    const struct value *value = node_input(graph, node, i);
    if (value && value->dtype != DTYPE_F32)
      return node_error(node, err, ERR_UNSUPPORTED, "input %d ('%s') is %s; only f32 is supported here", i,
                        value->name, dtype_name(value->dtype));
  }
  return ERR_OK;
}

int infer_check_dtype(const struct graph *graph, const struct node *node, int input, unsigned dtypes,
                      struct err *err) {
  const struct value *value = node_input(graph, node, input);
  if (!value)
    return node_error(node, err, ERR_INVALID, "input %d is absent", input);
  if (!(dtypes >> value->dtype & 1))
    return node_error(node, err, ERR_UNSUPPORTED, "input %d ('%s') is %s, which is not supported here", input,
                      value->name, dtype_name(value->dtype));
  return ERR_OK;
}

int infer_same_number(struct graph *graph, const struct node *node, struct err *err) {
  if (infer_check_dtype(graph, node, 0, DTYPES_NUMBERS, err))
    return err->code;
  return infer_same(graph, node, err);
}

int infer_check_rank(const struct graph *graph, const struct node *node, int input, int rank,
                     struct err *err) {
  const struct value *value = node_input(graph, node, input);
  char text[128];
  if (value->shape.rank == rank)
    return ERR_OK;
  return node_error(node, err, ERR_INVALID, "input %d ('%s') has shape %s where %d dimensions are needed",
                    input, value->name, shape_text(&value->shape, text, sizeof text), rank);
}

int infer_check_vector(const struct graph *graph, const struct node *node, int input, int64_t n,
                       struct err *err) {
  const struct value *value = node_input(graph, node, input);
  char text[128];
  if (value->shape.rank == 1 && value->shape.dim[0] == n)
    return ERR_OK;
  return node_error(node, err, ERR_INVALID, "input %d ('%s') has shape %s where [%lld] is needed", input,
                    value->name, shape_text(&value->shape, text, sizeof text), (long long)n);
}

static int check_axis(const struct node *node, int64_t axis, int rank, bool is_in_range, struct err *err) {
  if (is_in_range)
    return ERR_OK;
  return node_error(node, err, ERR_INVALID, "axis %lld is outside a tensor of %d dimensions", (long long)axis,
                    rank);
}

int infer_axis(const struct node *node, int64_t axis, int rank, int *out, struct err *err) {
  *out = (int)(axis < 0 ? axis + rank : axis);
  return check_axis(node, axis, rank, axis >= -rank && axis < rank, err);
}

int infer_axis_or_end(const struct node *node, int64_t axis, int rank, int *out, struct err *err) {
  *out = (int)(axis < 0 ? axis + rank : axis);
  return check_axis(node, axis, rank, axis >= -rank && axis <= rank, err);
}

int infer_shape_attr(const struct node *node, struct shape *shape, struct err *err) {
  const struct attr *attr = node_attr(node, "shape");
  if (!attr || attr->type != ATTR_INTS || attr->n > RANK_MAX)
    return node_error(node, err, ERR_INVALID, "attribute 'shape' is missing");
  *shape = (struct shape){.rank = attr->n};
  for (int i = 0; i < attr->n; i++)
    shape->dim[i] = attr->ints[i];
  return ERR_OK;
}

int infer_dtype_attr(const struct node *node, const char *attr, enum dtype otherwise, enum dtype *dtype,
                     struct err *err) {
  static const enum dtype known[] = {[1] = DTYPE_F32,  [2] = DTYPE_U8,   [6] = DTYPE_I32,  [7] = DTYPE_I64,
                                     [9] = DTYPE_BOOL, [10] = DTYPE_F32, [11] = DTYPE_F32, [16] = DTYPE_F32};
  int64_t number = node_attr_int(node, attr, 0);
  *dtype = otherwise;
  if (!node_attr(node, attr))
    return ERR_OK;
  *dtype = number > 0 && number < (int64_t)(sizeof known / sizeof *known) ? known[number] : DTYPE_NONE;
  if (*dtype == DTYPE_NONE)
    return node_error(node, err, ERR_UNSUPPORTED, "attribute '%s' names type %lld, which is not supported",
                      attr, (long long)number);
  return ERR_OK;
}

int infer_check_known(const struct graph *graph, const struct node *node, int input, struct err *err) {
  const struct value *value = node_input(graph, node, input);
  if (!value || value->data)
    return ERR_OK;
  return node_error(node, err, ERR_UNSUPPORTED,
                    "input %d ('%s') is computed from the model's inputs; it must be a constant", input,
                    value->name);
}

int infer_ints(const struct graph *graph, const struct node *node, struct ints_source source,
               struct int_list *ints, struct err *err) {
  const struct value *value = node_input(graph, node, source.input);
  const struct attr *attr = source.attr ? node_attr(node, source.attr) : NULL;
  *ints = (struct int_list){NULL, 0};
  if (value) {
    if (value->dtype != DTYPE_I64 || value->shape.rank > 1)
      return node_error(node, err, ERR_INVALID, "input %d ('%s') must be a vector of i64", source.input,
                        value->name);
    if (infer_check_known(graph, node, source.input, err))
      return err->code;
    *ints = (struct int_list){value->data, (int)shape_elems(&value->shape)};
  } else if (attr) {
    if (attr->type != ATTR_INTS)
      return node_error(node, err, ERR_INVALID, "attribute '%s' must be a list of integers", source.attr);
    *ints = (struct int_list){attr->ints, attr->n};
  }
  return ERR_OK;
}

int infer_few_ints(const struct graph *graph, const struct node *node, struct ints_source source,
                   struct ints_room room, struct err *err) {
  const struct value *value = node_input(graph, node, source.input);
  struct int_list known = {NULL, 0};
  *room.n = 0;
  if (value && value->dtype == DTYPE_I32 && value->shape.rank <= 1) {
    if (infer_check_known(graph, node, source.input, err))
      return err->code;
    known.n = (int)shape_elems(&value->shape);
  } else if (infer_ints(graph, node, source, &known, err)) {
    return err->code;
  }
  *room.n = known.n;
  if (known.n > room.max)
    return node_error(node, err, ERR_INVALID, "%d integers are given where at most %d make sense", known.n,
                      room.max);
  for (int i = 0; i < known.n; i++)
    room.values[i] = known.at ? known.at[i] : ((const int32_t *)value->data)[i];
  return ERR_OK;
}

int infer_axes(const struct graph *graph, const struct node *node, struct ints_source source,
               struct axis_set *axes, struct err *err) {
  int64_t given[RANK_MAX] = {0};
  int axis = 0;
  *axes = (struct axis_set){.rank = axes->rank};
  if (infer_few_ints(graph, node, source, (struct ints_room){given, RANK_MAX, &axes->n}, err))
    return err->code;
  for (int i = 0; i < axes->n; i++) {
    if (infer_axis(node, given[i], axes->rank, &axis, err))
      return err->code;
    if (axes->has[axis])
      return node_error(node, err, ERR_INVALID, "axis %lld is named twice", (long long)given[i]);
    axes->has[axis] = true;
  }
  return ERR_OK;
}

static double elems_of(const struct value *value) {
  return value ? (double)shape_elems(&value->shape) : 0;
}

double infer_input_elems(const struct graph *graph, const struct node *node, int i) {
  return elems_of(node_input(graph, node, i));
}

double infer_output_elems(const struct graph *graph, const struct node *node, int i) {
  return elems_of(node_output(graph, node, i));
}
