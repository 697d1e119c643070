/* Whether a worker may be in a group of its run, and with whom (train.collective). */
#ifndef WEIR_SERVER_COORDINATOR_SHARES_COMPANIONS_H
#define WEIR_SERVER_COORDINATOR_SHARES_COMPANIONS_H

#include "server/coordinator/state/seat.h"

/* The host with whose other workers this one may be in a group; NULL: it goes alone. It does beside other
   runs. By auto workers on CPUs are in groups, where a server of the run shares no memory with the worker:
   else nothing travels that a group could save. */
const char *coordinator_group_host(const struct seat *seat);

/* Whether its run has the worker to itself, as it is in a team, or in a group that the spec names. That of
   auto ends when another run gets a seat on the worker. */
bool coordinator_is_bound(const struct seat *seat);

#endif
