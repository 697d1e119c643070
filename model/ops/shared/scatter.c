/* Updates put into a copy of the data at places that indices name. */
#include "model/ops/shared/scatter.h"

#include <math.h>
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

enum reduction { REDUCE_NONE, REDUCE_ADD, REDUCE_MUL, REDUCE_MIN, REDUCE_MAX, REDUCE_UNKNOWN };

static enum reduction read_reduction(const struct node *node) {
  static const char *const names[] = {"none", "add", "mul", "min", "max"};
  const char *name = node_attr_string(node, "reduction", "none");
  int i = 0;
  while (i < REDUCE_UNKNOWN && strcmp(names[i], name) != 0)
    i++;
  return (enum reduction)i;
}

int scatter_infer(struct graph *graph, const struct node *node, const struct shape *beside, struct err *err) {
  const struct value data = *node_input(graph, node, 0), *updates = node_input(graph, node, 2);
  enum reduction reduction = read_reduction(node);
  char left[128], right[128];
  if (updates->dtype != data.dtype || !shape_is_same(&updates->shape, beside))
    return node_error(node, err, ERR_INVALID, "updates of %s%s where %s%s are needed",
                      dtype_name(updates->dtype), shape_text(&updates->shape, left, sizeof left),
                      dtype_name(data.dtype), shape_text(beside, right, sizeof right));
  if (reduction == REDUCE_UNKNOWN || (reduction != REDUCE_NONE && data.dtype == DTYPE_BOOL))
    return node_error(node, err, ERR_UNSUPPORTED, "the reduction '%s' of %s is not supported",
                      node_attr_string(node, "reduction", "none"), dtype_name(data.dtype));
  return infer_output(graph, node, 0, &(struct tensor){.dtype = data.dtype, .shape = data.shape}, err);
}

static float reduce_real(enum reduction reduction, float old, float update) {
  switch (reduction) {
  case REDUCE_ADD:
    return old + update;
  case REDUCE_MUL:
    return old * update;
  case REDUCE_MIN:
    return update < old || isnan(update) ? update : old;
  case REDUCE_MAX:
    return update > old || isnan(update) ? update : old;
  default:
    return update;
  }
}

/* Sums and products wrap. */
static int64_t reduce_integer(enum reduction reduction, int64_t old, int64_t update) {
  switch (reduction) {
  case REDUCE_ADD:
    return (int64_t)((uint64_t)old + (uint64_t)update);
  case REDUCE_MUL:
    return (int64_t)((uint64_t)old * (uint64_t)update);
  case REDUCE_MIN:
    return update < old ? update : old;
  case REDUCE_MAX:
    return update > old ? update : old;
  default:
    return update;
  }
}

#define SCATTER(type, reduce)                                                                                \
  for (int64_t i = 0; i < n; i++) {                                                                          \
    type *at = (type *)out->data + places_find(places, i);                                                   \
    *at = (type)reduce(reduction, *at, ((const type *)call->in[2].data)[i]);                                 \
  }

int scatter_updates(const struct op_call *call, struct places *places, struct err *err) {
  const struct tensor *data = &call->in[0], *out = &call->out[0];
  enum reduction reduction = read_reduction(call->node);
  int64_t n = places->rows * places->run;
  (void)err;
  if (data->data != out->data)
    memcpy(out->data, data->data, (size_t)shape_elems(&data->shape) * dtype_size(data->dtype));
  switch (out->dtype) {
  case DTYPE_F32:
    SCATTER(float, reduce_real)
    break;
  case DTYPE_I32:
    SCATTER(int32_t, reduce_integer)
    break;
  case DTYPE_I64:
    SCATTER(int64_t, reduce_integer)
    break;
  default:
    SCATTER(uint8_t, reduce_integer)
  }
  return ERR_OK;
}

int scatter_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                     const struct scatter_grad *ops) {
  enum reduction reduction = read_reduction(node);
  int dy = autodiff_grad(ad, node, 0), n = ops->places.n;
  int inputs[] = {dy, node->inputs[1], node->inputs[0], node->inputs[2], node->outputs[0]};
  struct attr attrs[2];
  struct node *grads;
  for (int a = 0; a < n; a++)
    attrs[a] = ops->places.at[a];
  if (reduction == REDUCE_ADD) {
    autodiff_add(ad, node, 0, dy);
    if (autodiff_wants(ad, node, 2))
      autodiff_add(ad, node, 2,
                   backward_node(graph, ops->gather, (struct value_list){inputs, 2}, ops->places));
    return ERR_OK;
  }
  attrs[n++] = (struct attr){
      .name = "reduction", .type = ATTR_STRING, .s = node_attr_string(node, "reduction", "none")};
  grads = graph_add_node(graph, ops->grad, (struct value_list){inputs, reduction == REDUCE_NONE ? 2 : 5}, 2,
                         (struct attr_list){attrs, n});
  autodiff_add(ad, node, 0, grads->outputs[0]);
  autodiff_add(ad, node, 2, grads->outputs[1]);
  return ERR_OK;
}

