/* Asynchronous bidirectional streams. Events come on the one thread of the channel's queue. */
#include <grpc/slice.h>
#include <stdlib.h>

#include "common/rpc/client_core.h"

struct rpc_stream {
  struct rpc_stream_handlers handlers;
  struct rpc_channel *channel;
  const struct rpc_method_def *def;
  grpc_call *call;
  struct rpc_event sent, received, ended;
  struct rpc_opening opening;
  struct rpc_ending ending;
  grpc_byte_buffer *incoming;
  struct err refusal; /* of a message that did not parse */

  pthread_mutex_t lock;
  pthread_cond_t over;
  struct rpc_outbox outbox;
  bool is_sending, is_receiving;
  bool is_half_closed, is_close_sent; /* asked for; done */
  bool has_ended, is_over;            /* the status is here; on_end returned */
};

static void on_sent(struct rpc_event *event, bool ok);
static void on_received(struct rpc_event *event, bool ok);
static void on_ended(struct rpc_event *event, bool ok);

static void receive_locked(struct rpc_stream *stream) {
  grpc_op batch = {.op = GRPC_OP_RECV_MESSAGE};
  batch.data.recv_message.recv_message = &stream->incoming;
  stream->is_receiving = true;
  rpc_start_batch(stream->call, &batch, 1, &stream->received);
}

struct rpc_stream *rpc_stream_open(struct rpc_channel *channel, enum rpc_method_id method,
                                   const struct rpc_stream_handlers *handlers) {
  return rpc_stream_open_with(channel, method, NULL, handlers);
}

struct rpc_stream *rpc_stream_open_with(struct rpc_channel *channel, enum rpc_method_id method,
                                        const char *ticket, const struct rpc_stream_handlers *handlers) {
  struct rpc_stream *stream = mem_new(sizeof *stream);
  grpc_op begin = {.op = GRPC_OP_SEND_INITIAL_METADATA}, end[2];
  stream->handlers = *handlers;
  stream->channel = channel;
  stream->def = &rpc_method_defs[method];
  stream->sent.done = on_sent;
  stream->received.done = on_received;
  stream->ended.done = on_ended;
  pthread_mutex_init(&stream->lock, NULL);
  pthread_cond_init(&stream->over, NULL);
  rpc_outbox_init(&stream->outbox);
  rpc_ending_init(&stream->ending);
  rpc_ending_ops(&stream->ending, end);
  rpc_opening_init(&stream->opening, ticket, &begin);
  stream->call = rpc_channel_call(channel, channel->queue->cq, method, -1);
  pthread_mutex_lock(&stream->lock);
  stream->is_sending = true;
  rpc_start_batch(stream->call, &begin, 1, &stream->sent);
  rpc_start_batch(stream->call, end, 2, &stream->ended);
  receive_locked(stream);
  pthread_mutex_unlock(&stream->lock);
  return stream;
}

/* The next message, or the half-close after the last one, if nothing is on its way. */
static void send_next_locked(struct rpc_stream *stream) {
  grpc_op op = {0};
  grpc_byte_buffer *message;
  if (stream->is_sending || stream->has_ended)
    return;
  message = rpc_outbox_take(&stream->outbox);
  if (message) {
    op.op = GRPC_OP_SEND_MESSAGE;
    op.data.send_message.send_message = message;
  } else if (stream->is_half_closed && !stream->is_close_sent) {
    op.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    stream->is_close_sent = true;
  } else {
    return;
  }
  stream->is_sending = true;
  rpc_start_batch(stream->call, &op, 1, &stream->sent);
  if (message)
    grpc_byte_buffer_destroy(message);
}

int rpc_stream_send(struct rpc_stream *stream, const void *message) {
  int code = ERR_OK;
  pthread_mutex_lock(&stream->lock);
  CHECK(!stream->is_half_closed);
  if (stream->has_ended)
    code = ERR_CANCELLED;
  else if (stream->outbox.count >= RPC_OUTBOX_MAX)
    code = ERR_BUSY;
  else
    rpc_outbox_add(&stream->outbox, wire_write(&stream->def->request, message, NULL));
  send_next_locked(stream);
  pthread_mutex_unlock(&stream->lock);
  return code;
}

