/* When a run lets go of a seat. */
#ifndef WEIR_SERVER_COORDINATOR_CORE_LENDING_H
#define WEIR_SERVER_COORDINATOR_CORE_LENDING_H

#include <stdbool.h>

#include "server/coordinator/state/seat.h"

struct coordinator;
struct run;

/* The worker loads or follows the run, or computes for it, is not stuck, and reaches the run's servers. */
bool lending_is_held(const struct coordinator *coordinator, const struct seat *seat);
/* It is held, by a run that claims workers. */
bool lending_is_of_use(const struct coordinator *coordinator, const struct seat *seat);
bool lending_has_work(const struct seat *seat);
/* Whether seats with work may be taken from the run: not again before it has completed a step since. Within
   one settling any number may go. */
bool lending_may_be_cut(const struct run *run);
/* Whether the seat may be taken for `run`: its own run may be cut, is not within its turn, and has had it for
   a while. */
bool lending_may_take(const struct coordinator *coordinator, const struct seat *seat, const struct run *run);
/* The worker is told to rest the run. */
void lending_take_back(struct coordinator *coordinator, struct seat *seat, const char *reason);

#endif
