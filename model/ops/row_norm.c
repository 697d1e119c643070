/* Rows normalised by their own mean and variance, and RowNormGrad, the gradient. */
#include "model/ops/row_norm.h"

#include <math.h>
#include <stdlib.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/broadcast.h"
#include "model/ops/shared/infer.h"

int row_norm_infer(struct graph *graph, const struct node *node, const struct row_norm *norm,
                   struct err *err) {
  const struct shape rows = {.rank = 1, .dim = {norm->rows}};
  if (infer_same(graph, node, err) || infer_f32(graph, node, 1, &rows, err))
    return err->code;
  return infer_f32(graph, node, 2, &rows, err);
}

bool row_norm_channels(const struct row_norm *norm, int64_t *run, int64_t *channels) {
  const struct shape *x = &norm->x, *scale = &norm->scale;
  int d = scale->rank - 1, own = x->rank - 1;
  *run = 1;
  *channels = shape_elems(scale);
  for (; d >= 0 && scale->dim[d] == 1; d--, own--)
    *run *= x->dim[own];
  for (int64_t left = *channels; left > 1; left /= x->dim[own--])
    if (scale->dim[d--] != x->dim[own])
      return false;
  return !norm->has_bias || shape_is_same(scale, &norm->bias);
}

/* The outputs behind y, which only nodes with a gradient may have. */
static float *saved_moment(const struct op_call *call, int output) {
  return output < call->node->n_outputs ? call->out[output].data : NULL;
}

static void row_moments(const float *x, int64_t n, double *mean, double *variance) {
  double sum = 0.0, squares = 0.0;
  for (int64_t i = 0; i < n; i++)
    sum += x[i];
  *mean = sum / (double)n;
  for (int64_t i = 0; i < n; i++)
    squares += (x[i] - *mean) * (x[i] - *mean);
  *variance = squares / (double)n;
}

static void scale_and_shift(const struct op_call *call, const struct row_norm *norm) {
  const float none = 0.0f, *scale = call->in[1].data, *bias = norm->has_bias ? call->in[2].data : &none;
  float *y = call->out[0].data;
  struct broadcast walk;
  broadcast_init(&walk, &norm->x, &norm->scale, norm->has_bias ? &norm->bias : NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), y += walk.run)
    for (int64_t j = 0; j < walk.run; j++)
      y[j] = y[j] * scale[walk.at[0] + j * walk.step[0]] + bias[walk.at[1] + j * walk.step[1]];
}

int row_norm_ref(const struct op_call *call, const struct row_norm *norm, struct err *err) {
  const float *x = call->in[0].data;
  float *y = call->out[0].data, *mean_out = saved_moment(call, 1), *inv_std_out = saved_moment(call, 2);
  double epsilon = node_attr_float(call->node, "epsilon", 1e-5f);
  (void)err;
  for (int64_t r = 0; r < norm->rows; r++, x += norm->n, y += norm->n) {
    double mean, variance, inv_std;
    row_moments(x, norm->n, &mean, &variance);
    inv_std = 1.0 / sqrt(variance + epsilon);
    for (int64_t i = 0; i < norm->n; i++)
      y[i] = (float)((x[i] - mean) * inv_std);
    if (mean_out)
      mean_out[r] = (float)mean;
    if (inv_std_out)
      inv_std_out[r] = (float)inv_std;
  }
  scale_and_shift(call, norm);
  return ERR_OK;
}

int row_norm_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                      const struct row_norm *norm, struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  struct attr attrs[2] = {attr_of_shape(&norm->x),
                          attr_of_ints("scale_shape", norm->scale.dim, norm->scale.rank)};
  const struct value *scale = node_input(graph, node, 1), *bias = node_input(graph, node, 2);
  bool is_bias_alike = bias && shape_is_same(&bias->shape, &scale->shape);
  const struct node *grad;
  for (int i = 1; i < 3; i++)
    if (autodiff_grad(ad, node, i) >= 0)
      return node_error(node, err, ERR_UNSUPPORTED, "no gradient flows through its statistics");
  int inputs[] = {dy, node->inputs[0], node->inputs[1], backward_keep(graph, node, 1),
                  backward_keep(graph, node, 2)};
  grad = graph_add_node(graph, "RowNormGrad", (struct value_list){inputs, 5}, is_bias_alike ? 3 : 2,
                        (struct attr_list){attrs, 2});
  autodiff_add(ad, node, 0, grad->outputs[0]);
  autodiff_add(ad, node, 1, grad->outputs[1]);
  if (is_bias_alike)
    autodiff_add(ad, node, 2, grad->outputs[2]);
  else if (autodiff_wants(ad, node, 2))
    backward_add_summed(ad, graph, node, 2, dy);
  return ERR_OK;
}

