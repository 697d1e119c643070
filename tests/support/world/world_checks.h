/* What orders of the core promise, in the simulated cluster of world.h. What breaks a promise
   fails the test. */
#ifndef WEIR_TESTS_SUPPORT_WORLD_WORLD_CHECKS_H
#define WEIR_TESTS_SUPPORT_WORLD_WORLD_CHECKS_H

#include "tests/support/world/world.h"

/* Of an order to the process, as it is given; NULL: a process whose link broke unknown to the core. */
void check_order(struct world *w, struct process *process, const Weir__Order *order);

/* All views of an event together, after the event: they give each microbatch once, or they give nothing, to
   who is cut off or follows. */
void check_given(struct world *w);

/* Who does not reach all servers of a run that trains is given nothing only while others compute, or are
   about to. Counts in what states workers are seen. */
void check_reach(struct world *w, const char *run);

/* Of a run that is done: whoever watched has seen every step, every evaluation, and the end at the right
   number. */
void check_told(struct world *w, int run);

#endif
