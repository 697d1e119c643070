/* Where a worker listens for other workers: the Peers service. */
#ifndef WEIR_WORKER_PEERS_H
#define WEIR_WORKER_PEERS_H

#include "common/rpc/server.h"
#include "peers.pb-c.h"

struct peers;

struct peers_options {
  const char *listen; /* HOST:PORT; NULL: a free port of the address from which the coordinator is reached */
  const char *advertise;     /* HOST:PORT of others' sight, port 0: the bound one; NULL: where it listens */
  const struct rpc_tls *tls; /* as in rpc_server_options */
  bool is_insecure;          /* likewise */
  const char *coordinator;   /* HOST:PORT, or several separated by commas */
  /* Both on the service's only thread; errors go back to the sender. Whether the caller, by its ticket (NULL:
     it has none) and the holder of its certificate (a URI, "" without TLS), may send pieces: before any
     comes. */
  int (*admit)(void *user, const char *ticket, const char *holder, struct err *err);
  /* A piece of a boundary message from a caller with that ticket; bytes stay the caller's. */
  int (*take)(void *user, const char *ticket, const Weir__BoundaryPiece *piece, const struct rpc_bytes *bytes,
              struct err *err);
  void *user;
};

/* Errors: those of rpc_server_start, INVALID for an address that is none. */
int peers_start(const struct peers_options *options, struct peers **out, struct err *err);
const char *peers_address(const struct peers *peers); /* where others reach it */
void peers_stop(struct peers *peers);                 /* waits for the last call; NULL is ignored */

#endif
