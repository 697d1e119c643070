/* HOST:PORT, or unix:/PATH: whether it is one, whether it is on this machine, why a server cannot listen
 * there. */
#ifndef WEIR_COMMON_RPC_ADDRESS_H
#define WEIR_COMMON_RPC_ADDRESS_H

#include <stdbool.h>

#include "common/base/err.h"

/* Errors: INVALID if the text is neither HOST:PORT (gRPC would guess a port) nor what unix_socket_check
 * takes. */
int rpc_address_check(const char *address, struct err *err);

/* Likewise for one or several, separated by commas. */
int rpc_addresses_check(const char *addresses, struct err *err);

/* Whether an address is on this machine and nowhere else: localhost, a literal of 127.0.0.0/8 or [::1], or a
   socket in the file system. No other name is, whatever it resolves to: it may resolve to something else the
   next time. */
bool rpc_address_is_loopback(const char *address);

/* After listening failed, whose cause gRPC keeps to itself: tries to bind, and returns UNAVAILABLE with the
   address and the cause. */
int rpc_address_explain(const char *address, struct err *err);

#endif
