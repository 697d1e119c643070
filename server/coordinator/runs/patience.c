/* Early stopping: a run ends at the first evaluated version with which as many evaluations as it has patience
   for have brought nothing better. Nothing is computed from a version before its evaluation has counted, so
   the run ends at the same one on any cluster. A version that comes again after a roll-back has counted. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/text.h"
#include "model/metrics/metric.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/state/run.h"

enum { REASON_MAX = 256 };

static double value_of(const Weir__EvalEvent *evaluation, const char *name);
static bool is_lower_better(const Weir__EarlyStoppingSpec *spec);
static bool is_better(const Weir__EarlyStoppingSpec *spec, const Weir__Patience *patience, double value);

void coordinator_patience_evaluated(struct run *run, const Weir__EvalEvent *evaluation) {
  const Weir__EarlyStoppingSpec *spec = run->spec->train->early_stopping;
  Weir__Patience *patience = &run->patience;
  double value;
  if (!spec || evaluation->step <= patience->step)
    return;
  value = value_of(evaluation, spec->metric);
  patience->step = evaluation->step;
  patience->waited++;
  if (is_better(spec, patience, value)) {
    patience->best = value;
    patience->best_step = evaluation->step;
    patience->waited = 0;
  }
  run->is_view_due = true; /* with another bound */
  if (patience->waited < spec->patience || evaluation->step >= run->plan.steps)
    return;
  patience->last_step = evaluation->step;
  log_event(LOG_INFO, "coordinator", "stopped_early", "run=%s step=%llu best_step=%llu", run->id,
            (unsigned long long)evaluation->step, (unsigned long long)patience->best_step);
}

void coordinator_patience_explain(struct run *run) {
  const Weir__EarlyStoppingSpec *spec = run->spec->train->early_stopping;
  char best[TEXT_NUMBER_SIZE], delta[TEXT_NUMBER_SIZE], reason[REASON_MAX];
  const char *plural;
  if (!run->patience.last_step)
    return;
  plural = spec->patience == 1 ? "" : "s";
  if (!run->patience.best_step)
    snprintf(reason, sizeof reason, "stopped early: %s was not a number in %u evaluation%s", spec->metric,
             spec->patience, plural);
  else
    snprintf(reason, sizeof reason,
             "stopped early: %s was best at version %llu (%s), and no better%s%s in %u evaluation%s since",
             spec->metric, (unsigned long long)run->patience.best_step, text_number(run->patience.best, best),
             spec->min_delta > 0 ? " by more than " : "",
             spec->min_delta > 0 ? text_number(spec->min_delta, delta) : "", run->patience.waited, plural);
  coordinator_run_set_message(run, reason);
}

static double value_of(const Weir__EvalEvent *evaluation, const char *name) {
  if (strcmp(name, "loss") == 0)
    return evaluation->loss;
  if (strcmp(name, "accuracy") == 0)
    return evaluation->accuracy;
  for (size_t m = 0; m < evaluation->n_metrics; m++)
    if (strcmp(evaluation->metrics[m]->name, name) == 0)
      return evaluation->metrics[m]->value;
  return NAN;
}

/* The loss is no row of the table. */
static bool is_lower_better(const Weir__EarlyStoppingSpec *spec) {
  const struct metric_def *metric = metric_find(spec->metric);
  return spec->goal ? strcmp(spec->goal, "min") == 0 : !metric || metric->is_lower_better;
}

/* The first number is. */
static bool is_better(const Weir__EarlyStoppingSpec *spec, const Weir__Patience *patience, double value) {
  if (isnan(value) || !patience->best_step)
    return !isnan(value);
  return is_lower_better(spec) ? value + spec->min_delta < patience->best
                               : value - spec->min_delta > patience->best;
}
