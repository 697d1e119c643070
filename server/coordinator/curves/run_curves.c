/* The curves of one run. */
#include "server/coordinator/curves/run_curves.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

const char *const step_metric_names[STEP_METRICS] = {"loss", "lr", "samples_per_second", "workers"};

void run_curves_fini(struct run_curves *curves) {
  curves_fini(&curves->steps);
  curves_fini(&curves->evals);
  for (int m = 0; m < CURVES_METRICS_MAX; m++)
    free(curves->names[m]);
  *curves = (struct run_curves){0};
}

static struct curve_value value_of(double value) {
  return (struct curve_value){value, value, value};
}

void step_point(const Weir__StepEvent *step, struct curve_point *point) {
  bool is_joined = step->steps > 1;
  point->last = step->step;
  point->count = is_joined ? step->steps : 1;
  point->values[STEP_LOSS] = (struct curve_value){step->loss, is_joined ? step->loss_min : step->loss,
                                                  is_joined ? step->loss_max : step->loss};
  point->values[STEP_LR] = value_of(step->lr);
  point->values[STEP_SAMPLES_PER_SECOND] =
      value_of(step->seconds > 0 ? (double)step->samples / step->seconds : NAN);
  point->values[STEP_WORKERS] = value_of(step->workers);
}

bool run_curves_add_step(struct run_curves *curves, const Weir__StepEvent *step) {
  struct curve_point point;
  if (!curves->steps.n_metrics)
    curves_init(&curves->steps, STEP_METRICS, RUN_CURVES_STEPS_BYTES);
  step_point(step, &point);
  return curves_add(&curves->steps, &point);
}

/* The first evaluation says which metrics there are. */
static void name_metrics(struct run_curves *curves, const Weir__EvalEvent *eval) {
  int n = EVAL_NAMED;
  curves->names[EVAL_LOSS] = mem_strdup("eval_loss");
  curves->names[EVAL_ACCURACY] = mem_strdup("accuracy");
  for (size_t m = 0; m < eval->n_metrics && n < CURVES_METRICS_MAX; m++)
    curves->names[n++] = mem_strdup(eval->metrics[m]->name);
  curves_init(&curves->evals, n, RUN_CURVES_EVALS_BYTES);
}

static double metric_of(const Weir__EvalEvent *eval, const char *name) {
  for (size_t m = 0; m < eval->n_metrics; m++)
    if (strcmp(eval->metrics[m]->name, name) == 0)
      return eval->metrics[m]->value;
  return NAN;
}

bool run_curves_add_eval(struct run_curves *curves, const Weir__EvalEvent *eval) {
  struct curve_point point = {.last = eval->step, .count = 1};
  if (!curves->evals.n_metrics)
    name_metrics(curves, eval);
  point.values[EVAL_LOSS] = value_of(eval->loss);
  point.values[EVAL_ACCURACY] = value_of(eval->accuracy);
  for (int m = EVAL_NAMED; m < curves->evals.n_metrics; m++)
    point.values[m] = value_of(metric_of(eval, curves->names[m]));
  return curves_add(&curves->evals, &point);
}

size_t run_curves_bytes(const struct run_curves *curves) {
  size_t bytes = curves_bytes(&curves->steps) + curves_bytes(&curves->evals) + sizeof curves->names;
  for (int m = 0; m < CURVES_METRICS_MAX; m++)
    bytes += curves->names[m] ? strlen(curves->names[m]) + 1 : 0;
  return bytes;
}

int run_curves_sparkline(const struct run_curves *curves, float sparkline[RUN_CURVES_SPARKLINE]) {
  const struct curves *steps = &curves->steps;
  int n = steps->n_points < RUN_CURVES_SPARKLINE ? steps->n_points : RUN_CURVES_SPARKLINE;
  for (int part = 0; part < n; part++) {
    int end = (part + 1) * steps->n_points / n, values = 0;
    double sum = 0;
    for (int i = part * steps->n_points / n; i < end; i++) {
      struct curve_point point;
      curves_point(steps, i, &point);
      values += !isnan(point.values[STEP_LOSS].mean);
      sum += isnan(point.values[STEP_LOSS].mean) ? 0 : point.values[STEP_LOSS].mean;
    }
    sparkline[part] = values ? (float)(sum / values) : NAN;
  }
  return n;
}
