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

static inline void count(struct fixture *f, int *counter) {
  pthread_mutex_lock(&f->lock);
  (*counter)++;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

/* Waits until the counter reaches the value; fails the test when patience ends. */
static inline void wait_for(struct fixture *f, const int *counter, int value) {
  struct timespec until;
  int rc = 0;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += patience_seconds();
  pthread_mutex_lock(&f->lock);
  while (*counter < value && rc != ETIMEDOUT)
    rc = pthread_cond_timedwait(&f->changed, &f->lock, &until);
  rc = *counter < value;
  pthread_mutex_unlock(&f->lock);
  assert_int_equal(rc, 0);
}

static inline void park(struct fixture *f, struct rpc_call *call) {
  pthread_mutex_lock(&f->lock);
  assert_true(f->n_parked < PARKED_MAX);
  f->parked[f->n_parked] = call;
  pthread_mutex_unlock(&f->lock);
  count(f, &f->n_parked);
}

static inline void count_closed(struct rpc_call *call) {
  struct fixture *f = rpc_call_context(call);
  count(f, &f->n_closed);
}

static inline void fixture_start_server(struct fixture *f, const char *listen,
                                        const struct rpc_method *methods, int n_methods) {
  struct rpc_service service = {methods, n_methods, f};
  struct rpc_server_options options = {.listen = listen, .services = &service, .n_services = 1, .threads = 2};
  struct err err = ERR_NONE;
  if (rpc_server_start(&options, &f->server, &err))
    fail_msg("%s", err.text);
}

static inline void fixture_init(struct fixture *f, const struct rpc_method *methods, int n_methods) {
  memset(f, 0, sizeof *f);
  pthread_mutex_init(&f->lock, NULL);
  pthread_cond_init(&f->changed, NULL);
  fixture_start_server(f, "127.0.0.1:0", methods, n_methods);
  snprintf(f->target, sizeof f->target, "127.0.0.1:%d", rpc_server_port(f->server));
  f->client = rpc_client_new(2);
  f->channel = rpc_channel_open(f->client, f->target);
}

static inline void fixture_fini(struct fixture *f) {
  rpc_channel_close(f->channel);
  rpc_server_stop(f->server);
  rpc_client_free(f->client);
  pthread_cond_destroy(&f->changed);
  pthread_mutex_destroy(&f->lock);
}

#endif
