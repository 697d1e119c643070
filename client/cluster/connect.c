/* The client's connection to a coordinator. */
#include "client/cluster/connect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/rpc/address.h"
#include "training.pb-c.h"

/* How, and to whom. */
struct way {
  const struct rpc_security *security;
  enum rpc_peer peer;
};

enum { CALL_DEADLINE_MS = 10000, FIND_DEADLINE_MS = 3000, CLIENT_THREADS = 1 };

static int connection_open_peer(struct connection *connection, const char *addresses, const struct way *way,
                                struct err *err);
static bool says_why(const struct rpc_channel *channel, const struct err *err);
static void explain_reach(const struct connection *connection, struct err *err);

int connection_open(struct connection *connection, const char *addresses, const struct rpc_security *security,
                    struct err *err) {
  return connection_open_peer(connection, addresses, &(struct way){security, PEER_COORDINATOR}, err);
}

int connection_open_member(struct connection *connection, const char *address,
                           const struct rpc_security *security, struct err *err) {
  return connection_open_peer(connection, address, &(struct way){security, PEER_ANY}, err);
}

static int connection_open_peer(struct connection *connection, const char *addresses, const struct way *way,
                                struct err *err) {
  char *list = mem_strdup(addresses), *rest = list, *address;
  const char *found[CONNECTION_ADDRESSES_MAX];
  int n = 0;
  *connection = (struct connection){0};
  while ((address = strsep(&rest, ",")) != NULL && err->code == ERR_OK) {
    if (rpc_address_check(address, err))
      break;
    if (n == CONNECTION_ADDRESSES_MAX)
      err_set(err, ERR_INVALID, "more than %d coordinators: '%s'", CONNECTION_ADDRESSES_MAX, addresses);
    else
      found[n++] = address;
  }
  if (err->code == ERR_OK && rpc_security_check(way->security, addresses, err) == 0 &&
      rpc_tls_open(way->security->folder, &connection->tls, err) == 0) {
    rpc_init();
    connection->client = rpc_client_new(CLIENT_THREADS, connection->tls);
    if (way->security->is_insecure)
      rpc_client_set_insecure(connection->client);
    for (int i = 0; i < n; i++)
      connection->channels[connection->n_channels++] =
          rpc_channel_open(connection->client, found[i], way->peer);
    connection->channel = connection->channels[0];
  }
  free(list);
  return err->code;
}

void connection_close(struct connection *connection) {
  if (!connection->client)
    return;
  for (int i = 0; i < connection->n_channels; i++)
    rpc_channel_close(connection->channels[i]);
  rpc_client_free(connection->client);
  rpc_fini();
  rpc_tls_close(connection->tls);
  *connection = (struct connection){0};
}

int connection_call(struct connection *connection, enum rpc_method_id method, const void *request,
                    void **reply, struct err *err) {
  return connection_ask(connection, &(struct rpc_question){method, request, CALL_DEADLINE_MS}, reply, err);
}

int connection_ask(struct connection *connection, const struct rpc_question *question, void **reply,
                   struct err *err) {
  struct rpc_channel *first = connection->channel;
  struct err told; /* the first one's; or why one that leads, or is to, cannot do it now */
  if (rpc_unary(first, question, false, reply, err) == 0)
    return ERR_OK;
  told = *err;
  for (int i = 0; i < connection->n_channels && err->code == ERR_UNAVAILABLE; i++) {
    struct rpc_channel *channel = connection->channels[i];
    if (channel == first)
      continue;
    *err = ERR_NONE;
    if (rpc_unary(channel, question, false, reply, err) != ERR_UNAVAILABLE)
      connection->channel = channel;
    else if (says_why(channel, err) && !says_why(connection->channel, &told)) {
      connection->channel = channel;
      told = *err;
    }
  }
  if (err->code == ERR_UNAVAILABLE)
    *err = told;
  connection_explain(connection, err);
  return err->code;
}

void connection_find_leader(struct connection *connection) {
  Weir__ListServersRequest request = WEIR__LIST_SERVERS_REQUEST__INIT;
  struct rpc_question question = {RPC_LIST_SERVERS, &request, FIND_DEADLINE_MS};
  Weir__ListServersReply *reply = NULL;
  struct err err = ERR_NONE;
  if (connection->n_channels > 1 && connection_ask(connection, &question, (void **)&reply, &err) == 0)
    weir__list_servers_reply__free_unpacked(reply, NULL);
}

/* What a coordinator that does not lead answers (server/coordinator/shell/threads/lease.c): the leader, or
 * NULL. */
static const char *leader_named_in(const char *why) {
  static const char standby[] = "a standby of ";
  const char *at = strstr(why, standby);
  return at ? at + strlen(standby) : NULL;
}

/* Whether a coordinator that leads, or is to, has answered that. */
static bool says_why(const struct rpc_channel *channel, const struct err *err) {
  return rpc_channel_has_answered(channel, err) && !leader_named_in(err->text);
}

void connection_explain(const struct connection *connection, struct err *err) {
  if (says_why(connection->channel, err))
    return;
  rpc_channel_explain(connection->channel, err);
  explain_reach(connection, err);
}

static void explain_reach(const struct connection *connection, struct err *err) {
  const char *target = rpc_channel_target(connection->channel), *why = err->text, *leader;
  char text[sizeof err->text], others[sizeof err->text] = "";
  if (err->code != ERR_UNAVAILABLE && err->code != ERR_TIMEOUT)
    return;
  if (strncmp(why, target, strlen(target)) == 0 && strncmp(why + strlen(target), ": ", 2) == 0)
    why += strlen(target) + 2;
  snprintf(text, sizeof text, "%s", why);
  for (int i = 0; i < connection->n_channels; i++)
    if (connection->channels[i] != connection->channel)
      snprintf(others + strlen(others), sizeof others - strlen(others), " or %s",
               rpc_channel_target(connection->channels[i]));
  leader = leader_named_in(text);
  if (leader)
    err_set(err, err->code, "cannot reach the coordinator at %s%s: %s; pass --coordinator %s", target, others,
            text, leader);
  else if (strstr(text, "TLS"))
    err_set(err, err->code, "cannot reach the coordinator at %s%s: %s", target, others, text);
  else
    err_set(err, err->code,
            "cannot reach the coordinator at %s%s: %s; start one with `weir-server --role=all` or pass "
            "--coordinator HOST:PORT",
            target, others, text);
}
