/* The client's connection to a coordinator. Of several it takes the one that leads. Errors say what to do. */
#ifndef WEIR_CLIENT_CLUSTER_CONNECT_H
#define WEIR_CLIENT_CLUSTER_CONNECT_H

#include "common/rpc/client.h"

enum { CONNECTION_ADDRESSES_MAX = 8 };

struct connection {
  struct rpc_tls *tls;
  struct rpc_client *client;
  struct rpc_channel *channel; /* the present one */
  struct rpc_channel *channels[CONNECTION_ADDRESSES_MAX];
  int n_channels;
};

/* addresses: HOST:PORT, or several separated by commas: a coordinator and its standbys. Nothing is
   sent yet. Errors: INVALID for an address without a port, or more than CONNECTION_ADDRESSES_MAX; those of
   rpc_security_check and rpc_tls_open. */
int connection_open(struct connection *connection, const char *addresses, const struct rpc_security *security,
                    struct err *err);
/* The same to the process at one address that may be any member. */
int connection_open_member(struct connection *connection, const char *address,
                           const struct rpc_security *security, struct err *err);
void connection_close(struct connection *connection); /* safe on a zeroed one; its calls must have ended */

/* One unary call with the client's deadline of ten seconds, as rpc_unary. Where several addresses are known,
   each is asked until one does not say UNAVAILABLE; that one is the present channel then. Errors: UNAVAILABLE
   and TIMEOUT are worded for people: which coordinator, why, what to do. */
int connection_call(struct connection *connection, enum rpc_method_id method, const void *request,
                    void **reply, struct err *err);
/* The same with the question's own deadline. */
int connection_ask(struct connection *connection, const struct rpc_question *question, void **reply,
                   struct err *err);

/* Before a stream: makes the leader's channel the present one, where several addresses are known. */
void connection_find_leader(struct connection *connection);

/* Rewords an UNAVAILABLE or TIMEOUT of any other call of this connection likewise, unless a coordinator has
   answered that; other codes are left. */
void connection_explain(const struct connection *connection, struct err *err);

#endif
