/* The link of a member to the coordinator. */
#include "common/rpc/member.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/message.h"

enum { HEARTBEAT_MS = 1000, SILENT_MS = 5000, OFFERED_MAX = 1024, WELCOME_MS = 3000, ROUNDS_SLOWER = 2 };
/* Channels look at the files every second: once the name was another so often, they have read it. */
enum { OTHER_NAME_LOOKS = 3 };

/* Where a coordinator may be. */
struct address {
  struct rpc_channel *channel;
  struct err logged; /* the last failure that was logged; the thread's own */
};

struct member {
  struct member_options options;
  Weir__Hello *hello;
  struct address *addresses; /* [n_addresses], in the order of the option */
  int n_addresses;
  pthread_t thread;

  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  int trying;                 /* the address of the stream */
  int joined;                 /* the address of the last membership; the first before there was one */
  struct rpc_stream *stream;  /* NULL between streams */
  bool is_connected;          /* Welcome came on this stream */
  uint64_t heard_ns;          /* of its newest order */
  uint64_t looked_ns;         /* at the silence since then; the thread's own */
  char shown[CERT_TEXT_SIZE]; /* whose certificate we had when the stream began; "": none. The thread's own */
  int other_names;            /* how often in a row it has been another's since; likewise */
  bool has_ended;             /* the stream has, with `end` */
  bool is_stopping;
  struct err end;
  struct err cut; /* why we end the stream ourselves; OK: we do not */
  char *id;       /* of the last membership */
  uint64_t term;  /* the highest seen */
};

static void *member_main(void *argument);
static bool member_serve_stream(struct member *member);
static void member_log_end(struct member *member, bool was_connected, const struct err *end);

static void member_open_channels(struct member *member) {
  char *list = mem_strdup(member->options.coordinator), *rest = list, *name;
  int capacity = 0;
  while ((name = strsep(&rest, ","))) {
    if (!*name && (rest || member->n_addresses > 0))
      continue;
    array_reserve((void **)&member->addresses, &capacity, member->n_addresses, sizeof *member->addresses);
    member->addresses[member->n_addresses++] =
        (struct address){.channel = rpc_channel_open(member->options.client, name, PEER_COORDINATOR)};
  }
  free(list);
}

struct member *member_start(const struct member_options *options) {
  struct member *member = mem_new(sizeof *member);
  member->options = *options;
  member->hello = message_copy(options->hello);
  if (member->options.silent_after_ms <= 0)
    member->options.silent_after_ms = SILENT_MS;
  member_open_channels(member);
  pthread_mutex_init(&member->lock, NULL);
  clock_condition_init(&member->changed);
  CHECK(pthread_create(&member->thread, NULL, member_main, member) == 0);
  return member;
}

static void member_cut_locked(struct member *member, enum err_code code, const char *why) {
  if (!member->cut.code)
    err_set(&member->cut, code, "%s: %s", rpc_channel_target(member->addresses[member->trying].channel), why);
  pthread_cond_signal(&member->changed);
}

int member_send(struct member *member, const Weir__MemberMessage *message) {
  int code = ERR_CANCELLED;
  pthread_mutex_lock(&member->lock);
  if (member->stream && member->is_connected)
    code = rpc_stream_send(member->stream, message);
  if (code == ERR_BUSY)
    member_cut_locked(member, ERR_BUSY, "it takes no more messages");
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
  for (int i = 0; i < member->n_addresses; i++)
    rpc_channel_close(member->addresses[i].channel);
  pthread_cond_destroy(&member->changed);
  pthread_mutex_destroy(&member->lock);
  message_free(member->hello);
  free(member->addresses);
  free(member->id);
  free(member);
}

struct rpc_channel *member_channel(struct member *member) {
  struct rpc_channel *channel;
  pthread_mutex_lock(&member->lock);
  channel = member->addresses[member->joined].channel;
  pthread_mutex_unlock(&member->lock);
  return channel;
}

/* Waits until something changed, at most timeout_ms. */
static void member_wait_locked(struct member *member, int timeout_ms) {
  struct timespec until = clock_after_ms(timeout_ms);
  pthread_cond_timedwait(&member->changed, &member->lock, &until);
}

