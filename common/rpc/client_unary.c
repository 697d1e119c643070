/* Asynchronous unary calls. Sending is a batch of its own: on_sent frees window space while a call is parked.
 */
#include <grpc/slice.h>
#include <stdlib.h>

#include "common/rpc/client_core.h"

struct rpc_request_state {
  struct rpc_request *request;
  struct rpc_channel *channel;
  const struct rpc_method_def *def;
  int deadline_ms;
  grpc_call *call;
  struct rpc_event sent, received;
  struct rpc_opening opening;
  struct rpc_ending ending;
  grpc_byte_buffer *reply;
  pthread_mutex_t lock; /* orders request_start, on whatever thread, before the events */
  bool is_sent, is_received;
};

static void on_sent(struct rpc_event *event, bool ok);
static void on_received(struct rpc_event *event, bool ok);

static void request_start(struct rpc_request_state *state, grpc_byte_buffer *message) {
  grpc_op send[3] = {
      {.op = GRPC_OP_SEND_INITIAL_METADATA},
      {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message},
      {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
  };
  grpc_op receive[3] = {
      {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &state->reply},
  };
  rpc_opening_init(&state->opening, state->request->ticket, send);
  rpc_ending_ops(&state->ending, receive + 1);
  /* The events wait for the lock, so that the state lives until both batches have begun. */
  pthread_mutex_lock(&state->lock);
  rpc_start_batch(state->call, send, 3, &state->sent);
  rpc_start_batch(state->call, receive, 3, &state->received);
  pthread_mutex_unlock(&state->lock);
}

void rpc_request_start(struct rpc_request *request, struct rpc_channel *channel,
                       const struct rpc_question *question, const struct rpc_payload *payload) {
  struct rpc_request_state *state = mem_new(sizeof *state);
  grpc_byte_buffer *wire;
  state->request = request;
  state->channel = channel;
  state->def = &rpc_method_defs[question->method];
  state->deadline_ms = question->deadline_ms;
  state->sent.done = on_sent;
  state->received.done = on_received;
  pthread_mutex_init(&state->lock, NULL);
  rpc_ending_init(&state->ending);
  state->call = rpc_channel_call(channel, channel->queue->cq, question->method, question->deadline_ms);
  request->state = state;
  wire = wire_write(&state->def->request, question->message, payload);
  request_start(state, wire);
  grpc_byte_buffer_destroy(wire);
}

void rpc_request_cancel(struct rpc_request *request) {
  grpc_call_cancel(request->state->call, NULL);
}

static void request_finish(struct rpc_request_state *state) {
  struct err err = ERR_NONE;
  struct wire_message got = {0};
  rpc_ending_err(&state->ending, state->channel, state->deadline_ms, &err);
  if (!err.code && !state->reply)
    err_set(&err, ERR_INTERNAL, "%s: the answer is empty", state->channel->target);
  if (!err.code)
    rpc_channel_check(state->channel, state->call, &err);
  if (!err.code && wire_read(&state->def->reply, state->reply, &got, &err))
    err_prefix(&err, "%s", state->channel->target);
  if (state->reply)
    grpc_byte_buffer_destroy(state->reply);
  state->request->on_done(state->request, &err, got.message, got.bytes);
  if (got.message)
    protobuf_c_message_free_unpacked(got.message, NULL);
  grpc_call_unref(state->call);
  rpc_opening_fini(&state->opening);
  rpc_ending_fini(&state->ending);
  pthread_mutex_destroy(&state->lock);
  free(state);
}

static void on_sent(struct rpc_event *event, bool ok) {
  struct rpc_request_state *state = RPC_EVENT_OWNER(event, struct rpc_request_state, sent);
  bool is_over;
  pthread_mutex_lock(&state->lock);
  state->request->is_written = ok;
  state->is_sent = true;
  is_over = state->is_received;
  pthread_mutex_unlock(&state->lock);
  if (state->request->on_sent)
    state->request->on_sent(state->request);
  if (is_over)
    request_finish(state);
}

static void on_received(struct rpc_event *event, bool ok) {
  struct rpc_request_state *state = RPC_EVENT_OWNER(event, struct rpc_request_state, received);
  bool is_over;
  (void)ok;
  pthread_mutex_lock(&state->lock);
  state->is_received = true;
  is_over = state->is_sent; /* else on_sent comes first */
  pthread_mutex_unlock(&state->lock);
  if (is_over)
    request_finish(state);
}
