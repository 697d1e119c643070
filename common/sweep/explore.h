/* Values of a trial that is forked from another. */
#ifndef WEIR_COMMON_SWEEP_EXPLORE_H
#define WEIR_COMMON_SWEEP_EXPLORE_H

#include "common/sweep/sweep.h"

/* Writes the point of trial `number`, double[n], as space_holds says: that of its parent with each value
   perturbed (Jaderberg et al., 2017, section 3; as Ray Tune does). With the probability of
   schedule.resample_probability a value is drawn anew. Else a number is multiplied by one of
   schedule.perturb and stays between its bounds, with a step it moves by at least one; a choice goes to the
   one before or behind it. What becomes active is drawn. A pure function of the seed, the number and the
   parent. */
void explore(const struct sweep *sweep, uint32_t number, const struct sweep_trial *parent, double *point);

/* Which of n the fork `number` is to have as its parent. */
uint32_t explore_parent(const struct sweep *sweep, uint32_t number, uint32_t n);

#endif
