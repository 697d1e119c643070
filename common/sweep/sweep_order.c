/* In which order the results of a sweep are decided upon. */
#include "common/sweep/sweep_order.h"

/* The share of its way to the rung that a run has left out, or, while it is on it, may leave out yet. */
static double share_left(const struct sweep_trial *trial, uint32_t repeat) {
  const struct sweep_repeat *run = trial->repeats ? &trial->repeats[repeat] : NULL;
  if (!run)
    return 1;
  return run->is_told ? run->outcome.spared : run->left;
}

double sweep_end_of(const struct sweep_trial *trial, double spared) {
  return spared > 0 ? trial->began + (trial->end - trial->began) * (1 - spared) : trial->end;
}

/* When it comes to its rung, in virtual time; of one whose outcome is not known, not before that. */
static double find_end(const struct sweep *sweep, const struct sweep_trial *trial) {
  double left = 0; /* the sum that becomes known_spared */
  if (trial->is_known || !trial->may_end_early)
    return sweep_end_of(trial, trial->known_spared);
  for (uint32_t r = 0; r < sweep->spec->repeats; r++)
    left += share_left(trial, r);
  return sweep_end_of(trial, left / sweep->spec->repeats);
}

/* Whether the result of a is to be decided upon before that of b, which has the higher number. */
static bool comes_before(const struct sweep *sweep, const struct sweep_trial *a,
                         const struct sweep_trial *b) {
  if (!sweep->is_by_arrival)
    return find_end(sweep, a) <= find_end(sweep, b);
  return a->is_known && (!b->is_known || a->told < b->told);
}

const struct sweep_trial *sweep_find_earliest(const struct sweep *sweep) {
  const struct sweep_trial *earliest = NULL;
  for (int i = 0; i < sweep->n_trials; i++) {
    const struct sweep_trial *trial = &sweep->trials[i];
    if (trial->state == SWEEP_TRIAL_RUNNING && (!earliest || !comes_before(sweep, earliest, trial)))
      earliest = trial;
  }
  return earliest;
}

static bool is_one_known(const struct sweep *sweep) {
  for (int i = 0; i < sweep->n_trials; i++)
    if (sweep->trials[i].state == SWEEP_TRIAL_RUNNING && sweep->trials[i].is_known)
      return true;
  return false;
}

bool sweep_tell_left(struct sweep *sweep, uint32_t number, int rung, uint32_t repeat, double left) {
  struct sweep_trial *trial = number < (uint32_t)sweep->n_trials ? &sweep->trials[number] : NULL;
  if (!trial || trial->state != SWEEP_TRIAL_RUNNING || rung != trial->n_results || trial->is_known ||
      !trial->may_end_early || repeat >= sweep->spec->repeats || sweep_is_told(trial, repeat) ||
      !(left < share_left(trial, repeat) && left >= 0))
    return false;
  sweep_trial_repeats(sweep, trial)[repeat].left = left;
  return !sweep->is_by_arrival && is_one_known(sweep);
}
