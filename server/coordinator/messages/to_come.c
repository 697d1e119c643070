/* Checkpoints that are made or to be made, versions that are computed later, and ends. */
#include "server/coordinator/messages/to_come.h"

#include "server/coordinator/state/run.h"

/* So many evaluations are looked at to tell when a run may end at the earliest. */
enum { EVALUATIONS_AHEAD_MAX = 64 };

static bool is_committed(const struct run *run, uint64_t step) {
  for (int i = 0; i < run->n_checkpoints; i++)
    if (run->checkpoints[i]->step == step)
      return true;
  return false;
}

/* Where it computes nothing more for now: its hold or its end. */
static uint64_t last_for_now(const struct run *run) {
  uint64_t hold = coordinator_run_hold(run), last = coordinator_last_version(run);
  return hold < last ? hold : last;
}

bool coordinator_checkpoint_is_coming(const struct coordinator *coordinator, const char *id,
                                      const uint64_t *wanted, uint64_t *step) {
  const struct run *run = coordinator_run(coordinator, id);
  const uint64_t versions[] = {run ? last_for_now(run) : 0, run ? run->checkpointing.step : 0};
  if (!run || !coordinator_has_blocks(run))
    return false;
  for (int i = 0; i < 2; i++) {
    *step = versions[i];
    if (*step > 0 && run->step >= *step && !is_committed(run, *step) && (wanted ? *step == *wanted : i == 0))
      return true;
  }
  return false;
}

bool coordinator_version_is_to_come(const struct coordinator *coordinator, const char *id, uint64_t step) {
  const struct run *run = coordinator_run(coordinator, id);
  if (!run || coordinator_is_over(run) || !plan_is_known(&run->plan) || step > run->plan.steps ||
      plan_boundary(&run->plan, step) != step)
    return false;
  return step > run->step || (step == run->step && (run->pin == step || run->origin.is_to_come));
}

bool coordinator_needs_parent(const struct coordinator *coordinator, const char *id) {
  const struct run *run = coordinator_run(coordinator, id);
  return run && !coordinator_is_over(run) && (run->origin.is_to_come || run->is_adopting);
}

bool coordinator_plan_is_to_come(const struct coordinator *coordinator, const char *id) {
  const struct run *run = coordinator_run(coordinator, id);
  return run && !coordinator_is_over(run) && !plan_is_known(&run->plan);
}

bool coordinator_checkpoint_comes_again(const struct coordinator *coordinator, const char *id,
                                        uint64_t step) {
  const struct run *run = coordinator_run(coordinator, id);
  return run && !coordinator_is_over(run) && run->state != WEIR__RUN_STATE__PAUSED &&
         !is_committed(run, step) && (last_for_now(run) == step || run->checkpointing.step == step);
}

uint64_t coordinator_earliest_end(const struct coordinator *coordinator, const char *id) {
  const struct run *run = coordinator_run(coordinator, id);
  const Weir__EarlyStoppingSpec *stopping = run ? run->spec->train->early_stopping : NULL;
  uint32_t left;
  uint64_t version;
  if (!run || !plan_is_known(&run->plan))
    return 0;
  if (!stopping)
    return UINT64_MAX;
  if (run->patience.last_step)
    return run->patience.last_step;
  version = run->patience.step;
  left = stopping->patience - run->patience.waited;
  for (uint32_t i = 0; i < left && i < EVALUATIONS_AHEAD_MAX && version < run->plan.steps; i++)
    version = plan_next_evaluated(&run->plan, version + 1);
  return version;
}
