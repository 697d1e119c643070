/* Whether the workers of a private cluster can compute a model in its stages. */
#ifndef WEIR_CLIENT_CLUSTER_TEAMS_CHECK_H
#define WEIR_CLIENT_CLUSTER_TEAMS_CHECK_H

#include "client/cluster/connect.h"
#include "spec.pb-c.h"

/* All workers that there will be have joined. Errors: INVALID, in one line, where none has as many executors
   as there are stages, and too few have equally many to make a team; those of the call. */
int teams_check(struct connection *connection, const Weir__WorkersSpec *spec, struct err *err);

#endif
