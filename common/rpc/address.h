/* HOST:PORT, and why a server cannot listen there. */
#ifndef WEIR_COMMON_RPC_ADDRESS_H
#define WEIR_COMMON_RPC_ADDRESS_H

#include "common/base/err.h"

/* Errors: INVALID if the text is not HOST:PORT (gRPC would guess a port). */
int rpc_address_check(const char *address, struct err *err);

/* Likewise for one or several, separated by commas. */
int rpc_addresses_check(const char *addresses, struct err *err);

/* After listening failed, whose cause gRPC keeps to itself: tries to bind, and returns UNAVAILABLE with the
   address and the cause. */
int rpc_address_explain(const char *address, struct err *err);

#endif
