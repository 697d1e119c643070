/* Labels, their weights, and the reduction of losses of classifiers. */
#include "model/ops/shared/class_loss.h"

#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

static int read_reduction(struct class_loss *loss, const struct node *node, struct err *err) {
  static const char *const names[] = {"none", "sum", "mean"};
  const char *name = node_attr_string(node, "reduction", "mean");
  for (int i = 0; i < 3; i++)
    if (strcmp(name, names[i]) == 0) {
      loss->reduction = (enum class_reduction)i;
      return ERR_OK;
    }
  return node_error(node, err, ERR_INVALID, "reduction '%s' is unknown", name);
}

/* [n, classes, inner...] -> [n, inner...] */
static struct shape samples_shape(const struct shape *x) {
  struct shape samples = {.rank = x->rank - 1, .dim = {x->dim[0]}};
  for (int d = 2; d < x->rank; d++)
    samples.dim[d - 1] = x->dim[d];
  return samples;
}

int class_loss_init(struct class_loss *loss, const struct graph *graph, const struct node *node,
                    const struct shape *x, struct err *err) {
  const struct value *labels = node_input(graph, node, 1), *weights = node_input(graph, node, 2);
  char text[128], of_labels[128];
  struct shape samples;
  if (x->rank < 2)
    return node_error(node, err, ERR_INVALID, "input of shape %s has no classes",
                      shape_text(x, text, sizeof text));
  samples = samples_shape(x);
  if (!shape_is_same(&samples, &labels->shape))
    return node_error(node, err, ERR_INVALID, "labels of shape %s do not belong to an input of %s",
                      shape_text(&labels->shape, of_labels, sizeof of_labels),
                      shape_text(x, text, sizeof text));
  if (labels->dtype != DTYPE_I64 && labels->dtype != DTYPE_I32)
    return node_error(node, err, ERR_INVALID, "labels ('%s') are %s; they must be i32 or i64", labels->name,
                      dtype_name(labels->dtype));
  if (weights && weights->dtype != DTYPE_F32)
    return node_error(node, err, ERR_UNSUPPORTED, "weights ('%s') are %s; only f32 is supported",
                      weights->name, dtype_name(weights->dtype));
  if (weights && infer_check_vector(graph, node, 2, x->dim[1], err))
    return err->code;
  *loss = (struct class_loss){.n = x->dim[0], .classes = x->dim[1], .inner = 1};
  for (int d = 2; d < x->rank; d++)
    loss->inner *= x->dim[d];
  loss->has_ignored = node_attr(node, "ignore_index") != NULL;
  loss->ignored = node_attr_int(node, "ignore_index", 0);
  return read_reduction(loss, node, err);
}

int class_loss_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  struct class_loss loss;
  struct shape out;
  if (x.dtype != DTYPE_F32)
    return node_error(node, err, ERR_UNSUPPORTED, "input '%s' is %s; only f32 is supported here", x.name,
                      dtype_name(x.dtype));
  if (class_loss_init(&loss, graph, node, &x.shape, err))
    return err->code;
  out = class_loss_shape(&loss, &x.shape);
  return infer_f32(graph, node, 0, &out, err);
}

struct shape class_loss_shape(const struct class_loss *loss, const struct shape *x) {
  return loss->reduction == CLASS_REDUCE_NONE ? samples_shape(x) : (struct shape){0};
}

int64_t class_loss_label(const struct op_call *call, int64_t i) {
  const struct tensor *labels = &call->in[1];
  return labels->dtype == DTYPE_I32 ? ((const int32_t *)labels->data)[i] : ((const int64_t *)labels->data)[i];
}

double class_loss_weight(const struct class_loss *loss, const struct op_call *call, int64_t i) {
  const float *weights = call->in[2].data;
  int64_t label = class_loss_label(call, i);
  if (loss->has_ignored && label == loss->ignored)
    return 0.0;
  return weights ? weights[label] : 1.0;
}

int class_loss_scale(const struct class_loss *loss, const struct op_call *call, double *scale,
                     struct err *err) {
  double total = 0.0;
  for (int64_t i = 0; i < loss->n * loss->inner; i++) {
    int64_t label = class_loss_label(call, i);
    if ((label < 0 || label >= loss->classes) && !(loss->has_ignored && label == loss->ignored))
      return node_error(call->node, err, ERR_INVALID, "label %lld of sample %lld is not in [0, %lld)",
                        (long long)label, (long long)i, (long long)loss->classes);
    total += class_loss_weight(loss, call, i);
  }
  *scale = loss->reduction == CLASS_REDUCE_MEAN ? 1.0 / total : 1.0;
  return ERR_OK;
}

void class_loss_add(const struct class_loss *loss, struct class_loss_sum *sum, int64_t i, double value) {
  if (loss->reduction == CLASS_REDUCE_NONE)
    sum->out[i] = (float)value;
  else
    sum->total += value;
}

void class_loss_finish(const struct class_loss *loss, struct class_loss_sum *sum, double scale) {
  if (loss->reduction != CLASS_REDUCE_NONE)
    *sum->out = (float)(sum->total * scale);
}

int class_loss_attrs(const struct node *node, const struct shape *x, struct attr *attrs) {
  for (int a = 0; a < node->n_attrs; a++)
    attrs[a] = node->attrs[a];
  attrs[node->n_attrs] = attr_of_shape(x);
  return node->n_attrs + 1;
}
