/* gRPC's credentials: what a port asks of its clients, a channel of its server, and how each proves itself.
   tls NULL: plaintext. */
#ifndef WEIR_COMMON_RPC_CREDENTIALS_H
#define WEIR_COMMON_RPC_CREDENTIALS_H

#include <grpc/grpc_security.h>

#include "common/rpc/guard.h"

/* Of channels: the server needs a certificate of our authorities that the guard lets pass. Its name is the
   channel's to ask for.
   Follows the files by a thread of gRPC's. */
grpc_channel_credentials *rpc_channel_credentials(const struct rpc_tls *tls, struct rpc_guard *guard);

/* Of ports: a client without a certificate of our authorities is refused in the handshake. */
struct rpc_port_keys;
struct rpc_port_keys *rpc_port_keys_new(const struct rpc_tls *tls); /* one for each port */
void rpc_port_keys_free(struct rpc_port_keys *keys);                /* after the server; NULL is ignored */
grpc_server_credentials *rpc_server_credentials(struct rpc_port_keys *keys);

#endif
