/* In which order the results of a sweep are decided upon: in virtual time, or as they arrive. */
#ifndef WEIR_COMMON_SWEEP_SWEEP_ORDER_H
#define WEIR_COMMON_SWEEP_SWEEP_ORDER_H

#include "common/sweep/sweep.h"

/* The trial whose result is decided upon next. Where its outcome is not known yet, no other one may be: it
   may come before them. NULL: none runs. */
const struct sweep_trial *sweep_find_earliest(const struct sweep *sweep);

/* When what a trial computes now ends in virtual time, if it leaves out such a share of it. */
double sweep_end_of(const struct sweep_trial *trial, double spared);

/* What is told of its runs; made where there is nothing yet. */
struct sweep_repeat *sweep_trial_repeats(const struct sweep *sweep, struct sweep_trial *trial);

#endif