int rpc_stream_waiting(struct rpc_stream *stream) {
  int waiting;
  pthread_mutex_lock(&stream->lock);
  waiting = (int)stream->outbox.count;
  pthread_mutex_unlock(&stream->lock);
  return waiting;
}

void rpc_stream_half_close(struct rpc_stream *stream) {
  pthread_mutex_lock(&stream->lock);
  stream->is_half_closed = true;
  send_next_locked(stream);
  pthread_mutex_unlock(&stream->lock);
}

/* on_end follows once nothing else can. */
static void stream_settle(struct rpc_stream *stream) {
  struct err err;
  bool is_settled;
  pthread_mutex_lock(&stream->lock);
  is_settled = stream->has_ended && !stream->is_sending && !stream->is_receiving;
  pthread_mutex_unlock(&stream->lock);
  if (!is_settled)
    return;
  rpc_ending_err(&stream->ending, stream->channel, -1, &err);
  stream->handlers.on_end(stream->handlers.user, stream->refusal.code ? &stream->refusal : &err);
  pthread_mutex_lock(&stream->lock);
  stream->is_over = true;
  pthread_cond_broadcast(&stream->over);
  pthread_mutex_unlock(&stream->lock); /* may be freed from here on */
}

static void on_sent(struct rpc_event *event, bool ok) {
  struct rpc_stream *stream = RPC_EVENT_OWNER(event, struct rpc_stream, sent);
  pthread_mutex_lock(&stream->lock);
  stream->is_sending = false;
  if (ok)
    send_next_locked(stream);
  pthread_mutex_unlock(&stream->lock);
  stream_settle(stream);
}

static void on_received(struct rpc_event *event, bool ok) {
  struct rpc_stream *stream = RPC_EVENT_OWNER(event, struct rpc_stream, received);
  struct wire_message got = {0};
  grpc_byte_buffer *wire;
  (void)ok;
  pthread_mutex_lock(&stream->lock);
  wire = stream->incoming;
  stream->incoming = NULL;
  pthread_mutex_unlock(&stream->lock);
  if (wire && rpc_channel_check(stream->channel, stream->call, &stream->refusal) == 0 &&
      wire_read(&stream->def->reply, wire, &got, &stream->refusal))
    err_prefix(&stream->refusal, "%s", stream->channel->target);
  if (stream->refusal.code)
    grpc_call_cancel(stream->call, NULL);
  if (wire)
    grpc_byte_buffer_destroy(wire);
  if (got.message)
    stream->handlers.on_message(stream->handlers.user, got.message);
  pthread_mutex_lock(&stream->lock);
  stream->is_receiving = false;
  if (got.message)
    receive_locked(stream);
  pthread_mutex_unlock(&stream->lock);
  wire_message_fini(&got);
  stream_settle(stream);
}

static void on_ended(struct rpc_event *event, bool ok) {
  struct rpc_stream *stream = RPC_EVENT_OWNER(event, struct rpc_stream, ended);
  (void)ok;
  pthread_mutex_lock(&stream->lock);
  stream->has_ended = true;
  rpc_outbox_clear(&stream->outbox);
  pthread_mutex_unlock(&stream->lock);
  stream_settle(stream);
}

void rpc_stream_close(struct rpc_stream *stream) {
  grpc_call_cancel(stream->call, NULL);
  pthread_mutex_lock(&stream->lock);
  while (!stream->is_over)
    pthread_cond_wait(&stream->over, &stream->lock);
  pthread_mutex_unlock(&stream->lock);
  grpc_call_unref(stream->call);
  rpc_opening_fini(&stream->opening);
  rpc_ending_fini(&stream->ending);
  pthread_cond_destroy(&stream->over);
  pthread_mutex_destroy(&stream->lock);
  free(stream);
}
