/* The table of schedulers, and the order of trials at a rung. */
#include "common/sweep/scheduler.h"

#include <stdlib.h>

#include "common/base/def_table.h"
#include "common/base/memory.h"

#define SCHEDULER(name) extern const struct scheduler_def scheduler_##name;
#include "common/sweep/scheduler.def"
#undef SCHEDULER

static const struct scheduler_def *const defs[] = {
#define SCHEDULER(name) &scheduler_##name,
#include "common/sweep/scheduler.def"
#undef SCHEDULER
};
static const struct def_table schedulers = DEF_TABLE(defs);

const struct scheduler_def *scheduler_at(int index) {
  return def_at(&schedulers, index);
}

const struct scheduler_def *scheduler_find(const Weir__SweepSpec *spec) {
  return def_find(&schedulers, spec->schedule->name);
}

static int check_no_perturbation(const Weir__SweepSchedule *schedule, struct err *err) {
  const char *key = schedule->has_quantile               ? "quantile"
                    : schedule->n_perturb                ? "perturb"
                    : schedule->has_resample_probability ? "resample_probability"
                    : schedule->has_burn_in              ? "burn_in"
                                                         : NULL;
  return key ? err_set(err, ERR_INVALID, "schedule.%s: '%s' replaces no trials; pbt does", key,
                       schedule->name)
             : 0;
}

int scheduler_check(const Weir__SweepSpec *spec, struct err *err) {
  const Weir__SweepSchedule *schedule = spec->schedule;
  const struct scheduler_def *scheduler = scheduler_find(spec);
  char known[DEF_NAMES_SIZE];
  if (!scheduler)
    return err_set(err, ERR_INVALID, "schedule.name: unknown scheduler '%.60s'; known: %s", schedule->name,
                   def_names(&schedulers, ", ", known));
  if (scheduler->wants_rungs && schedule->n_rungs == 0 && !schedule->has_interval)
    return err_set(err, ERR_INVALID,
                   "schedule.rungs: '%s' compares trials at rungs: give their steps, as [100, 300, 900], or "
                   "schedule.interval",
                   schedule->name);
  if (!scheduler->exploit && check_no_perturbation(schedule, err))
    return err->code;
  return scheduler->check ? scheduler->check(spec, err) : 0;
}

bool scheduler_is_better(const struct sweep_trial *a, const struct sweep_trial *b, int rung) {
  bool has_a = rung < a->n_results, has_b = rung < b->n_results;
  if (has_a != has_b)
    return has_a;
  if (has_a && a->results[rung].value != b->results[rung].value)
    return a->results[rung].value < b->results[rung].value;
  return a->number < b->number;
}

/* The failed trial would have come to the rung next. */
static bool has_come(const struct sweep_trial *trial, int rung) {
  return rung < trial->n_results || (trial->state == SWEEP_TRIAL_FAILED && rung == trial->n_results);
}

struct ranking {
  const struct sweep *sweep;
  int rung;
};

static int compare(const void *a, const void *b, void *user) {
  const struct ranking *ranking = user;
  const struct sweep_trial *trials = ranking->sweep->trials;
  return scheduler_is_better(&trials[*(const int *)a], &trials[*(const int *)b], ranking->rung) ? -1 : 1;
}

void scheduler_sort(const struct sweep *sweep, int rung, int *trials, int n) {
  struct ranking ranking = {sweep, rung};
  qsort_r(trials, (size_t)n, sizeof *trials, compare, &ranking);
}

int scheduler_rank(const struct sweep *sweep, int rung, int *out) {
  int n = 0;
  for (int i = 0; i < sweep->n_trials; i++)
    if (has_come(&sweep->trials[i], rung))
      out[n++] = i;
  scheduler_sort(sweep, rung, out, n);
  return n;
}

bool scheduler_waits(const struct sweep_trial *trial, int rung) {
  return trial->state == SWEEP_TRIAL_WAITING && trial->n_results == rung + 1;
}
