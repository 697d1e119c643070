/* The curves of one run: of its steps, and of its evaluations. They take at most 64 KiB, however long it is.
 */
#ifndef WEIR_SERVER_COORDINATOR_CURVES_RUN_CURVES_H
#define WEIR_SERVER_COORDINATOR_CURVES_RUN_CURVES_H

#include "server/coordinator/curves/curves.h"
#include "training.pb-c.h"

enum {
  RUN_CURVES_STEPS_BYTES = 50 << 10,
  RUN_CURVES_EVALS_BYTES = 13 << 10,
  RUN_CURVES_SPARKLINE = 40,
};

/* Metrics of steps, in the order of struct curve_point. */
enum step_metric { STEP_LOSS, STEP_LR, STEP_SAMPLES_PER_SECOND, STEP_WORKERS, STEP_METRICS };
/* Metrics of evaluations: those that the spec names come behind. */
enum eval_metric { EVAL_LOSS, EVAL_ACCURACY, EVAL_NAMED };

extern const char *const step_metric_names[STEP_METRICS];

/* Zeroed before first use. */
struct run_curves {
  struct curves steps, evals;
  char *names[CURVES_METRICS_MAX]; /* of the metrics of evaluations */
};

void run_curves_fini(struct run_curves *curves);
/* False, and nothing happens: there are steps behind it already, as after a roll-back. */
bool run_curves_add_step(struct run_curves *curves, const Weir__StepEvent *step);
bool run_curves_add_eval(struct run_curves *curves, const Weir__EvalEvent *eval); /* likewise */
size_t run_curves_bytes(const struct run_curves *curves);

/* What the event says, as a point of curves of steps. */
void step_point(const Weir__StepEvent *step, struct curve_point *point);

/* The means of the loss in up to RUN_CURVES_SPARKLINE parts of the run so far. Returns how many there are. */
int run_curves_sparkline(const struct run_curves *curves, float sparkline[RUN_CURVES_SPARKLINE]);

#endif
