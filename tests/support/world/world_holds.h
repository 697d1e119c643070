/* Runs of a world that are held: some begin with a hold, which people raise at any time. And runs that may
   end early: some have train.early_stopping. */
#ifndef WEIR_TESTS_SUPPORT_WORLD_WORLD_HOLDS_H
#define WEIR_TESTS_SUPPORT_WORLD_WORLD_HOLDS_H

#include "tests/support/world/world.h"

/* Gives the world's spec a hold, in some worlds. */
void holds_begin(struct world *w);

/* Raises the run's hold to a version at which it may be held, or ends it. A run without one stays as it is.
 */
void people_raise(struct world *w, int run);

/* This, or other settings (people_set). */
void people_change(struct world *w, int run);

/* Servers. At the hold: nothing is applied. */
bool is_held(const struct hosted *hosted);
/* Tells RunHeld if it is. */
void server_tell_held(struct world *w, struct process *server, int run);
/* It is told this hold (0: none). A lower one than before, which changes nothing, comes only from a successor
   that does not know yet of evaluations that let the run go on. */
void server_told_hold(struct world *w, struct process *server, int run, uint64_t hold);
/* Of the version at which it is held, where a worker computes for the run. */
void server_evaluate_held(struct world *w, struct process *server, int run);

/* Gives the world's spec train.early_stopping, in some worlds. */
void early_stopping_begin(struct world *w);

/* The version that the run is to end with, by what evaluations say of the versions (accuracy_at). */
uint64_t early_stopping_last(const struct world *w, int run);

#endif
