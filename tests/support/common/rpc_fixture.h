/* A server on loopback with the methods that a test gives, and a client of it, for the tests of
   common/rpc. rpc_call_context(call) is the fixture in the handlers of the test, which count what they
   see: rpc_fixture_count() in the handler, rpc_fixture_wait() in the test. */
#ifndef WEIR_TESTS_SUPPORT_COMMON_RPC_FIXTURE_H
#define WEIR_TESTS_SUPPORT_COMMON_RPC_FIXTURE_H

#include <pthread.h>
#include <stdint.h>

#include "common/rpc/client.h"
#include "common/rpc/server.h"

enum { PARKED_MAX = 16 };

struct rpc_fixture {
  struct rpc_server *server;
  struct rpc_client *client;
  struct rpc_channel *channel;
  char target[64];
  size_t received_bytes_max; /* of servers that are started; 0: without a bound */
  pthread_mutex_t lock;      /* what follows */
  pthread_cond_t changed;
  struct rpc_call *parked[PARKED_MAX];
  int n_parked, n_messages, n_half_closed, n_closed;
  uint64_t n_bytes;
};

/* Adds one to a counter of the fixture, or of the test's own, under the lock, and wakes who waits. Any
   thread. */
void rpc_fixture_count(struct rpc_fixture *f, int *counter);

/* Waits until the counter reaches the value; fails the test when patience ends. */
void rpc_fixture_wait(struct rpc_fixture *f, const int *counter, int value);

/* For handlers: keeps a call that the test finishes later; parked[n_parked - 1] is the newest. */
void rpc_fixture_park(struct rpc_fixture *f, struct rpc_call *call);

/* An on_closed that counts in n_closed. */
void rpc_fixture_count_closed(struct rpc_call *call);

/* Starts f->server alone, on this address: for a test with an address or a moment of its own. methods
   outlive it. Fails the test if it cannot. */
void rpc_fixture_start_server(struct rpc_fixture *f, const char *listen, const struct rpc_method *methods,
                              int n_methods);

/* Starts the server on a free port, which f->target names, and opens the channel. methods outlive the
   fixture. */
void rpc_fixture_init(struct rpc_fixture *f, const struct rpc_method *methods, int n_methods);

/* The same, of a server with that received_bytes_max. */
void rpc_fixture_init_bounded(struct rpc_fixture *f, const struct rpc_method *methods, int n_methods,
                              size_t received_bytes_max);

void rpc_fixture_fini(struct rpc_fixture *f);

#endif