/* Where we were members is tried again first: a coordinator that was restarted is there. Then the others,
   with a pause once each was tried. */
static void *member_main(void *argument) {
  struct member *member = argument;
  int failures = 0;
  pthread_mutex_lock(&member->lock);
  while (!member->is_stopping) {
    bool was_connected = member_serve_stream(member);
    int round;
    failures = was_connected ? 0 : failures + 1;
    if (!was_connected || member->cut.code == ERR_STALE || member->cut.code == ERR_TIMEOUT)
      member->trying = (member->trying + 1) % member->n_addresses;
    if (failures % member->n_addresses != 0 || member->is_stopping)
      continue;
    round = failures / member->n_addresses;
    member_wait_locked(member, rpc_backoff_ms(round < ROUNDS_SLOWER ? round : ROUNDS_SLOWER));
  }
  pthread_mutex_unlock(&member->lock);
  return NULL;
}

/* What an order is worth. */
enum verdict { ORDER_REFUSED, ORDER_WELCOME, ORDER_BEAT, ORDER_OBEYED };

static enum verdict member_judge_locked(struct member *member, const Weir__Order *order) {
  bool is_welcome = order->body_case == WEIR__ORDER__BODY_WELCOME;
  char why[128];
  if (order->term < member->term) {
    snprintf(why, sizeof why, "it is of term %llu, another coordinator leads with term %llu",
             (unsigned long long)order->term, (unsigned long long)member->term);
    member_cut_locked(member, ERR_STALE, why);
  }
  if (member->cut.code || is_welcome == member->is_connected)
    return ORDER_REFUSED;
  member->term = order->term;
  member->heard_ns = clock_now_ns();
  if (!is_welcome)
    return order->body_case == WEIR__ORDER__BODY_BEAT ? ORDER_BEAT : ORDER_OBEYED;
  member->is_connected = true;
  member->joined = member->trying;
  free(member->id);
  member->id = mem_strdup(order->welcome->id);
  return ORDER_WELCOME;
}

