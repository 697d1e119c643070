#include "tests/support/common/rpc_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/support/common/patience.h"

void rpc_fixture_count(struct rpc_fixture *f, int *counter) {
  pthread_mutex_lock(&f->lock);
  (*counter)++;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

void rpc_fixture_wait(struct rpc_fixture *f, const int *counter, int value) {
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

void rpc_fixture_park(struct rpc_fixture *f, struct rpc_call *call) {
  pthread_mutex_lock(&f->lock);
  assert_true(f->n_parked < PARKED_MAX);
  f->parked[f->n_parked++] = call;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

void rpc_fixture_count_closed(struct rpc_call *call) {
  struct rpc_fixture *f = rpc_call_context(call);
  rpc_fixture_count(f, &f->n_closed);
}

void rpc_fixture_start_server(struct rpc_fixture *f, const char *listen, const struct rpc_method *methods,
                              int n_methods) {
  struct rpc_service service = {methods, n_methods, f};
  struct rpc_server_options options = {.listen = listen,
                                       .services = &service,
                                       .n_services = 1,
                                       .threads = 2,
                                       .received_bytes_max = f->received_bytes_max};
  struct err err = ERR_NONE;
  if (rpc_server_start(&options, &f->server, &err))
    fail_msg("%s", err.text);
}

void rpc_fixture_init(struct rpc_fixture *f, const struct rpc_method *methods, int n_methods) {
  rpc_fixture_init_bounded(f, methods, n_methods, 0);
}

void rpc_fixture_init_bounded(struct rpc_fixture *f, const struct rpc_method *methods, int n_methods,
                              size_t received_bytes_max) {
  memset(f, 0, sizeof *f);
  f->received_bytes_max = received_bytes_max;
  pthread_mutex_init(&f->lock, NULL);
  pthread_cond_init(&f->changed, NULL);
  rpc_fixture_start_server(f, "127.0.0.1:0", methods, n_methods);
  snprintf(f->target, sizeof f->target, "127.0.0.1:%d", rpc_server_port(f->server));
  f->client = rpc_client_new(2, NULL);
  f->channel = rpc_channel_open(f->client, f->target, PEER_ANY);
}

void rpc_fixture_fini(struct rpc_fixture *f) {
  rpc_channel_close(f->channel);
  rpc_server_stop(f->server);
  rpc_client_free(f->client);
  pthread_cond_destroy(&f->changed);
  pthread_mutex_destroy(&f->lock);
}
