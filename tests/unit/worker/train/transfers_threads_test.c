/* Which of the client's threads have the blocks of several servers. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/rpc/server.h"
#include "parameters.pb-c.h"
#include "worker/train/transfer/transfers.h"

enum { THREADS = 8, SERVERS = 4, CALLS = 4, ELEMS = 16 };

struct fixture {
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  pthread_t threads[THREADS]; /* that have ended a call */
  int n_threads, n_ended;
};

static void on_pull(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct buffer *block = buffer_new(ELEMS * sizeof(float));
  struct rpc_payload payload = {block, 0, ELEMS * sizeof(float)};
  Weir__PullReply reply = WEIR__PULL_REPLY__INIT;
  (void)message;
  rpc_bytes_free(bytes);
  reply.version = 1;
  rpc_call_reply(call, &reply, &payload);
  buffer_put(block);
}

static void on_received(void *user, const struct transfer_item *item, uint64_t version,
                        const struct received *received) {
  (void)user;
  (void)item;
  assert_int_equal(version, 1);
  assert_int_equal(received_bytes(received), ELEMS * sizeof(float));
}

static void on_failed(void *user, const struct transfer_item *item, const struct err *err) {
  (void)user;
  (void)item;
  fail_msg("%s", err->text);
}

static void on_ended(void *user, const struct transfer_item *item) {
  struct fixture *f = user;
  int at = 0;
  (void)item;
  pthread_mutex_lock(&f->lock);
  while (at < f->n_threads && !pthread_equal(f->threads[at], pthread_self()))
    at++;
  if (at == f->n_threads)
    f->threads[f->n_threads++] = pthread_self();
  f->n_ended++;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

static void on_unreached(void *user, const struct transfers_unreached *unreached) {
  (void)user;
  (void)unreached;
}

static void pull_from_each(struct fixture *f, struct transfers *transfers) {
  for (int i = 0; i < CALLS * SERVERS; i++) {
    struct transfer_item item = {.kind = TRANSFER_PULL, .server = (uint32_t)(i % SERVERS), .version = 1};
    transfers_start(transfers, &item, 1);
    pthread_mutex_lock(&f->lock);
    while (f->n_ended <= i)
      pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
  }
}

static void every_thread_has_blocks_where_there_are_channels_enough(void **state) {
  static const struct rpc_method methods[] = {{.id = RPC_PULL, .on_message = on_pull}};
  struct fixture f = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  struct rpc_service service = {methods, 1, &f};
  struct rpc_server_options options = {.listen = "127.0.0.1:0", .services = &service, .n_services = 1};
  struct rpc_client *client = rpc_client_new(THREADS, NULL);
  struct rpc_server *server;
  struct transfers *transfers;
  Weir__Endpoint endpoint = WEIR__ENDPOINT__INIT, *servers[SERVERS];
  char target[32];
  struct err err;
  (void)state;
  assert_int_equal(rpc_server_start(&options, &server, &err), 0);
  snprintf(target, sizeof target, "127.0.0.1:%d", rpc_server_port(server));
  endpoint.id = (char *)"server-1";
  endpoint.address = target;
  for (int s = 0; s < SERVERS; s++)
    servers[s] = &endpoint;
  transfers = transfers_new(&(struct transfers_options){.client = client,
                                                        .run = "unit-1",
                                                        .servers = servers,
                                                        .n_servers = SERVERS,
                                                        .question_ms = 604800000,
                                                        .silent_ms = 604800000,
                                                        .received = on_received,
                                                        .failed = on_failed,
                                                        .ended = on_ended,
                                                        .unreached = on_unreached,
                                                        .user = &f});
  pull_from_each(&f, transfers);
  assert_int_equal(f.n_threads, THREADS);
  transfers_free(transfers);
  rpc_server_stop(server);
  rpc_client_free(client);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_thread_has_blocks_where_there_are_channels_enough)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
