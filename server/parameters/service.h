/* The methods of the Parameters service: they check messages and hand them to the shard of their block. */
#ifndef WEIR_SERVER_PARAMETERS_SERVICE_H
#define WEIR_SERVER_PARAMETERS_SERVICE_H

#include "common/rpc/server.h"
#include "server/parameters/load/run_table.h"

/* The service over the runs of a table, which outlives it. */
struct rpc_service service_over(struct run_table *runs);

#endif
