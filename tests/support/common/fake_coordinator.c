#include "tests/support/common/fake_coordinator.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/memory.h"
#include "common/base/message.h"
#include "common/rpc/server.h"
#include "tests/support/common/own_port.h"
#include "tests/support/common/patience.h"

static void fake_coordinator_wait_locked(struct fake_coordinator *c, const int *counter, int least) {
  struct timespec until;
  int rc = 0;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += patience_seconds();
  while (*counter < least && rc != ETIMEDOUT)
    rc = pthread_cond_timedwait(&c->changed, &c->lock, &until);
  if (*counter < least) {
    pthread_mutex_unlock(&c->lock);
    fail_msg("nothing happened for %d seconds", patience_seconds());
  }
}

static void fake_coordinator_beat_locked(struct fake_coordinator *c) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__Beat beat = WEIR__BEAT__INIT;
  order.term = c->term;
  order.body_case = WEIR__ORDER__BODY_BEAT;
  order.beat = &beat;
  rpc_call_send(c->member, &order, NULL);
}

static void fake_coordinator_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct fake_coordinator *c = rpc_call_context(call);
  const Weir__MemberMessage *from = message;
  bool is_hello = from->body_case == WEIR__MEMBER_MESSAGE__BODY_HELLO;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&c->lock);
  array_reserve((void **)&c->kept, &c->kept_capacity, c->n_kept, sizeof *c->kept);
  c->messages[from->body_case] = c->kept[c->n_kept++] = message_copy(message);
  c->n_messages[from->body_case]++;
  if (c->on_each)
    c->on_each(c->user, from);
  if (is_hello && c->stands_by)
    rpc_call_fail(call, ERR_UNAVAILABLE, "this coordinator is a standby");
  else if (is_hello && c->refuses)
    rpc_call_fail(call, ERR_INVALID, "the fingerprint does not match");
  else if (is_hello) {
    Weir__Order order = WEIR__ORDER__INIT;
    Weir__Welcome welcome = WEIR__WELCOME__INIT;
    welcome.id = *from->hello->id && !c->renames ? from->hello->id : (char *)c->id;
    order.term = c->term;
    order.body_case = WEIR__ORDER__BODY_WELCOME;
    order.welcome = &welcome;
    rpc_call_send(call, &order, NULL);
    c->member = call;
    c->n_joined++;
    rpc_call_set_user(call, c);
  } else if (from->body_case == WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT && c->member == call && !c->is_mute)
    fake_coordinator_beat_locked(c);
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

static void fake_coordinator_on_closed(struct rpc_call *call) {
  struct fake_coordinator *c = rpc_call_context(call);
  pthread_mutex_lock(&c->lock);
  if (rpc_call_user(call)) {
    c->n_gone++;
    if (c->member == call) {
      c->member = NULL;
      rpc_call_finish(call, NULL);
    }
  }
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

static void fake_coordinator_on_fetch(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct fake_coordinator *c = rpc_call_context(call);
  Weir__Chunk chunk = WEIR__CHUNK__INIT;
  (void)message;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&c->lock);
  c->n_fetched++;
  if (c->has_no_model) {
    rpc_call_set_user(call, c);
    pthread_mutex_unlock(&c->lock);
    return;
  }
  pthread_mutex_unlock(&c->lock);
  for (size_t at = 0; at < c->model_bytes; at += chunk.data.len) {
    chunk.data.data = (uint8_t *)c->model + at;
    chunk.data.len = c->model_bytes - at < 100000 ? c->model_bytes - at : 100000;
    rpc_call_send(call, &chunk, NULL);
  }
  rpc_call_finish(call, NULL);
}

static void fake_coordinator_on_fetch_closed(struct rpc_call *call) {
  if (rpc_call_user(call))
    rpc_call_finish(call, NULL);
}

static const struct rpc_method fake_coordinator_methods[] = {
    {.id = RPC_JOIN,
     .is_request_stream = true,
     .on_message = fake_coordinator_on_message,
     .on_closed = fake_coordinator_on_closed},
    {.id = RPC_FETCH_MODEL,
     .on_message = fake_coordinator_on_fetch,
     .on_closed = fake_coordinator_on_fetch_closed},
};

void fake_coordinator_listen(struct fake_coordinator *c) {
  struct rpc_service service = {fake_coordinator_methods, 2, c};
  struct rpc_server_options options = {.listen = c->target, .services = &service, .n_services = 1};
  struct err err;
  if (!*c->target)
    snprintf(c->target, sizeof c->target, "127.0.0.1:%d", own_port());
  if (rpc_server_start(&options, &c->server, &err))
    fail_msg("%s", err.text);
}

void fake_coordinator_stop_listening(struct fake_coordinator *c) {
  rpc_server_stop(c->server);
  c->server = NULL;
}

void fake_coordinator_init(struct fake_coordinator *c) {
  *c = (struct fake_coordinator){.term = 1, .id = "server-1"};
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->changed, NULL);
  fake_coordinator_listen(c);
}

void fake_coordinator_fini(struct fake_coordinator *c) {
  rpc_server_stop(c->server);
  for (int i = 0; i < c->n_kept; i++)
    message_free(c->kept[i]);
  free(c->kept);
  pthread_cond_destroy(&c->changed);
  pthread_mutex_destroy(&c->lock);
}

void fake_coordinator_wait(struct fake_coordinator *c, const int *counter, int least) {
  pthread_mutex_lock(&c->lock);
  fake_coordinator_wait_locked(c, counter, least);
  pthread_mutex_unlock(&c->lock);
}

const Weir__MemberMessage *fake_coordinator_wait_message(struct fake_coordinator *c,
                                                         Weir__MemberMessage__BodyCase body, int n) {
  const Weir__MemberMessage *newest;
  pthread_mutex_lock(&c->lock);
  fake_coordinator_wait_locked(c, &c->n_messages[body], n);
  newest = c->messages[body];
  pthread_mutex_unlock(&c->lock);
  return newest;
}

void fake_coordinator_order_locked(struct fake_coordinator *c, const Weir__Order *order) {
  assert_non_null(c->member);
  rpc_call_send(c->member, order, NULL);
}

void fake_coordinator_order(struct fake_coordinator *c, const Weir__Order *order) {
  pthread_mutex_lock(&c->lock);
  fake_coordinator_order_locked(c, order);
  pthread_mutex_unlock(&c->lock);
}

void fake_coordinator_kick(struct fake_coordinator *c) {
  struct err err;
  pthread_mutex_lock(&c->lock);
  assert_non_null(c->member);
  err_set(&err, ERR_UNAVAILABLE, "the coordinator is going away");
  rpc_call_finish(c->member, &err);
  c->member = NULL;
  pthread_mutex_unlock(&c->lock);
}
