/* Steps, samples and epochs. */
#include "common/sweep/sweep_unit.h"

#include <string.h>

#include "common/agree/plan.h"

static const char *const names[] = {
    [SWEEP_STEPS] = "steps", [SWEEP_SAMPLES] = "samples", [SWEEP_EPOCHS] = "epochs"};

bool sweep_unit_find(const char *name, enum sweep_unit *out) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(name, names[i]) == 0) {
      *out = (enum sweep_unit)i;
      return true;
    }
  return false;
}

enum sweep_unit sweep_unit_of(const Weir__SweepSchedule *schedule) {
  enum sweep_unit unit = SWEEP_STEPS;
  if (schedule && schedule->unit)
    sweep_unit_find(schedule->unit, &unit);
  return unit;
}

const char *sweep_unit_one(enum sweep_unit unit) {
  static const char *const ones[] = {
      [SWEEP_STEPS] = "step", [SWEEP_SAMPLES] = "sample", [SWEEP_EPOCHS] = "epoch"};
  return ones[unit];
}

uint64_t sweep_unit_step(enum sweep_unit unit, uint64_t count, uint32_t batch, uint64_t train_samples) {
  if (unit == SWEEP_STEPS || batch == 0)
    return count;
  return unit == SWEEP_SAMPLES ? count / batch + (count % batch > 0)
                               : plan_epochs_end((double)count, train_samples, batch);
}
