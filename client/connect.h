/* The client's connection to a coordinator, with errors that say what to do. */
#ifndef WEIR_CLIENT_CONNECT_H
#define WEIR_CLIENT_CONNECT_H

#include "common/rpc/client.h"

struct connection {
  struct rpc_client *client;
  struct rpc_channel *channel;
};

/* address: HOST:PORT. Nothing is sent yet. Errors: INVALID for an address without a port. */
int connection_open(struct connection *connection, const char *address, struct err *err);
void connection_close(struct connection *connection); /* safe on a zeroed one; its calls must have ended */

/* One unary call with the client's deadline of ten seconds, as rpc_unary. Errors: UNAVAILABLE and TIMEOUT are
   worded for people: which coordinator, why, what to do. */
int connection_call(struct connection *connection, enum rpc_method_id method, const void *request,
                    void **reply, struct err *err);

/* Rewords an UNAVAILABLE or TIMEOUT of any other call to this coordinator likewise; other codes are left. */
void connection_explain(const struct rpc_channel *channel, struct err *err);

#endif
