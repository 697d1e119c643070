/* Steps and rows of the losses of classes. */
#include "worker/backend/cpu/loss/class_rows.h"

#include <math.h>
#include <string.h>

#include "worker/backend/cpu/exp.h"
#include "worker/backend/cpu/lanes.h"

void class_step_add(struct backend_program *program, const struct node *node, const struct class_wish *wish) {
  struct class_step *details = arena_new(&program->memory, sizeof *details);
  struct cpu_step *step = cpu_step_new(program, node);
  op_call_init(&details->call, &program->memory, program->graph, node);
  details->more = wish->more;
  step->details = details;
  step->run = wish->run;
  for (int i = 0; i < node->n_inputs; i++)
    if (node->inputs[i] >= 0 && i < wish->n_bf16)
      cpu_read_dense(program, step, node->inputs[i], dnnl_bf16);
    else if (node->inputs[i] >= 0)
      cpu_read(program, step, 0, node->inputs[i], NULL);
  for (int o = 0; o < node->n_outputs; o++)
    if (node->outputs[o] >= 0)
      cpu_write(program, step, 0, node->outputs[o], NULL);
  cpu_scratch(program, step, wish->scratch_elems, dnnl_f32);
  cpu_step_end(program, step, NULL);
}

struct class_step *class_step_open(struct cpu_step *step) {
  struct class_step *details = step->details;
  const struct node *node = step->node;
  const struct cpu_arg *arg = step->args;
  for (int i = 0; i < node->n_inputs; i++)
    if (node->inputs[i] >= 0)
      details->call.in[i].data = (arg++)->data;
  for (int o = 0; o < node->n_outputs; o++)
    if (node->outputs[o] >= 0)
      details->call.out[o].data = (arg++)->data;
  details->scratch = arg->data;
  return details;
}

void class_gather(const struct class_axis *axis, const float *scores, int64_t tile, float *x) {
  for (int64_t c = 0; c < axis->classes; c++)
    for (int64_t t = 0; t < tile; t++)
      x[t * axis->classes + c] = scores[c * axis->inner + t];
}

void class_scatter(const struct class_axis *axis, const float *x, int64_t tile, float *scores) {
  for (int64_t c = 0; c < axis->classes; c++)
    for (int64_t t = 0; t < tile; t++)
      scores[c * axis->inner + t] = x[t * axis->classes + c];
}

VECTOR_VARIANTS static float greatest_of(const float *x, int64_t n) {
  float side_by_side[LANES], greatest = x[0];
  int64_t i = 0;
  for (int k = 0; k < LANES; k++)
    side_by_side[k] = x[0];
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++)
      side_by_side[k] = x[i + k] > side_by_side[k] ? x[i + k] : side_by_side[k];
  for (; i < n; i++)
    greatest = x[i] > greatest ? x[i] : greatest;
  for (int k = 0; k < LANES; k++)
    greatest = side_by_side[k] > greatest ? side_by_side[k] : greatest;
  return greatest;
}

/* A score that is not a number stays none: it makes the loss one, too. */
VECTOR_VARIANTS static void raise(float *x, float greatest, int64_t n) {
  for (int64_t c = 0; c < n; c++)
    x[c] = exp_vector(x[c] - greatest);
}

LANES_SUM(sum_of, v)

/* x = x factor - spread w */
VECTOR_VARIANTS static void descend(float *x, float factor, float spread, const float *weights, int64_t n) {
  if (weights)
    for (int64_t c = 0; c < n; c++)
      x[c] = x[c] * factor - spread * weights[c];
  else
    for (int64_t c = 0; c < n; c++)
      x[c] = x[c] * factor - spread;
}

static bool is_first_greatest(const float *x, int64_t label, float greatest) {
  bool is_first = x[label] == greatest;
  for (int64_t c = 0; c < label && is_first; c++)
    is_first = x[c] != greatest;
  return is_first;
}

/* sum of w (greatest - x) */
static double depth_of(const struct class_rows *rows, const float *x, double greatest) {
  double depth = 0.0;
  for (int64_t c = 0; c < rows->classes && rows->smoothing > 0; c++)
    depth += class_rows_weight(rows, c) * (greatest - x[c]);
  return depth;
}

void class_pass_row(struct class_pass *pass, float *x, int64_t label) {
  const struct class_rows *rows = &pass->rows;
  double spread = rows->smoothing / (double)rows->classes, weight, hit, below, depth, total, rest, factor;
  float greatest, own;
  if (label == rows->ignore_index) {
    if (pass->has_gradient)
      memset(x, 0, (size_t)rows->classes * sizeof *x);
    return;
  }
  weight = class_rows_weight(rows, label);
  hit = (1 - rows->smoothing) * weight;
  greatest = greatest_of(x, rows->classes);
  below = (double)greatest - x[label];
  depth = depth_of(rows, x, greatest);
  pass->sums.correct += is_first_greatest(x, label, greatest);
  pass->sums.scored += 1;
  pass->sums.denominator += weight;
  raise(x, greatest, rows->classes);
  total = sum_of(x, 0, rows->classes);
  rest = log(total);
  pass->sums.loss += hit * (below + rest) + spread * (depth + rows->weights_sum * rest);
  if (!pass->has_gradient)
    return;
  own = x[label];
  factor = pass->scale * (hit + spread * rows->weights_sum) / total;
  descend(x, (float)factor, (float)(pass->scale * spread), rows->weights, rows->classes);
  x[label] = (float)(factor * own - pass->scale * (hit + spread * weight));
}

/* x = x factor - scale target */
VECTOR_VARIANTS static void descend_to(float *x, double factor, double scale, const float *target,
                                       int64_t n) {
  for (int64_t c = 0; c < n; c++)
    x[c] = (float)(x[c] * factor - scale * target[c]);
}

void class_pass_soft_row(struct class_pass *pass, float *x, const float *target) {
  int64_t classes = pass->rows.classes;
  float greatest = greatest_of(x, classes);
  double depth = 0.0, all = 0.0, total;
  for (int64_t c = 0; c < classes; c++) {
    depth += (double)target[c] * ((double)greatest - x[c]);
    all += target[c];
  }
  raise(x, greatest, classes);
  total = sum_of(x, 0, classes);
  pass->sums.loss += depth + all * log(total);
  if (pass->has_gradient)
    descend_to(x, pass->scale * all / total, pass->scale, target, classes);
}