static int read_shape(const struct node *node, const char *name, const struct value *value,
                      struct shape *shape, struct err *err) {
  const struct attr *attr = node_attr(node, name);
  *shape = (struct shape){0};
  if (attr && attr->type == ATTR_INTS && attr->n <= RANK_MAX)
    for (int d = 0; d < attr->n; d++)
      shape->dim[shape->rank++] = attr->ints[d];
  if (!attr || shape_elems(shape) != shape_elems(&value->shape))
    return node_error(node, err, ERR_INVALID, "attribute '%s' does not fit '%s'", name, value->name);
  return ERR_OK;
}

int row_norm_of_grad(struct row_norm *norm, const struct graph *graph, const struct node *node,
                     struct err *err) {
  const struct value *x = node_input(graph, node, 1), *scale = node_input(graph, node, 2);
  *norm = (struct row_norm){.rows = shape_elems(&node_input(graph, node, 3)->shape), .has_bias = true};
  if (read_shape(node, "shape", x, &norm->x, err) ||
      read_shape(node, "scale_shape", scale, &norm->scale, err))
    return err->code;
  norm->bias = norm->scale;
  norm->n = shape_elems(&x->shape) / norm->rows;
  return ERR_OK;
}

static int row_norm_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 1)->shape, scale = node_input(graph, node, 2)->shape;
  struct row_norm norm;
  if (infer_check_f32(graph, node, err) || row_norm_of_grad(&norm, graph, node, err) ||
      infer_f32(graph, node, 0, &x, err) || infer_f32(graph, node, 1, &scale, err))
    return err->code;
  return infer_f32(graph, node, 2, &scale, err);
}

/* dx = dy scale for now, and the sums dscale = sum(dy x_hat), dbias = sum(dy). */
static void grad_scale(const struct op_call *call, const struct row_norm *norm, double *dscale,
                       double *dbias) {
  const float *dy = call->in[0].data, *x = call->in[1].data, *scale = call->in[2].data;
  const float *mean = call->in[3].data, *inv_std = call->in[4].data;
  float *dx = call->out[0].data;
  struct broadcast walk;
  int64_t column = 0;
  broadcast_init(&walk, &norm->x, &norm->scale, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk))
    for (int64_t j = 0; j < walk.run; j++) {
      int64_t at = walk.at[0] + j * walk.step[0];
      dscale[at] += *dy * ((double)*x++ - *mean) * *inv_std;
      dbias[at] += *dy;
      *dx++ = *dy++ * scale[at];
      if (++column == norm->n) {
        column = 0;
        mean++;
        inv_std++;
      }
    }
}

/* With g = dy scale: dx = inv_std (g - mean(g) - x_hat mean(g x_hat)) */
static void grad_rows(const struct op_call *call, const struct row_norm *norm) {
  const float *x = call->in[1].data, *mean = call->in[3].data, *inv_std = call->in[4].data;
  float *dx = call->out[0].data;
  int64_t n = norm->n;
  for (int64_t r = 0; r < norm->rows; r++, x += n, dx += n) {
    double sum = 0.0, dot = 0.0;
    for (int64_t i = 0; i < n; i++) {
      sum += dx[i];
      dot += dx[i] * ((double)x[i] - mean[r]) * inv_std[r];
    }
    for (int64_t i = 0; i < n; i++) {
      double x_hat = ((double)x[i] - mean[r]) * inv_std[r];
      dx[i] = (float)(inv_std[r] * (dx[i] - sum / (double)n - x_hat * dot / (double)n));
    }
  }
}

static int row_norm_grad_ref(const struct op_call *call, struct err *err) {
  int64_t elems = shape_elems(&call->in[2].shape);
  float *dscale = call->out[1].data, *dbias = call->out[2].data;
  struct row_norm norm;
  double *sums;
  if (row_norm_of_grad(&norm, call->graph, call->node, err))
    return err->code;
  sums = calloc((size_t)elems, 2 * sizeof *sums);
  if (!sums)
    return node_error(call->node, err, ERR_NO_MEMORY, "no memory for %lld sums", 2 * (long long)elems);
  grad_scale(call, &norm, sums, sums + elems);
  grad_rows(call, &norm);
  for (int64_t i = 0; i < elems; i++) {
    dscale[i] = (float)sums[i];
    if (dbias)
      dbias[i] = (float)sums[elems + i];
  }
  free(sums);
  return ERR_OK;
}

/* dy, x, scale, mean f32[rows], inv_std f32[rows] -> dx, dscale, dbias (both of scale's shape). "shape" and
   "scale_shape": x and scale as shapes that broadcast. */
const struct op_def op_RowNormGrad = {
    .name = "RowNormGrad",
    .domain = "ai.weir",
    .min_inputs = 5,
    .max_inputs = 5,
    .min_outputs = 2,
    .max_outputs = 3,
    .flags = OP_INPLACE,
    .infer = row_norm_grad_infer,
    .ref = row_norm_grad_ref,
};