static void member_on_message(void *user, const void *message) {
  struct member *member = user;
  const Weir__Order *order = message;
  enum verdict verdict;
  const char *target;
  pthread_mutex_lock(&member->lock);
  verdict = member_judge_locked(member, order);
  target = rpc_channel_target(member->addresses[member->trying].channel);
  pthread_mutex_unlock(&member->lock);
  if (verdict == ORDER_REFUSED)
    log_event(LOG_WARN, "member", "order_refused", "coordinator=%s term=%llu body=%d", target,
              (unsigned long long)order->term, (int)order->body_case);
  else if (verdict == ORDER_WELCOME) {
    log_event(LOG_INFO, "member", "joined", "coordinator=%s id=%s term=%llu", target, order->welcome->id,
              (unsigned long long)order->term);
    if (member->options.on_connected)
      member->options.on_connected(member->options.user, order->welcome->id);
  } else if (verdict == ORDER_OBEYED)
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

/* Says Hello on a new stream. Called and left with the lock held, given up while the owner says what it has;
   the stream is opened under it, so that callbacks find the stream in its place. */
static void member_open_stream_locked(struct member *member) {
  struct rpc_stream_handlers handlers = {
      .on_message = member_on_message, .on_end = member_on_end, .user = member};
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__Hello hello = *member->hello;
  struct arena arena;
  arena_init(&arena);
  hello.id = arena_strdup(&arena, member->id ? member->id : "");
  hello.term = member->term;
  pthread_mutex_unlock(&member->lock);
  if (member->options.on_hello)
    member->options.on_hello(member->options.user, &hello, &arena);
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_HELLO;
  message.hello = &hello;
  pthread_mutex_lock(&member->lock);
  member->has_ended = false;
  member->end = member->cut = ERR_NONE;
  member->stream = rpc_stream_open(member->addresses[member->trying].channel, RPC_JOIN, &handlers);
  rpc_stream_send(member->stream, &message);
  arena_fini(&arena);
}

static bool member_is_over_locked(const struct member *member) {
  return member->has_ended || member->cut.code || member->is_stopping;
}

/* Called and left with the lock held, given up while the owner says how it is: what it says is told under
   locks that it takes. */
static void member_beat_locked(struct member *member) {
  Weir__Heartbeat heartbeat = WEIR__HEARTBEAT__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  struct arena arena;
  arena_init(&arena);
  pthread_mutex_unlock(&member->lock);
  if (member->options.on_beat)
    member->options.on_beat(member->options.user, &heartbeat, &arena);
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT;
  message.heartbeat = &heartbeat;
  pthread_mutex_lock(&member->lock);
  if (!member_is_over_locked(member))
    rpc_stream_send(member->stream, &message); /* a stream that takes no more will end by itself */
  arena_fini(&arena);
}

/* Silence counts only while we listened: where this thread did not wake in time it was we who were away, on a
   frozen machine perhaps, and what the coordinator said meanwhile is still to be read. */
static void member_look_locked(struct member *member) {
  uint64_t now_ns = clock_now_ns(), away_ns = now_ns - member->looked_ns;
  uint64_t silent_ns = now_ns > member->heard_ns ? now_ns - member->heard_ns : 0;
  member->looked_ns = now_ns;
  if (away_ns > 2 * HEARTBEAT_MS * UINT64_C(1000000)) {
    member->heard_ns += silent_ns < away_ns ? silent_ns : away_ns;
    return;
  }
  if (member->is_connected && silent_ns > (uint64_t)member->options.silent_after_ms * 1000000) {
    char why[64];
    snprintf(why, sizeof why, "it has said nothing for %.1f s", clock_seconds(silent_ns));
    member_cut_locked(member, ERR_TIMEOUT, why);
  }
}

/* Tickets are given to the name that the coordinator knows us by. */
static void member_look_at_name_locked(struct member *member) {
  struct rpc_channel *channel = member->addresses[member->trying].channel;
  char uri[CERT_TEXT_SIZE], why[CERT_TEXT_SIZE + 64];
  if (!*member->shown || !rpc_tls_holder(rpc_channel_tls(channel), uri) || strcmp(uri, member->shown) == 0) {
    member->other_names = 0;
    return;
  }
  if (++member->other_names < OTHER_NAME_LOOKS)
    return;
  snprintf(why, sizeof why, "our certificate is that of %s now", uri);
  rpc_channel_renew(channel);
  member_cut_locked(member, ERR_EXPIRED, why);
}

static void member_note_name_locked(struct member *member) {
  const struct rpc_tls *tls = rpc_channel_tls(member->addresses[member->trying].channel);
  member->other_names = 0;
  if (!tls || !rpc_tls_holder(tls, member->shown))
    *member->shown = '\0';
}

/* One stream from Hello to its end. Called and left with the lock held. True if we were a member. */
static bool member_serve_stream(struct member *member) {
  uint64_t begun_ns = member->looked_ns = clock_now_ns();
  struct rpc_stream *stream;
  struct err end;
  bool was_connected, is_stopping;
  member_note_name_locked(member);
  member_open_stream_locked(member);
  while (!member_is_over_locked(member)) {
    member_wait_locked(member, HEARTBEAT_MS);
    if (!member->is_connected && member->n_addresses > 1 &&
        clock_now_ns() - begun_ns > WELCOME_MS * 1000000ull)
      member_cut_locked(member, ERR_TIMEOUT, "it does not answer");
    member_look_locked(member);
    member_look_at_name_locked(member);
    if (!member_is_over_locked(member))
      member_beat_locked(member);
  }
  stream = member->stream;
  member->stream = NULL;
  pthread_mutex_unlock(&member->lock);
  rpc_stream_close(stream);
  pthread_mutex_lock(&member->lock);
  end = member->cut.code ? member->cut : member->end;
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

/* Once for each address and cause: a coordinator that is away for an hour is one line. */
static void member_log_end(struct member *member, bool was_connected, const struct err *end) {
  struct address *address = &member->addresses[member->trying];
  struct err explained = *end;
  if (!was_connected && strcmp(end->text, address->logged.text) == 0)
    return;
  address->logged = *end;
  if (!was_connected)
    rpc_channel_explain(address->channel, &explained);
  log_event(LOG_WARN, "member", was_connected ? "lost" : "not_joined", "coordinator=%s code=%s error=\"%s\"",
            rpc_channel_target(address->channel), err_name(end->code), explained.text);
}
