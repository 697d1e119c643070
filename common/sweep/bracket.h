/* Brackets of successive halving. */
#ifndef WEIR_COMMON_SWEEP_BRACKET_H
#define WEIR_COMMON_SWEEP_BRACKET_H

#include <stdbool.h>

#include "common/sweep/sweep.h"

/* Trials that are compared with each other. All of them go on from the rungs before `begin`; from the others
   the best 1/eta do, and at least one, once none is missing there. */
struct bracket {
  int first, n; /* their numbers: first, first + 1, ...; those at the end may not have begun */
  int begin;
};

/* The number of a trial of the bracket that waits at a rung, and of which is decided that it goes on, or that
   it does not; -1: there is none. */
int bracket_find(const struct sweep *sweep, const struct bracket *bracket, bool goes_on);

#endif