int scatter_grad_infer(struct graph *graph, const struct node *node, const struct shape *beside,
                       struct err *err) {
  struct shape data = node_input(graph, node, 0)->shape;
  if (node_input(graph, node, 0)->dtype != DTYPE_F32)
    return node_error(node, err, ERR_INVALID, "gradients are f32");
  if (shape_elems(beside) > INT32_MAX)
    return node_error(node, err, ERR_UNSUPPORTED, "the gradient of more than %d updates is not supported",
                      INT32_MAX);
  if (infer_f32(graph, node, 0, &data, err))
    return err->code;
  return infer_f32(graph, node, 1, beside, err);
}

/* The last update of a place is what is there: the gradient is its alone. Who that is, is noted in d_data. */
static void grad_of_none(const struct op_call *call, struct places *places) {
  const float *dy = call->in[0].data;
  float *d_data = call->out[0].data, *d_updates = call->out[1].data;
  int32_t *last = call->out[0].data;
  int64_t n = places->rows * places->run;
  for (int64_t i = 0; i < n; i++)
    last[places_find(places, i)] = (int32_t)i;
  for (int64_t i = 0; i < n; i++) {
    int64_t place = places_find(places, i);
    d_updates[i] = last[place] == i ? dy[place] : 0.0f;
  }
  memcpy(d_data, dy, (size_t)shape_elems(&places->data) * sizeof *dy);
  for (int64_t i = 0; i < n; i++)
    d_data[places_find(places, i)] = 0.0f;
}

/* What is before an update times what is behind it, so that a factor of 0 divides nothing. */
static void grad_of_mul(const struct op_call *call, struct places *places) {
  size_t size_bytes = (size_t)shape_elems(&places->data) * sizeof(float);
  const float *updates = call->in[3].data;
  float *product = call->out[0].data, *d_updates = call->out[1].data;
  int64_t n = places->rows * places->run;
  memcpy(product, call->in[2].data, size_bytes);
  for (int64_t i = 0; i < n; i++) {
    int64_t place = places_find(places, i);
    d_updates[i] = product[place];
    product[place] *= updates[i];
  }
  memcpy(product, call->in[0].data, size_bytes);
  for (int64_t i = n - 1; i >= 0; i--) {
    int64_t place = places_find(places, i);
    d_updates[i] *= product[place];
    product[place] *= updates[i];
  }
}

/* Shared evenly among all that are the extreme, as PyTorch does. How many they are is counted in d_data. */
static void grad_of_extreme(const struct op_call *call, struct places *places) {
  const float *dy = call->in[0].data, *data = call->in[2].data, *updates = call->in[3].data;
  const float *y = call->in[4].data;
  float *d_data = call->out[0].data, *d_updates = call->out[1].data;
  int64_t elems = shape_elems(&places->data), n = places->rows * places->run;
  for (int64_t i = 0; i < elems; i++)
    d_data[i] = data[i] == y[i] ? 1.0f : 0.0f;
  for (int64_t i = 0; i < n; i++) {
    int64_t place = places_find(places, i);
    d_data[place] += updates[i] == y[place] ? 1.0f : 0.0f;
  }
  for (int64_t i = 0; i < n; i++) {
    int64_t place = places_find(places, i);
    d_updates[i] = updates[i] == y[place] ? dy[place] / d_data[place] : 0.0f;
  }
  for (int64_t i = 0; i < elems; i++)
    d_data[i] = data[i] == y[i] ? dy[i] / d_data[i] : 0.0f;
}

int scatter_grad(const struct op_call *call, struct places *places, struct err *err) {
  enum reduction reduction = read_reduction(call->node);
  (void)err;
  if (reduction == REDUCE_NONE)
    grad_of_none(call, places);
  else if (reduction == REDUCE_MUL)
    grad_of_mul(call, places);
  else
    grad_of_extreme(call, places);
  return ERR_OK;
}
