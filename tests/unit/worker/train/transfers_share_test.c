/* A server of this host that names blocks in its memory, rightly and wrongly. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rpc/server.h"
#include "common/share/share.h"
#include "common/share/shared_pool.h"
#include "worker/train/transfer/transfers.h"

/* MANY: more calls than may wait at a server of another host. */
enum { ELEMS = 1000, MANY = 100, TOGETHER = 40, TOGETHER_MAX = SHARE_PARTS_MAX };

struct fixture {
  struct rpc_server *server;
  struct rpc_client *client;
  struct transfers *transfers;
  struct shared_pool *pool, *own; /* the server's, the worker's */
  struct buffer *version;
  struct share *share;   /* the server's end */
  struct rpc_call *call; /* its stream */
  void (*lie)(struct fixture *f, Weir__SharedBytes *name);
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  bool is_ended, is_stream_over;
  int n_ended, n_held, hold; /* hold: pulls are answered once so many wait */
  struct rpc_call *held[MANY];
  int n_pushes, n_parts; /* calls that came with named bytes, and parts in them */
  uint32_t refused;      /* a block whose parts are, unless it is 0 */
  bool forgets;          /* to answer the last part of each call */
  int n_failed;
  struct err err; /* of the item, or of copying what it brought */
  size_t size_bytes;
  float values[ELEMS];
};

static void tell(void *user, const Weir__ShareMessage *message) {
  rpc_call_send(((struct fixture *)user)->call, message, NULL);
}

