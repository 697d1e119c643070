/* A little service over the real methods, and a client of it, for the tests of common/rpc.
   What a call does is told by its request's `run`: "echo" answers at once, "park" waits in the fixture. */
#ifndef WEIR_TESTS_RPC_FIXTURE_H
#define WEIR_TESTS_RPC_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "tests/support/patience.h"

enum { PARKED_MAX = 16 };

struct fixture {
  struct rpc_server *server;
  struct rpc_client *client;
  struct rpc_channel *channel;
  char target[64];
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct rpc_call *parked[PARKED_MAX];
  int n_parked, n_messages, n_half_closed, n_closed;
  uint64_t n_bytes;
};

void rpc_fixture_count(struct fixture *f, int *counter);

/* Waits until the counter reaches the value; fails the test when patience ends. */
void rpc_fixture_wait(struct fixture *f, const int *counter, int value);

void rpc_fixture_park(struct fixture *f, struct rpc_call *call);

void rpc_fixture_count_closed(struct rpc_call *call);

void rpc_fixture_start_server(struct fixture *f, const char *listen, const struct rpc_method *methods,
                              int n_methods);

void rpc_fixture_init(struct fixture *f, const struct rpc_method *methods, int n_methods);

void rpc_fixture_fini(struct fixture *f);

#endif
