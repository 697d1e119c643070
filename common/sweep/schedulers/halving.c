/* Successive halving (Jamieson and Talwalkar, 2016): budget.trials begin, and are one bracket. */
#include "common/sweep/bracket.h"
#include "common/sweep/scheduler.h"

static int halving_check(const Weir__SweepSpec *spec, struct err *err) {
  return spec->budget->has_trials
             ? 0
             : err_set(err, ERR_INVALID, "budget.trials: halving begins with so many trials: give it");
}

static int find(const struct sweep *sweep, bool goes_on) {
  return bracket_find(sweep, &(struct bracket){.n = (int)sweep->spec->budget->trials}, goes_on);
}

static int halving_stop(const struct sweep *sweep) {
  return find(sweep, false);
}

static int halving_promote(const struct sweep *sweep) {
  return find(sweep, true);
}

const struct scheduler_def scheduler_halving = {.name = "halving",
                                                .wants_rungs = true,
                                                .begins_whole = true,
                                                .check = halving_check,
                                                .stop = halving_stop,
                                                .promote = halving_promote};
