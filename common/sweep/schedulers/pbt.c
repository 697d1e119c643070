/* Population based training (Jaderberg et al., 2017), with truncation selection as in Ray Tune. The
   population is budget.trials. Once all of it have come to a rung, the worst ones there, and those that have
   failed, are replaced by forks of the best ones; then all go on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/sweep/explore.h"
#include "common/sweep/scheduler.h"

/* The trials that are compared at a rung. */
struct population {
  int *members; /* numbers, the best first, those that failed last */
  int n;
  int n_best;  /* of which those that are replaced are forks */
  int n_worst; /* that are replaced */
};

static int check_range(bool has, double value, const char *key, const double range[2], struct err *err) {
  return !has || (value >= range[0] && value <= range[1])
             ? 0
             : err_set(err, ERR_INVALID, "schedule.%s: %g is not from %g to %g", key, value, range[0],
                       range[1]);
}

static int pbt_check(const Weir__SweepSpec *spec, struct err *err) {
  const Weir__SweepSchedule *schedule = spec->schedule;
  const Weir__SweepBudget *budget = spec->budget;
  uint64_t first = schedule->n_rungs ? schedule->rungs[0] : schedule->interval;
  if (!budget->has_trials || budget->trials < 2)
    return err_set(err, ERR_INVALID, "budget.trials: the population has so many trials: give at least 2");
  if (strcmp(spec->search->name, "grid") == 0)
    return err_set(
        err, ERR_INVALID,
        "search.name: a grid ends, and pbt begins with budget.trials of trials: use another searcher");
  for (size_t i = 0; i < schedule->n_perturb; i++)
    if (!(schedule->perturb[i] > 0 && isfinite(schedule->perturb[i])))
      return err_set(err, ERR_INVALID, "schedule.perturb: %g is no factor above 0", schedule->perturb[i]);
  if (check_range(schedule->has_quantile, schedule->quantile, "quantile", (const double[]){0, 0.5}, err) ||
      check_range(schedule->has_resample_probability, schedule->resample_probability, "resample_probability",
                  (const double[]){0, 1}, err))
    return err->code;
  if (budget->has_steps && budget->steps / budget->trials / spec->repeats < first)
    return err_set(
        err, ERR_INVALID,
        "budget.steps: %llu steps do not take the %u trials of the population to the first rung, at "
        "step %llu%s",
        (unsigned long long)budget->steps, budget->trials, (unsigned long long)first,
        spec->repeats > 1 ? ", in all repeats" : "");
  return 0;
}

/* It was to come to the rung, and was not replaced before. */
static bool is_member(const struct sweep_trial *trial, int rung) {
  if (trial->begin > rung)
    return false;
  return trial->n_results > rung ||
         (trial->state == SWEEP_TRIAL_FAILED && (trial->replaced < 0 || trial->replaced >= rung));
}

/* Freed by the caller. The same until all who are to be replaced are, and after that. */
static struct population gather(const struct sweep *sweep, int rung) {
  const Weir__SweepSchedule *schedule = sweep->spec->schedule;
  struct population population = {.members = mem_new((size_t)sweep->n_trials * sizeof(int) + 1)};
  int n_failed = 0, quantile;
  for (int i = 0; i < sweep->n_trials; i++) {
    const struct sweep_trial *trial = &sweep->trials[i];
    if (!is_member(trial, rung))
      continue;
    population.members[population.n++] = i;
    n_failed += trial->n_results <= rung;
  }
  scheduler_sort(sweep, rung, population.members, population.n);
  quantile = (int)ceil(population.n * schedule->quantile - 1e-9);
  if (quantile > population.n / 2)
    quantile = population.n / 2;
  population.n_best = quantile > population.n - n_failed ? population.n - n_failed : quantile;
  if (population.n_best == 0 && n_failed > 0)
    population.n_best = 1;
  population.n_worst = quantile > n_failed ? quantile : n_failed;
  if (population.n_worst > population.n - population.n_best)
    population.n_worst = population.n - population.n_best;
  return population;
}

/* The lowest rung at which a trial waits, if nobody is to come there any more; -1: there is none. */
static int find_rung(const struct sweep *sweep) {
  int rung = sweep->n_rungs, n_begun = 0;
  for (int i = 0; i < sweep->n_trials; i++) {
    const struct sweep_trial *trial = &sweep->trials[i];
    n_begun += trial->parent < 0;
    if (trial->state == SWEEP_TRIAL_WAITING && trial->n_results - 1 < rung)
      rung = trial->n_results - 1;
  }
  for (int i = 0; i < sweep->n_trials; i++)
    if (sweep->trials[i].state == SWEEP_TRIAL_RUNNING && sweep->trials[i].n_results <= rung)
      return -1;
  return rung < sweep->n_rungs && (uint32_t)n_begun == sweep->spec->budget->trials ? rung : -1;
}

static bool pbt_exploit(const struct sweep *sweep, struct exploit *out) {
  int rung = find_rung(sweep);
  struct population population;
  bool is_found = false;
  if (rung < 0 || sweep->rungs[rung] < sweep->spec->schedule->burn_in)
    return false;
  population = gather(sweep, rung);
  for (int i = population.n - population.n_worst; i < population.n && !is_found; i++) {
    const struct sweep_trial *trial = &sweep->trials[population.members[i]];
    if (trial->replaced >= 0)
      continue;
    *out = (struct exploit){.replaced = population.members[i], .rung = rung};
    out->parent =
        population.members[explore_parent(sweep, (uint32_t)sweep->n_trials, (uint32_t)population.n_best)];
    is_found = true;
  }
  free(population.members);
  return is_found;
}

static int pbt_promote(const struct sweep *sweep) {
  int rung = find_rung(sweep);
  for (int i = 0; i < sweep->n_trials && rung >= 0; i++)
    if (scheduler_waits(&sweep->trials[i], rung))
      return i;
  return -1;
}

const struct scheduler_def scheduler_pbt = {.name = "pbt",
                                            .wants_rungs = true,
                                            .begins_whole = true,
                                            .check = pbt_check,
                                            .promote = pbt_promote,
                                            .exploit = pbt_exploit};
