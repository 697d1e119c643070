/* The stream of a link's shared memory. */
#include "worker/train/transfer/link_share.h"

#include "common/base/clock.h"
#include "common/base/log.h"

static void on_send(void *user, const Weir__ShareMessage *message) {
  const struct link_share *share = user;
  rpc_stream_send(share->stream, message);
}

static void tell_locked(struct link_share *share) {
  if (share->is_told)
    return;
  share->is_told = true;
  log_event(LOG_INFO, "worker", "shares_memory", "run=%s server=%s", share->options->run,
            rpc_channel_target(share->channel));
}

/* A server that cannot map what we offer is elsewhere. */
static void on_message(void *user, const void *message) {
  const Weir__ShareMessage *said = message;
  struct link_share *share = user;
  struct err err;
  pthread_mutex_lock(&share->lock);
  share->attempt = 0;
  if (said->share) {
    share->id = said->share;
    share->parts_max = said->parts_max;
  }
  if (share_take(share->share, said, &err) ||
      (share_is_refused(share->share) && !share_is_up(share->share))) {
    log_event(LOG_DEBUG, "worker", "shares_no_memory", "run=%s server=%s reason=\"%.200s\"",
              share->options->run, rpc_channel_target(share->channel), err.code ? err.text : said->reason);
    share_close(share->share);
    if (!share->is_barred)
      rpc_stream_half_close(share->stream);
    share->is_barred = true;
  } else if (share_is_up(share->share))
    tell_locked(share);
  pthread_mutex_unlock(&share->lock);
}

static void on_end(void *user, const struct err *err) {
  struct link_share *share = user;
  uint64_t due_ns = 0;
  pthread_mutex_lock(&share->lock);
  share_close(share->share);
  share->is_over = true;
  share->is_barred |= !err_is_retryable(err->code);
  if (!share->is_barred)
    share->due_ns = due_ns = clock_now_ns() + (uint64_t)rpc_backoff_ms(share->attempt++) * 1000000;
  pthread_mutex_unlock(&share->lock);
  if (due_ns)
    share->note(share->transfers, due_ns);
}

static void open_locked(struct link_share *share) {
  struct rpc_stream_handlers handlers = {on_message, on_end, share};
  Weir__ShareMessage hello = WEIR__SHARE_MESSAGE__INIT;
  hello.run = (char *)share->options->run;
  hello.incarnation = share->options->incarnation;
  share->is_over = false;
  share->id = share->parts_max = 0;
  share->share = share_new(on_send, share);
  share->stream = rpc_stream_open_with(share->channel, RPC_SHARE, share->options->ticket, &handlers);
  rpc_stream_send(share->stream, &hello);
}

void link_share_begin(struct link_share *share) {
  pthread_mutex_init(&share->lock, NULL);
  share->is_barred = !segment_is_on();
  pthread_mutex_lock(&share->lock);
  if (!share->is_barred)
    open_locked(share);
  pthread_mutex_unlock(&share->lock);
}

static void close_stream(struct link_share *share) {
  struct rpc_stream *stream;
  pthread_mutex_lock(&share->lock);
  stream = share->stream;
  pthread_mutex_unlock(&share->lock);
  if (stream)
    rpc_stream_close(stream);
  pthread_mutex_lock(&share->lock);
  share_put(share->share);
  share->stream = NULL;
  share->share = NULL;
  pthread_mutex_unlock(&share->lock);
}

void link_share_end(struct link_share *share) {
  close_stream(share);
  pthread_mutex_destroy(&share->lock);
}

uint64_t link_share_step(struct link_share *share, uint64_t now_ns) {
  uint64_t due_ns = UINT64_MAX;
  bool is_due;
  pthread_mutex_lock(&share->lock);
  is_due = share->is_over && !share->is_barred && now_ns >= share->due_ns;
  if (share->is_over && !share->is_barred && !is_due)
    due_ns = share->due_ns;
  pthread_mutex_unlock(&share->lock);
  if (!is_due)
    return due_ns;
  close_stream(share);
  pthread_mutex_lock(&share->lock);
  open_locked(share);
  pthread_mutex_unlock(&share->lock);
  return UINT64_MAX;
}

struct shared_with link_share_get(struct link_share *share) {
  struct shared_with with;
  pthread_mutex_lock(&share->lock);
  with = (struct shared_with){NULL, share->id, share->parts_max};
  if (share->id && !share->is_over && !share->is_barred)
    with.share = share_get(share->share);
  pthread_mutex_unlock(&share->lock);
  return with;
}
