/* Blocking calls: a queue of their own, on which the calling thread waits. */
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/rpc/client_core.h"

struct rpc_reader {
  struct rpc_channel *channel;
  const struct rpc_method_def *def;
  int deadline_ms;
  grpc_completion_queue *cq;
  grpc_call *call;
  struct rpc_opening opening;
  struct rpc_ending ending;
  bool has_ended; /* the ending is known */
};

/* Starts the operations and waits until they are done. */
static bool reader_perform(struct rpc_reader *reader, const grpc_op *op) {
  CHECK(grpc_call_start_batch(reader->call, op, 1, reader, NULL) == GRPC_CALL_OK);
  return grpc_completion_queue_pluck(reader->cq, reader, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).success;
}

struct rpc_reader *rpc_reader_open(struct rpc_channel *channel, enum rpc_method_id method, int deadline_ms) {
  return rpc_reader_open_with(channel, method, deadline_ms, NULL);
}

struct rpc_reader *rpc_reader_open_with(struct rpc_channel *channel, enum rpc_method_id method,
                                        int deadline_ms, const char *ticket) {
  struct rpc_reader *reader = mem_new(sizeof *reader);
  grpc_op ops[3];
  reader->channel = channel;
  reader->def = &rpc_method_defs[method];
  reader->deadline_ms = deadline_ms;
  reader->cq = grpc_completion_queue_create_for_pluck(NULL);
  reader->call = rpc_channel_call(channel, reader->cq, method, deadline_ms);
  rpc_ending_init(&reader->ending);
  rpc_opening_init(&reader->opening, ticket, ops);
  rpc_ending_ops(&reader->ending, ops + 1);
  CHECK(grpc_call_start_batch(reader->call, ops, 3, &reader->ending, NULL) == GRPC_CALL_OK);
  return reader;
}

static void wait_for_ending(struct rpc_reader *reader) {
  if (!reader->has_ended)
    grpc_completion_queue_pluck(reader->cq, &reader->ending, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
  reader->has_ended = true;
}

static int reader_err(struct rpc_reader *reader, struct err *err) {
  wait_for_ending(reader);
  return rpc_ending_err(&reader->ending, reader->channel, reader->deadline_ms, err);
}

int rpc_reader_send(struct rpc_reader *reader, const void *request, struct err *err) {
  grpc_byte_buffer *wire = wire_write(&reader->def->request, request, NULL);
  grpc_op batch = {.op = GRPC_OP_SEND_MESSAGE};
  bool is_sent;
  batch.data.send_message.send_message = wire;
  is_sent = reader_perform(reader, &batch);
  grpc_byte_buffer_destroy(wire);
  if (is_sent)
    return ERR_OK;
  if (reader_err(reader, err))
    return err->code;
  return err_set(err, ERR_CANCELLED, "%s: the server has ended the stream", reader->channel->target);
}

void rpc_reader_half_close(struct rpc_reader *reader) {
  grpc_op batch = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
  reader_perform(reader, &batch);
}

int rpc_reader_next(struct rpc_reader *reader, void **reply, struct err *err) {
  struct wire_message got = {0};
  grpc_byte_buffer *wire = NULL;
  grpc_op batch = {.op = GRPC_OP_RECV_MESSAGE};
  batch.data.recv_message.recv_message = &wire;
  *reply = NULL;
  reader_perform(reader, &batch);
  if (!wire)
    return reader_err(reader, err);
  if (rpc_channel_check(reader->channel, reader->call, err) == 0 &&
      wire_read(&reader->def->reply, wire, &got, err))
    err_prefix(err, "%s", reader->channel->target);
  grpc_byte_buffer_destroy(wire);
  if (!got.message)
    return err->code;
  rpc_bytes_free(got.bytes);
  *reply = got.message;
  return ERR_OK;
}

void rpc_reader_cancel(struct rpc_reader *reader) {
  grpc_call_cancel(reader->call, NULL);
}

void rpc_reader_close(struct rpc_reader *reader) {
  grpc_call_cancel(reader->call, NULL);
  wait_for_ending(reader);
  grpc_call_unref(reader->call);
  rpc_opening_fini(&reader->opening);
  rpc_ending_fini(&reader->ending);
  grpc_completion_queue_shutdown(reader->cq);
  grpc_completion_queue_destroy(reader->cq);
  free(reader);
}

static int unary_once(struct rpc_channel *channel, const struct rpc_question *question, void **reply,
                      struct err *err) {
  struct rpc_reader *reader = rpc_reader_open(channel, question->method, question->deadline_ms);
  int code = rpc_reader_send(reader, question->message, err);
  if (!code) {
    rpc_reader_half_close(reader);
    code = rpc_reader_next(reader, reply, err);
  }
  if (!code)
    code = reader_err(reader, err);
  if (!code && !*reply)
    code = err_set(err, ERR_INTERNAL, "%s: the answer is empty", reader->channel->target);
  if (code && *reply) {
    protobuf_c_message_free_unpacked(*reply, NULL);
    *reply = NULL;
  }
  rpc_reader_close(reader);
  return code;
}

static void pause_ms(int ms) {
  struct timespec pause = {ms / 1000, ms % 1000 * 1000000L};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

int rpc_unary(struct rpc_channel *channel, const struct rpc_question *question, bool retry, void **reply,
              struct err *err) {
  uint64_t begin_ns = clock_now_ns();
  struct rpc_question attempted = *question;
  *reply = NULL;
  for (int attempt = 0;; attempt++) {
    int pause = rpc_backoff_ms(attempt);
    if (unary_once(channel, &attempted, reply, err) == ERR_OK)
      return ERR_OK;
    if (!retry || !err_is_retryable(err->code))
      return err->code;
    if (question->deadline_ms >= 0) {
      attempted.deadline_ms = question->deadline_ms - (int)((clock_now_ns() - begin_ns) / 1000000) - pause;
      if (attempted.deadline_ms <= 0)
        return err->code;
    }
    pause_ms(pause);
  }
}
