/* Losses over rows of class scores. */
#include "model/ops/shared/class_rows.h"

#include <math.h>

#include "model/ops/shared/infer.h"

int class_rows_axis(const struct node *node, const struct shape *scores, struct class_axis *axis,
                    struct shape *labels, struct err *err) {
  int at;
  if (infer_axis(node, node_attr_int(node, "axis", 1), scores->rank, &at, err))
    return err->code;
  *axis = (struct class_axis){1, scores->dim[at], 1};
  *labels = (struct shape){.rank = scores->rank - 1};
  for (int d = 0; d < scores->rank; d++) {
    *(d < at ? &axis->outer : &axis->inner) *= d == at ? 1 : scores->dim[d];
    if (d != at)
      labels->dim[d - (d > at)] = scores->dim[d];
  }
  return ERR_OK;
}

int class_rows_check_labels(const struct graph *graph, const struct node *node, int input,
                            const struct shape *shape, struct err *err) {
  const struct value *value = node_input(graph, node, input);
  char have[128], want[128];
  if (value->dtype != DTYPE_I64)
    return node_error(node, err, ERR_INVALID, "labels must be i64, they are %s", dtype_name(value->dtype));
  if (!shape_is_same(&value->shape, shape))
    return node_error(node, err, ERR_INVALID, "labels have shape %s where %s is needed",
                      shape_text(&value->shape, have, sizeof have), shape_text(shape, want, sizeof want));
  return ERR_OK;
}

int class_rows_check_weights(const struct graph *graph, const struct node *node, int input, int64_t classes,
                             struct err *err) {
  const struct value *weights = node_input(graph, node, input);
  if (weights && weights->dtype != DTYPE_F32)
    return node_error(node, err, ERR_INVALID, "class weights must be f32, they are %s",
                      dtype_name(weights->dtype));
  return weights ? infer_check_vector(graph, node, input, classes, err) : ERR_OK;
}

int class_rows_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct shape scalar = {0};
  for (int o = 0; o < CLASS_ROWS_SUMS; o++)
    if (infer_f32(graph, node, o, &scalar, err))
      return err->code;
  return ERR_OK;
}

int class_rows_init(struct class_rows *loss, const struct node *node, const struct tensor inputs[2],
                    int64_t classes, struct err *err) {
  const int64_t *label = inputs[0].data;
  int64_t n = shape_elems(&inputs[0].shape), samples = inputs[0].shape.dim[0];
  *loss = (struct class_rows){.classes = classes,
                              .ignore_index = node_attr_int(node, "ignore_index", -100),
                              .smoothing = (double)node_attr_float(node, "label_smoothing", 0),
                              .is_log = node_attr_int(node, "log_probabilities", 0) != 0,
                              .weights = inputs[1].data};
  for (int64_t i = 0; i < n; i++)
    if (label[i] != loss->ignore_index && (label[i] < 0 || label[i] >= classes))
      return node_error(node, err, ERR_INVALID, "label %lld of sample %lld is not in [0, %lld)",
                        (long long)label[i], (long long)(i / (n / samples)), (long long)classes);
  for (int64_t c = 0; c < classes && loss->smoothing > 0; c++)
    loss->weights_sum += class_rows_weight(loss, c);
  return ERR_OK;
}

static int64_t greatest_index(const float *x, int64_t n, int64_t stride) {
  int64_t greatest = 0;
  for (int64_t c = 1; c < n; c++)
    if (x[c * stride] > x[greatest * stride])
      greatest = c;
  return greatest;
}

struct class_norm class_norm_of(const float *x, int64_t classes, int64_t stride) {
  struct class_norm norm = {.found = greatest_index(x, classes, stride)};
  double sum = 0.0;
  norm.greatest = x[norm.found * stride];
  for (int64_t c = 0; c < classes; c++)
    sum += exp(x[c * stride] - norm.greatest);
  norm.rest = log(sum);
  return norm;
}

/* Of log-probabilities the norm is 0. */
static struct class_norm norm_of(const struct class_rows *loss, const float *x, int64_t stride) {
  struct class_norm norm = {.greatest = 0};
  if (!loss->is_log)
    return class_norm_of(x, loss->classes, stride);
  norm.found = greatest_index(x, loss->classes, stride);
  return norm;
}

void class_rows_add(const struct class_rows *loss, const struct class_row *row, struct class_sums *sums) {
  const float *x = row->x;
  int64_t classes = loss->classes, stride = row->stride, label = row->label;
  struct class_norm norm;
  double weight, smoothed = 0.0;
  if (label == loss->ignore_index)
    return;
  norm = norm_of(loss, x, stride);
  weight = class_rows_weight(loss, label);
  sums->loss += (1 - loss->smoothing) * weight * (norm.greatest - x[label * stride] + norm.rest);
  for (int64_t c = 0; c < classes && loss->smoothing > 0; c++)
    smoothed += class_rows_weight(loss, c) * (norm.greatest - x[c * stride] + norm.rest);
  sums->loss += loss->smoothing / (double)classes * smoothed;
  sums->correct += norm.found == label;
  sums->scored += 1;
  sums->denominator += weight;
}

void class_rows_gradient(const struct class_rows *loss, const struct class_row *row, double scale,
                         float *dx) {
  const float *x = row->x;
  int64_t classes = loss->classes, stride = row->stride, label = row->label;
  struct class_norm norm;
  double hit, spread = loss->smoothing / (double)classes, total;
  if (label == loss->ignore_index) {
    for (int64_t c = 0; c < classes; c++)
      dx[c * stride] = 0;
    return;
  }
  norm = norm_of(loss, x, stride);
  hit = (1 - loss->smoothing) * class_rows_weight(loss, label);
  total = loss->is_log ? 0.0 : hit + spread * loss->weights_sum;
  for (int64_t c = 0; c < classes; c++) {
    double target = (c == label ? hit : 0.0) + spread * class_rows_weight(loss, c);
    double softmax = total > 0 ? total * exp(x[c * stride] - (norm.greatest + norm.rest)) : 0.0;
    dx[c * stride] = (float)(scale * (softmax - target));
  }
}

void class_rows_finish(const struct class_sums *sums, const struct tensor out[CLASS_ROWS_SUMS]) {
  const double values[CLASS_ROWS_SUMS] = {sums->loss, sums->correct, sums->scored, sums->denominator};
  for (int o = 0; o < CLASS_ROWS_SUMS; o++)
    if (out[o].data)
      *(float *)out[o].data = (float)values[o];
}
