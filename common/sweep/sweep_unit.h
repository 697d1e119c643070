/* What a sweep's rungs and its budget count: schedule.unit. */
#ifndef WEIR_COMMON_SWEEP_SWEEP_UNIT_H
#define WEIR_COMMON_SWEEP_SWEEP_UNIT_H

#include <stdbool.h>
#include <stdint.h>

#include "sweep.pb-c.h"

enum sweep_unit { SWEEP_STEPS, SWEEP_SAMPLES, SWEEP_EPOCHS };

/* Whether there is such a unit: "steps", "samples" or "epochs". */
bool sweep_unit_find(const char *name, enum sweep_unit *out);

/* Of a schedule that was checked; steps, where it is NULL or names none. */
enum sweep_unit sweep_unit_of(const Weir__SweepSchedule *schedule);

const char *sweep_unit_one(enum sweep_unit unit); /* "step" */

/* The version at which a run stands after so many of the unit. By samples it is the first that has seen so
   many. By epochs it is the last that is made of these epochs alone, as that of train.epochs. batch: samples
   of a step; train_samples: of an epoch, 0 where that is not known, and the version is 0 then. */
uint64_t sweep_unit_step(enum sweep_unit unit, uint64_t count, uint32_t batch, uint64_t train_samples);

#endif
