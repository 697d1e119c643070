/* A worker of this process that shares memory with a server. */
#include "tests/support/parameters/share_worker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/message.h"
#include "tests/support/common/patience.h"

static void send_to_server(void *user, const Weir__ShareMessage *message) {
  rpc_stream_send(((struct share_worker *)user)->stream, message);
}

static void on_message(void *user, const void *message) {
  const Weir__ShareMessage *said = message;
  struct share_worker *worker = user;
  struct err err;
  pthread_mutex_lock(&worker->lock);
  assert_int_equal(share_take(worker->share, said, &err), 0);
  worker->id = said->share ? said->share : worker->id;
  worker->n_heard++;
  pthread_cond_broadcast(&worker->changed);
  pthread_mutex_unlock(&worker->lock);
}

static void on_end(void *user, const struct err *err) {
  struct share_worker *worker = user;
  pthread_mutex_lock(&worker->lock);
  worker->is_over = true;
  worker->end = *err;
  pthread_cond_broadcast(&worker->changed);
  pthread_mutex_unlock(&worker->lock);
}

void share_worker_open(struct share_worker *worker, const char *run, const char *ticket) {
  struct rpc_stream_handlers handlers = {on_message, on_end, worker};
  Weir__ShareMessage hello = WEIR__SHARE_MESSAGE__INIT;
  hello.run = (char *)run;
  hello.incarnation = 1;
  pthread_mutex_lock(&worker->lock);
  worker->is_over = false;
  worker->id = 0;
  worker->share = share_new(send_to_server, worker);
  worker->stream = rpc_stream_open_with(worker->server.channel, RPC_SHARE, ticket, &handlers);
  rpc_stream_send(worker->stream, &hello);
  pthread_mutex_unlock(&worker->lock);
}

void share_worker_close(struct share_worker *worker) {
  share_close(worker->share);
  rpc_stream_close(worker->stream);
  share_put(worker->share);
}

void share_worker_wait_heard(struct share_worker *worker, int n) {
  pthread_mutex_lock(&worker->lock);
  while (worker->n_heard < n && !worker->is_over)
    pthread_cond_wait(&worker->changed, &worker->lock);
  pthread_mutex_unlock(&worker->lock);
  assert_false(worker->is_over);
}

int share_worker_heard(struct share_worker *worker) {
  int n;
  pthread_mutex_lock(&worker->lock);
  n = worker->n_heard;
  pthread_mutex_unlock(&worker->lock);
  return n;
}

void share_worker_wait_over(struct share_worker *worker) {
  pthread_mutex_lock(&worker->lock);
  while (!worker->is_over)
    pthread_cond_wait(&worker->changed, &worker->lock);
  pthread_mutex_unlock(&worker->lock);
}

int share_worker_setup(void **state) {
  struct share_worker *worker = mem_new(sizeof *worker);
  pthread_mutex_init(&worker->lock, NULL);
  pthread_cond_init(&worker->changed, NULL);
  parameters_fixture_init(&worker->server, 1);
  worker->pool = shared_pool_new(1 << 20);
  share_worker_open(worker, "unit-1", NULL);
  share_worker_wait_heard(worker, 1); /* its name */
  *state = worker;
  return 0;
}

int share_worker_teardown(void **state) {
  struct share_worker *worker = *state;
  share_worker_close(worker);
  shared_pool_free(worker->pool);
  parameters_fixture_fini(&worker->server);
  pthread_cond_destroy(&worker->changed);
  pthread_mutex_destroy(&worker->lock);
  free(worker);
  return 0;
}

struct buffer *share_worker_part(struct share_worker *worker, uint32_t block, float value,
                                 Weir__SharedBytes *name) {
  size_t size_bytes = part_of(&worker->server, block, value);
  struct buffer *part = shared_pool_take(worker->pool, size_bytes);
  int before = share_worker_heard(worker);
  assert_non_null(part);
  memcpy(part->data, worker->server.values, size_bytes);
  weir__shared_bytes__init(name);
  if (share_name(worker->share, part, name))
    return part;
  share_worker_wait_heard(worker, before + 1); /* that it was taken */
  assert_true(share_name(worker->share, part, name));
  return part;
}

enum err_code share_worker_ask(struct share_worker *worker, enum rpc_method_id method, const void *message,
                               void **reply, struct err *err) {
  return (enum err_code)rpc_unary(worker->server.channel,
                                  &(struct rpc_question){method, message, patience_ms()}, false, reply, err);
}

Weir__PushRequest share_worker_push(const struct share_worker *worker, uint32_t block, uint64_t step,
                                    uint32_t first, Weir__SharedBytes *name) {
  Weir__PushRequest push = push_request(block, step, first, 0);
  push.run = (char *)"unit-1";
  push.incarnation = 1;
  push.share = worker->id;
  push.shared = name;
  return push;
}

void share_worker_push_part(struct share_worker *worker, uint32_t block, uint64_t step, uint32_t first,
                            float value) {
  Weir__SharedBytes name;
  struct buffer *part = share_worker_part(worker, block, value, &name);
  Weir__PushRequest push = share_worker_push(worker, block, step, first, &name);
  struct err err = ERR_NONE;
  void *reply;
  if (share_worker_ask(worker, RPC_PUSH, &push, &reply, &err))
    fail_msg("%s", err.text);
  message_free(reply);
  buffer_put(part);
}

void share_worker_assert_refused(struct share_worker *worker, const Weir__PushRequest *push,
                                 enum err_code code, const char *text) {
  struct err err = ERR_NONE;
  void *reply;
  assert_int_equal(share_worker_ask(worker, RPC_PUSH, push, &reply, &err), code);
  if (!strstr(err.text, text))
    fail_msg("'%s' is not in '%s'", text, err.text);
}
