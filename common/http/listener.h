/* A listening socket for HOST:PORT. */
#ifndef WEIR_COMMON_HTTP_LISTENER_H
#define WEIR_COMMON_HTTP_LISTENER_H

#include "common/base/err.h"

/* Binds the first address of the host that can be bound. *fd does not block; its owner closes it. address:
   one that rpc_address_check has taken, and no Unix socket. Errors: UNAVAILABLE, naming address and cause. */
int http_listen(const char *address, int *fd, int *port, struct err *err);

#endif
