/* The streams by which workers of this host share memory with the server: methods of the Parameters service.
 */
#ifndef WEIR_SERVER_PARAMETERS_SERVICE_SHARE_H
#define WEIR_SERVER_PARAMETERS_SERVICE_SHARE_H

#include "server/parameters/load/run_table.h"

/* A reference to the share that a call names, if it is of the caller's worker; NULL: it is not, or is over.
 */
struct share *service_find_share(const struct rpc_call *rpc, struct hosted_run *run, uint64_t id);

void service_on_share(struct rpc_call *rpc, const void *message, struct rpc_bytes *bytes);
void service_on_share_half_close(struct rpc_call *rpc);
void service_on_share_closed(struct rpc_call *rpc);

#endif
