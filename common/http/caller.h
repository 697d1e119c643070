/* Who asks by TLS. */
#ifndef WEIR_COMMON_HTTP_CALLER_H
#define WEIR_COMMON_HTTP_CALLER_H

#include "common/rpc/guard.h"

struct MHD_Connection;

/* *guest: whose certificate the connection has shown, to be put by the caller; NULL: none. Errors: DENIED
   without one, or for one that is not of our authorities; those of rpc_guard_check. */
int http_caller_check(struct rpc_guard *guard, struct MHD_Connection *connection, struct rpc_guest **guest,
                      struct err *err);

#endif
