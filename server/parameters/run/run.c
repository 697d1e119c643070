/* What the blocks of a run share. */
#include "server/parameters/run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/clock.h"
#include "common/metrics/metric.h"

struct hosted_run *hosted_run_get(struct hosted_run *run) {
  __atomic_fetch_add(&run->refs, 1, __ATOMIC_RELAXED);
  return run;
}

void hosted_run_put(struct hosted_run *run) {
  if (!run || __atomic_sub_fetch(&run->refs, 1, __ATOMIC_ACQ_REL) > 0)
    return;
  run->dispose(run);
  free(run->own);
  free(run->n_reached);
  spec_free(run->spec);
  free(run->unload_reason);
  report_log_fini(&run->log);
  pace_fini(&run->pace);
  run_tickets_fini(&run->tickets);
  run_shares_fini(&run->shares);
  free(run->id);
  free(run);
}

bool hosted_run_is_unloaded(const struct hosted_run *run, struct err *err) {
  const char *reason = __atomic_load_n(&run->unload_reason, __ATOMIC_ACQUIRE);
  if (!reason)
    return false;
  err_set(err, ERR_CANCELLED, "run '%s' was unloaded: %s", run->id, reason);
  return true;
}

void hosted_run_prove(struct hosted_run *run, uint64_t version, const struct part *part) {
  uint64_t proven = __atomic_load_n(&run->proven_version, __ATOMIC_RELAXED);
  while (proven < version && !__atomic_compare_exchange_n(&run->proven_version, &proven, version, false,
                                                          __ATOMIC_RELEASE, __ATOMIC_RELAXED))
    ;
  pace_hear(&run->pace, part->step, part->view, clock_now_ns());
}

uint64_t hosted_run_proven_version(const struct hosted_run *run) {
  return __atomic_load_n(&run->proven_version, __ATOMIC_ACQUIRE);
}

/* A version's place is free again before a block can come to the version that has it next: that one is more
   than bounds.rounds ahead. */
void hosted_run_advance(struct hosted_run *run, uint64_t version) {
  uint32_t *n_reached = &run->n_reached[mode_count(&run->mode, version) % (run->bounds.rounds + 1)];
  metric_add(METRIC_VERSIONS, 1);
  if (__atomic_add_fetch(n_reached, 1, __ATOMIC_ACQ_REL) < run->n_own)
    return;
  __atomic_store_n(n_reached, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&run->lowest, version, __ATOMIC_RELEASE);
  pace_begin(&run->pace, version, plan_evaluates(&run->plan, version), clock_now_ns());
  hosted_run_tell_held(run);
}

uint64_t hosted_run_hold(const struct hosted_run *run) {
  return __atomic_load_n(&run->hold, __ATOMIC_ACQUIRE);
}

/* A server without blocks is wherever the run is. */
void hosted_run_tell_held(struct hosted_run *run) {
  uint64_t hold = hosted_run_hold(run);
  if (hold != UINT64_MAX && (run->n_own == 0 || hosted_run_lowest(run) >= hold))
    report_log_held(&run->log, hold);
}

uint64_t hosted_run_lowest(const struct hosted_run *run) {
  return __atomic_load_n(&run->lowest, __ATOMIC_ACQUIRE);
}

uint64_t hosted_run_horizon(const struct hosted_run *run, uint64_t newest) {
  uint64_t horizon = mode_horizon(&run->mode, newest), next;
  if (horizon == newest)
    return newest;
  next = plan_next_evaluated(&run->plan, newest + 1);
  return horizon < next ? horizon : next - 1;
}

/* The mean over labels of which none counts is 0. */
static double loss_of(const struct metrics *metrics) {
  double denominator = metrics->sum[METRIC_DENOMINATOR];
  return denominator > 0 ? metrics->sum[METRIC_LOSS_SUM] / denominator : 0;
}

void hosted_run_report_step(struct hosted_run *run, uint64_t step, uint32_t n_left,
                            const struct metrics *metrics) {
  const struct update_rule rule = update_rule_of_steps(run->spec->train);
  Weir__StepReport report = WEIR__STEP_REPORT__INIT;
  uint64_t taken_ns = (clock_now_ns() - run->step_ns) / n_left;
  report.step = step;
  report.loss = loss_of(metrics);
  report.lr = update_rule_lr(&rule, rule.options->lr, step, run->plan.steps);
  report.samples = (uint64_t)fmax(0, metrics->sum[METRIC_SAMPLES]);
  report.seconds = clock_seconds(taken_ns);
  run->step_ns += taken_ns;
  report_log_add_step(&run->log, &report);
}

/* Accuracy has a place of its own: NaN where the loss has no classes and it was not asked for. */
void hosted_run_report_eval(struct hosted_run *run, uint64_t version, const struct statistics *statistics) {
  const struct metric_set *set = &statistics->eval_metrics;
  struct metrics totals = statistics_eval_metrics(statistics);
  Weir__EvalReport report = WEIR__EVAL_REPORT__INIT;
  Weir__MetricValue values[METRICS_NAMED_MAX], *list[METRICS_NAMED_MAX];
  double of[METRICS_NAMED_MAX];
  report.step = version;
  report.loss = loss_of(&totals);
  report.accuracy = totals.sum[METRIC_CORRECT] / totals.sum[METRIC_SCORED];
  report.samples = (uint64_t)fmax(0, totals.sum[METRIC_SAMPLES]);
  report.metrics = list;
  statistics_eval_values(statistics, &totals, of);
  for (int m = 0; m < set->n; m++) {
    Weir__MetricValue *value = &values[report.n_metrics];
    if (strcmp(set->items[m]->name, "accuracy") == 0) {
      report.accuracy = of[m];
      continue;
    }
    weir__metric_value__init(value);
    value->name = (char *)set->items[m]->name;
    value->value = of[m];
    list[report.n_metrics++] = value;
  }
  report_log_add_eval(&run->log, &report);
}

void hosted_run_finish_block(struct hosted_run *run) {
  if (__atomic_sub_fetch(&run->n_unfinished, 1, __ATOMIC_ACQ_REL) == 0)
    report_log_complete(&run->log);
}

bool hosted_run_is_finished(const struct hosted_run *run) {
  return __atomic_load_n(&run->n_unfinished, __ATOMIC_ACQUIRE) == 0;
}