static void wake(struct fixture *f, bool *what) {
  pthread_mutex_lock(&f->lock);
  *what = true;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

static void wait_until(struct fixture *f, const bool *what) {
  pthread_mutex_lock(&f->lock);
  while (!*what)
    pthread_cond_wait(&f->changed, &f->lock);
  pthread_mutex_unlock(&f->lock);
}

static void on_share(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct fixture *f = rpc_call_context(call);
  Weir__ShareMessage hello = WEIR__SHARE_MESSAGE__INIT;
  Weir__SharedBytes name = WEIR__SHARED_BYTES__INIT;
  struct err err;
  (void)bytes;
  pthread_mutex_lock(&f->lock);
  if (!f->share) {
    f->call = call;
    f->share = share_new(tell, f);
    hello.share = 1;
    hello.parts_max = TOGETHER_MAX;
    rpc_call_send(call, &hello, NULL);
    share_name(f->share, f->version, &name); /* offers its segment */
  }
  assert_int_equal(share_take(f->share, message, &err), 0);
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

static void on_share_closed(struct rpc_call *call) {
  struct fixture *f = rpc_call_context(call);
  share_close(f->share);
  rpc_call_finish(call, NULL);
  wake(f, &f->is_stream_over);
}

static void answer(struct fixture *f, struct rpc_call *call) {
  Weir__SharedBytes name = WEIR__SHARED_BYTES__INIT;
  Weir__PullReply reply = WEIR__PULL_REPLY__INIT;
  assert_true(share_name(f->share, f->version, &name));
  if (f->lie)
    f->lie(f, &name);
  reply.version = 1;
  reply.shared = &name;
  rpc_call_reply(call, &reply, NULL);
}

static void on_pull(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct fixture *f = rpc_call_context(call);
  int n_held = 0;
  (void)bytes;
  assert_int_equal(((const Weir__PullRequest *)message)->share, 1);
  pthread_mutex_lock(&f->lock);
  if (f->hold) {
    f->held[f->n_held++] = call;
    n_held = f->n_held == f->hold ? f->n_held : -1;
  }
  pthread_mutex_unlock(&f->lock);
  if (n_held == 0)
    answer(f, call);
  for (int i = 0; i < n_held; i++)
    answer(f, f->held[i]);
}

/* A push whose bytes are named, and what comes with it. */
static void answer_parts(struct fixture *f, struct rpc_call *call, const Weir__PushRequest *push) {
  Weir__PartAnswer parts[MANY], *answers[MANY];
  Weir__SharedBytes name = WEIR__SHARED_BYTES__INIT;
  Weir__PushReply reply = WEIR__PUSH_REPLY__INIT;
  assert_true(share_name(f->share, f->version, &name));
  reply.version = 1;
  reply.shared = &name;
  for (size_t i = 0; push->n_further && i <= push->n_further; i++) {
    weir__part_answer__init(answers[i] = &parts[i]);
    if (f->refused && f->refused == (i ? push->further[i - 1]->block : push->block)) {
      parts[i].status = (uint32_t)err_grpc_status(ERR_STALE);
      parts[i].error = (char *)"it is refused";
      continue;
    }
    parts[i].version = 1;
    parts[i].shared = &name;
  }
  if (push->n_further) {
    reply = (Weir__PushReply)WEIR__PUSH_REPLY__INIT;
    reply.answers = answers;
    reply.n_answers = 1 + push->n_further - f->forgets;
  }
  rpc_call_reply(call, &reply, NULL);
}

static void on_push(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct fixture *f = rpc_call_context(call);
  const Weir__PushRequest *push = message;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&f->lock);
  f->n_pushes += push->shared != NULL;
  f->n_parts += push->shared ? 1 + (int)push->n_further : 0;
  pthread_mutex_unlock(&f->lock);
  answer_parts(f, call, push);
}

static void on_received(void *user, const struct transfer_item *item, uint64_t version,
                        const struct received *received) {
  struct fixture *f = user;
  assert_int_equal(version, 1);
  f->size_bytes = received_bytes(received);
  if (item->kind == TRANSFER_PUSH) /* on several threads */
    return;
  f->err.code = ERR_OK;
  received_copy(received, f->values, &f->err);
}

static void on_failed(void *user, const struct transfer_item *item, const struct err *err) {
  struct fixture *f = user;
  (void)item;
  pthread_mutex_lock(&f->lock);
  f->err = *err;
  f->n_failed++;
  pthread_mutex_unlock(&f->lock);
}

static void on_ended(void *user, const struct transfer_item *item) {
  struct fixture *f = user;
  (void)item;
  pthread_mutex_lock(&f->lock);
  f->n_ended++;
  pthread_mutex_unlock(&f->lock);
  wake(f, &f->is_ended);
}

static void on_unreached(void *user, const struct transfers_unreached *unreached) {
  (void)user;
  (void)unreached;
}

static void start_transfers(struct fixture *f) {
  static char target[32];
  static Weir__Endpoint endpoint = WEIR__ENDPOINT__INIT;
  Weir__Endpoint *servers[] = {&endpoint};
  snprintf(target, sizeof target, "127.0.0.1:%d", rpc_server_port(f->server));
  endpoint.id = (char *)"server-1";
  endpoint.address = target;
  f->transfers = transfers_new(&(struct transfers_options){.client = f->client,
                                                           .run = "unit-1",
                                                           .servers = servers,
                                                           .n_servers = 1,
                                                           .question_ms = 604800000,
                                                           .silent_ms = 604800000,
                                                           .received = on_received,
                                                           .failed = on_failed,
                                                           .ended = on_ended,
                                                           .unreached = on_unreached,
                                                           .user = f});
}

static int setup(void **state) {
  static const struct rpc_method methods[] = {
      {.id = RPC_PUSH, .on_message = on_push},
      {.id = RPC_PULL, .on_message = on_pull},
      {.id = RPC_SHARE, .is_request_stream = true, .on_message = on_share, .on_closed = on_share_closed}};
  struct fixture *f = mem_new(sizeof *f);
  struct rpc_service service = {methods, 3, f};
  struct rpc_server_options options = {.listen = "127.0.0.1:0", .services = &service, .n_services = 1};
  struct err err;
  pthread_mutex_init(&f->lock, NULL);
  pthread_cond_init(&f->changed, NULL);
  f->pool = shared_pool_new(1 << 20);
  f->own = shared_pool_new(1 << 20);
  f->version = shared_pool_take(f->pool, ELEMS * sizeof(float));
  for (int i = 0; i < ELEMS; i++)
    ((float *)f->version->data)[i] = (float)i;
  assert_int_equal(rpc_server_start(&options, &f->server, &err), 0);
  f->client = rpc_client_new(1, NULL);
  start_transfers(f);
  pthread_mutex_lock(&f->lock);
  while (!f->share || !share_is_up(f->share))
    pthread_cond_wait(&f->changed, &f->lock);
  pthread_mutex_unlock(&f->lock);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  struct fixture *f = *state;
  transfers_free(f->transfers);
  wait_until(f, &f->is_stream_over); /* with the worker's part in the run */
  rpc_server_stop(f->server);
  rpc_client_free(f->client);
  share_put(f->share);
  buffer_put(f->version);
  shared_pool_free(f->pool);
  shared_pool_free(f->own);
  pthread_cond_destroy(&f->changed);
  pthread_mutex_destroy(&f->lock);
  free(f);
  return 0;
}

static void pull(struct fixture *f, void (*lie)(struct fixture *f, Weir__SharedBytes *name)) {
  f->lie = lie;
  f->is_ended = false;
  f->err = ERR_NONE;
  transfers_start(f->transfers, &(struct transfer_item){.kind = TRANSFER_PULL, .version = 1}, 1);
  wait_until(f, &f->is_ended);
}

static void a_named_block_is_read_where_it_lies(void **state) {
  struct fixture *f = *state;
  pull(f, NULL);
  assert_int_equal(f->err.code, ERR_OK);
  assert_int_equal(f->size_bytes, ELEMS * sizeof(float));
  assert_memory_equal(f->values, f->version->data, sizeof f->values);
}

static void beyond(struct fixture *f, Weir__SharedBytes *name) {
  (void)f;
  name->offset += 1ull << 40;
}

static void too_large(struct fixture *f, Weir__SharedBytes *name) {
  (void)f;
  name->size = 1ull << 32;
}

static void another_segment(struct fixture *f, Weir__SharedBytes *name) {
  (void)f;
  name->segment += 9;
}

static void what_a_server_names_wrongly_is_corrupt(void **state) {
  void (*const lies[])(struct fixture * f, Weir__SharedBytes * name) = {beyond, too_large, another_segment};
  struct fixture *f = *state;
  for (int i = 0; i < 3; i++) {
    pull(f, lies[i]);
    assert_int_equal(f->err.code, ERR_CORRUPT);
  }
  pull(f, NULL);
  assert_int_equal(f->err.code, ERR_OK);
}

static void moves_on(struct fixture *f, Weir__SharedBytes *name) {
  (void)name;
  shared_renew(f->version);
}

static void a_version_that_its_server_has_dropped_meanwhile_is_stale(void **state) {
  struct fixture *f = *state;
  pull(f, moves_on);
  assert_int_equal(f->err.code, ERR_STALE);
}

/* The server answers none before all are there. */
static void as_many_calls_wait_at_a_server_of_this_host_as_there_are_blocks(void **state) {
  struct fixture *f = *state;
  pull(f, NULL);
  f->hold = MANY;
  for (uint32_t b = 0; b < MANY; b++)
    transfers_start(f->transfers, &(struct transfer_item){.kind = TRANSFER_PULL, .block = b, .version = 1},
                    1);
  pthread_mutex_lock(&f->lock);
  while (f->n_ended < 1 + MANY)
    pthread_cond_wait(&f->changed, &f->lock);
  pthread_mutex_unlock(&f->lock);
  assert_int_equal(f->n_held, MANY);
  assert_int_equal(f->err.code, ERR_OK);
}

/* Pushes of one node, started together, which wait for the next version. */
static void push_together(struct fixture *f, struct buffer *gradient, int n) {
  struct transfer_item items[TOGETHER];
  int wanted;
  for (int i = 0; i < n; i++)
    items[i] = (struct transfer_item){
        .kind = TRANSFER_PUSH, .block = 1 + (uint32_t)i, .version = 1, .wait = true, .buffer = gradient};
  pthread_mutex_lock(&f->lock);
  wanted = f->n_ended + n;
  pthread_mutex_unlock(&f->lock);
  transfers_start(f->transfers, items, n);
  pthread_mutex_lock(&f->lock);
  while (f->n_ended < wanted)
    pthread_cond_wait(&f->changed, &f->lock);
  pthread_mutex_unlock(&f->lock);
}

/* In memory that the server has mapped. */
static struct buffer *gradient_new(struct fixture *f) {
  struct buffer *gradient = shared_pool_take(f->own, ELEMS * sizeof(float));
  int n_pushes = 0;
  memset(gradient->data, 0, gradient->size_bytes);
  while (n_pushes == 0) {
    push_together(f, gradient, 1);
    pthread_mutex_lock(&f->lock);
    n_pushes = f->n_pushes;
    pthread_mutex_unlock(&f->lock);
  }
  f->n_pushes = f->n_parts = f->n_failed = 0;
  return gradient;
}

static void pushes_that_are_started_together_share_calls(void **state) {
  struct fixture *f = *state;
  struct buffer *gradient = gradient_new(f);
  push_together(f, gradient, TOGETHER);
  assert_int_equal(f->n_parts, TOGETHER);
  assert_int_equal(f->n_pushes, (TOGETHER + TOGETHER_MAX - 1) / TOGETHER_MAX);
  assert_int_equal(f->n_failed, 0);
  f->refused = 5;
  push_together(f, gradient, TOGETHER_MAX);
  assert_int_equal(f->n_failed, 1);
  assert_int_equal(f->err.code, ERR_STALE);
  assert_string_equal(f->err.text + strcspn(f->err.text, " "),
                      " it is refused"); /* by the server's address */
  f->refused = 0;
  f->forgets = true;
  push_together(f, gradient, TOGETHER_MAX);
  assert_int_equal(f->n_failed, 2);
  assert_int_equal(f->err.code, ERR_CORRUPT);
  buffer_put(gradient);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_named_block_is_read_where_it_lies),
      TEST(what_a_server_names_wrongly_is_corrupt),
      TEST(a_version_that_its_server_has_dropped_meanwhile_is_stale),
      TEST(as_many_calls_wait_at_a_server_of_this_host_as_there_are_blocks),
      TEST(pushes_that_are_started_together_share_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
