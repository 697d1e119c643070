/* The link of a member to the coordinator. */
#include "common/member.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/log.h"
#include "common/memory.h"
#include "common/message.h"

enum { HEARTBEAT_MS = 1000, OFFERED_MAX = 1024 };

struct member {
  struct member_options options;
  char *coordinator;
  Weir__Hello *hello;
  struct rpc_channel *channel;
  pthread_t thread;
  struct err logged; /* the last failure that was logged; the thread's own */

  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct rpc_stream *stream; /* NULL between streams */
  bool is_connected;         /* Welcome came on this stream */
  bool has_ended;            /* the stream has, with `end` */
  bool is_overrun;           /* it took no more messages: what it was not told would be missing */
  bool is_stopping;
  struct err end;
  uint64_t epoch; /* the highest seen */
};

static void *member_main(void *argument);
static bool member_serve_stream(struct member *member);
static void member_log_end(struct member *member, bool was_connected, const struct err *end);

struct member *member_start(const struct member_options *options) {
  struct member *member = mem_new(sizeof *member);
  pthread_condattr_t monotonic;
  member->options = *options;
  member->coordinator = mem_strdup(options->coordinator);
  member->hello = message_copy(options->hello);
  member->channel = rpc_channel_open(options->client, member->coordinator);
  pthread_mutex_init(&member->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&member->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  CHECK(pthread_create(&member->thread, NULL, member_main, member) == 0);
  return member;
}

int member_send(struct member *member, const Weir__MemberMessage *message) {
  int code = ERR_CANCELLED;
  pthread_mutex_lock(&member->lock);
  if (member->stream && member->is_connected)
    code = rpc_stream_send(member->stream, message);
  if (code == ERR_BUSY) {
    member->is_overrun = true;
    pthread_cond_signal(&member->changed);
  }
  pthread_mutex_unlock(&member->lock);
  return code;
}

int member_offer(struct member *member, const Weir__MemberMessage *message) {
  int code = ERR_CANCELLED;
  pthread_mutex_lock(&member->lock);
  if (member->stream && member->is_connected)
    code = rpc_stream_waiting(member->stream) < OFFERED_MAX ? rpc_stream_send(member->stream, message)
                                                            : ERR_BUSY;
  pthread_mutex_unlock(&member->lock);
  return code;
}

void member_stop(struct member *member) {
  if (!member)
    return;
  pthread_mutex_lock(&member->lock);
  member->is_stopping = true;
  pthread_cond_signal(&member->changed);
  pthread_mutex_unlock(&member->lock);
  pthread_join(member->thread, NULL);
  rpc_channel_close(member->channel);
  pthread_cond_destroy(&member->changed);
  pthread_mutex_destroy(&member->lock);
  message_free(member->hello);
  free(member->coordinator);
  free(member);
}

struct rpc_channel *member_channel(struct member *member) {
  return member->channel;
}

/* Waits until something changed, at most timeout_ms. */
static void member_wait_locked(struct member *member, int timeout_ms) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += timeout_ms / 1000;
  until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
  if (until.tv_nsec >= 1000000000) {
    until.tv_sec++;
    until.tv_nsec -= 1000000000;
  }
  pthread_cond_timedwait(&member->changed, &member->lock, &until);
}

static void *member_main(void *argument) {
  struct member *member = argument;
  int attempt = 0;
  pthread_mutex_lock(&member->lock);
  while (!member->is_stopping) {
    attempt = member_serve_stream(member) ? 0 : attempt + 1;
    if (!member->is_stopping)
      member_wait_locked(member, rpc_backoff_ms(attempt));
  }
  pthread_mutex_unlock(&member->lock);
  return NULL;
}

static void member_on_message(void *user, const void *message) {
  struct member *member = user;
  const Weir__Order *order = message;
  bool is_welcome = order->body_case == WEIR__ORDER__BODY_WELCOME, is_first = false, is_stale, is_early;
  uint64_t epoch;
  pthread_mutex_lock(&member->lock);
  epoch = member->epoch;
  is_stale = order->epoch < epoch;
  is_early = !is_welcome && !member->is_connected;
  if (!is_stale) {
    member->epoch = order->epoch;
    is_first = is_welcome && !member->is_connected;
    member->is_connected |= is_welcome;
  }
  pthread_mutex_unlock(&member->lock);
  if (is_stale || is_early)
    log_event(LOG_WARN, "member", "order_refused", "epoch=%llu newest=%llu before_welcome=%d",
              (unsigned long long)order->epoch, (unsigned long long)epoch, is_early);
  else if (is_first) {
    log_event(LOG_INFO, "member", "joined", "coordinator=%s id=%s", member->coordinator, order->welcome->id);
    if (member->options.on_connected)
      member->options.on_connected(member->options.user, order->welcome->id);
  } else if (!is_welcome)
    member->options.on_order(member->options.user, order);
}

static void member_on_end(void *user, const struct err *err) {
  struct member *member = user;
  pthread_mutex_lock(&member->lock);
  member->end = *err;
  member->has_ended = true;
  pthread_cond_signal(&member->changed);
  pthread_mutex_unlock(&member->lock);
}

/* Says Hello again on a new stream; under the lock, so that callbacks find the stream in its place. */
static void member_open_stream_locked(struct member *member) {
  struct rpc_stream_handlers handlers = {
      .on_message = member_on_message, .on_end = member_on_end, .user = member};
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_HELLO;
  message.hello = member->hello;
  member->has_ended = member->is_overrun = false;
  member->stream = rpc_stream_open(member->channel, RPC_JOIN, &handlers);
  rpc_stream_send(member->stream, &message);
}

static void member_beat_locked(struct member *member) {
  Weir__Heartbeat heartbeat = WEIR__HEARTBEAT__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT;
  message.heartbeat = &heartbeat;
  rpc_stream_send(member->stream, &message); /* a stream that takes no more will end by itself */
}

static bool member_is_over_locked(const struct member *member) {
  return member->has_ended || member->is_overrun || member->is_stopping;
}

/* One stream from Hello to its end. Called and left with the lock held. True if we were a member. */
static bool member_serve_stream(struct member *member) {
  struct rpc_stream *stream;
  struct err end;
  bool was_connected, is_stopping;
  member_open_stream_locked(member);
  while (!member_is_over_locked(member)) {
    member_wait_locked(member, HEARTBEAT_MS);
    if (!member_is_over_locked(member))
      member_beat_locked(member);
  }
  stream = member->stream;
  member->stream = NULL;
  pthread_mutex_unlock(&member->lock);
  rpc_stream_close(stream);
  pthread_mutex_lock(&member->lock);
  end = member->end;
  if (member->is_overrun)
    err_set(&end, ERR_BUSY, "%s takes no more messages", member->coordinator);
  was_connected = member->is_connected;
  is_stopping = member->is_stopping;
  member->is_connected = false;
  pthread_mutex_unlock(&member->lock);
  if (!is_stopping)
    member_log_end(member, was_connected, &end);
  if (was_connected && member->options.on_lost)
    member->options.on_lost(member->options.user, &end);
  pthread_mutex_lock(&member->lock);
  return was_connected;
}

/* Once for each cause: a coordinator that is away for an hour is one line. */
static void member_log_end(struct member *member, bool was_connected, const struct err *end) {
  if (!was_connected && strcmp(end->text, member->logged.text) == 0)
    return;
  log_event(LOG_WARN, "member", was_connected ? "lost" : "not_joined", "coordinator=%s code=%s error=\"%s\"",
            member->coordinator, err_name(end->code), end->text);
  member->logged = *end;
}
