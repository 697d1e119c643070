/* A coordinator's end of the members' link, for tests of members. */
#ifndef WEIR_TESTS_FAKE_COORDINATOR_H
#define WEIR_TESTS_FAKE_COORDINATOR_H

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "cluster.pb-c.h"
#include "common/base/message.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "tests/support/patience.h"

enum { BODIES = 16 };

struct fake_coordinator {
  struct rpc_server *server;
  char target[32];
  const void *model; /* what FetchModel gives */
  size_t model_bytes;
  uint64_t term;  /* of Welcome */
  const char *id; /* that it gives to a member that had none; others keep theirs */

  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct rpc_call *member; /* the one that joined last */
  int n_joined, n_gone;
  int n_messages[BODIES];                /* by body case */
  Weir__MemberMessage *messages[BODIES]; /* the last of each */
  bool refuses;                          /* members, when they say Hello */
  bool stands_by;                        /* likewise: another leads */
  bool renames;                          /* members are all called `id` */
  bool is_mute;                          /* it beats no more, as if it were frozen */
  int n_fetched;                         /* FetchModel was called */
  bool has_no_model;                     /* FetchModel is parked until the client goes */
  /* Told of each message, under the lock; may be NULL. */
  void (*on_each)(void *user, const Weir__MemberMessage *message);
  void *user;
};

static inline void coordinator_wait_locked(struct fake_coordinator *c, const int *counter, int least) {
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

static inline void coordinator_beat_locked(struct fake_coordinator *c) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__Beat beat = WEIR__BEAT__INIT;
  order.term = c->term;
  order.body_case = WEIR__ORDER__BODY_BEAT;
  order.beat = &beat;
  rpc_call_send(c->member, &order, NULL);
}

static inline void coordinator_on_message(struct rpc_call *call, const void *message,
                                          struct rpc_bytes *bytes) {
  struct fake_coordinator *c = rpc_call_context(call);
  const Weir__MemberMessage *from = message;
  bool is_hello = from->body_case == WEIR__MEMBER_MESSAGE__BODY_HELLO;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&c->lock);
  message_free(c->messages[from->body_case]);
  c->messages[from->body_case] = message_copy(message);
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
    coordinator_beat_locked(c);
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

static inline void coordinator_on_closed(struct rpc_call *call) {
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

static inline void coordinator_on_fetch(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
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

static inline void coordinator_on_fetch_closed(struct rpc_call *call) {
  if (rpc_call_user(call))
    rpc_call_finish(call, NULL);
}

static const struct rpc_method coordinator_methods[] = {
    {RPC_JOIN, true, coordinator_on_message, NULL, coordinator_on_closed, 0},
    {RPC_FETCH_MODEL, false, coordinator_on_fetch, NULL, coordinator_on_fetch_closed, 0},
};

/* Listens where it did before, if it did. */
static inline void coordinator_listen(struct fake_coordinator *c) {
  struct rpc_service service = {coordinator_methods, 2, c};
  struct rpc_server_options options = {
      .listen = *c->target ? c->target : "127.0.0.1:0", .services = &service, .n_services = 1};
  struct err err;
  if (rpc_server_start(&options, &c->server, &err))
    fail_msg("%s", err.text);
  snprintf(c->target, sizeof c->target, "127.0.0.1:%d", rpc_server_port(c->server));
}

/* Breaks every link. */
static inline void coordinator_stop_listening(struct fake_coordinator *c) {
  rpc_server_stop(c->server);
  c->server = NULL;
}

static inline void coordinator_init(struct fake_coordinator *c) {
  *c = (struct fake_coordinator){.term = 1, .id = "server-1"};
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->changed, NULL);
  coordinator_listen(c);
}

static inline void coordinator_fini(struct fake_coordinator *c) {
  rpc_server_stop(c->server);
  for (int b = 0; b < BODIES; b++)
    message_free(c->messages[b]);
  pthread_cond_destroy(&c->changed);
  pthread_mutex_destroy(&c->lock);
}

static inline void coordinator_wait(struct fake_coordinator *c, const int *counter, int least) {
  pthread_mutex_lock(&c->lock);
  coordinator_wait_locked(c, counter, least);
  pthread_mutex_unlock(&c->lock);
}

/* Waits for the n-th message of a kind; it stays until the next one of its kind. */
static inline const Weir__MemberMessage *coordinator_wait_message(struct fake_coordinator *c,
                                                                  Weir__MemberMessage__BodyCase body, int n) {
  coordinator_wait(c, &c->n_messages[body], n);
  return c->messages[body];
}

static inline void coordinator_order_locked(struct fake_coordinator *c, const Weir__Order *order) {
  assert_non_null(c->member);
  rpc_call_send(c->member, order, NULL);
}

static inline void coordinator_order(struct fake_coordinator *c, const Weir__Order *order) {
  pthread_mutex_lock(&c->lock);
  coordinator_order_locked(c, order);
  pthread_mutex_unlock(&c->lock);
}

/* Ends the present membership. */
static inline void coordinator_kick(struct fake_coordinator *c) {
  struct err err;
  pthread_mutex_lock(&c->lock);
  assert_non_null(c->member);
  err_set(&err, ERR_UNAVAILABLE, "the coordinator is going away");
  rpc_call_finish(c->member, &err);
  c->member = NULL;
  pthread_mutex_unlock(&c->lock);
}

#endif
