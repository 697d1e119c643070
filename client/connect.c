/* The client's connection to a coordinator. */
#include "client/connect.h"

#include <stdio.h>
#include <string.h>

enum { CALL_DEADLINE_MS = 10000, CLIENT_THREADS = 1 };

int connection_open(struct connection *connection, const char *address, struct err *err) {
  const char *colon = strrchr(address, ':');
  *connection = (struct connection){0};
  if (!colon || colon == address || strspn(colon + 1, "0123456789") != strlen(colon + 1) || !colon[1])
    return err_set(err, ERR_INVALID, "the coordinator's address '%s' is not HOST:PORT", address);
  rpc_init();
  connection->client = rpc_client_new(CLIENT_THREADS);
  connection->channel = rpc_channel_open(connection->client, address);
  return ERR_OK;
}

void connection_close(struct connection *connection) {
  if (!connection->client)
    return;
  rpc_channel_close(connection->channel);
  rpc_client_free(connection->client);
  rpc_fini();
  *connection = (struct connection){0};
}

int connection_call(struct connection *connection, enum rpc_method_id method, const void *request,
                    void **reply, struct err *err) {
  if (rpc_unary(connection->channel, method, request, CALL_DEADLINE_MS, false, reply, err))
    connection_explain(connection->channel, err);
  return err->code;
}

void connection_explain(const struct rpc_channel *channel, struct err *err) {
  const char *target = rpc_channel_target(channel), *why = err->text;
  char text[sizeof err->text];
  if (err->code != ERR_UNAVAILABLE && err->code != ERR_TIMEOUT)
    return;
  if (strncmp(why, target, strlen(target)) == 0 && strncmp(why + strlen(target), ": ", 2) == 0)
    why += strlen(target) + 2;
  snprintf(text, sizeof text, "%s", why);
  err_set(err, err->code,
          "cannot reach the coordinator at %s: %s; start one with `weir-server --role=all` or pass "
          "--coordinator HOST:PORT",
          target, text);
}
