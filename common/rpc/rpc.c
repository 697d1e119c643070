/* Process-wide start and end, completion queues, channel arguments, outboxes. */
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <malloc.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/rpc/core.h"

struct rpc_outbox_item {
  struct rpc_outbox_item *next;
  grpc_byte_buffer *message;
};

/* gRPC logs what it also returns; it belongs into our log, for whoever debugs. */
static void log_from_grpc(gpr_log_func_args *args) {
  log_event(LOG_DEBUG, "grpc", "message", "at=%s:%d text=\"%s\"", args->file, args->line, args->message);
}

void rpc_init(void) {
  gpr_set_log_function(log_from_grpc);
  /* Received blocks come and go by the thousand a second. By default malloc hands such sizes back to the
     kernel each time, and the page faults cost more than moving the bytes. */
  mallopt(M_MMAP_THRESHOLD, 4 * 1024 * 1024);
  mallopt(M_TRIM_THRESHOLD, 64 * 1024 * 1024);
  grpc_init();
}

void rpc_fini(void) {
  grpc_shutdown();
}

void rpc_queue_open(struct rpc_queue *queue) {
  queue->cq = grpc_completion_queue_create_for_next(NULL);
}

static void *queue_run(void *arg) {
  struct rpc_queue *queue = arg;
  grpc_event event;
  while ((event = grpc_completion_queue_next(queue->cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL)).type !=
         GRPC_QUEUE_SHUTDOWN) {
    RPC_TAKE_OVER(event.tag);
    ((struct rpc_event *)event.tag)->done(event.tag, event.success);
  }
  return NULL;
}

void rpc_queue_start(struct rpc_queue *queue) {
  CHECK(pthread_create(&queue->thread, NULL, queue_run, queue) == 0);
}

void rpc_queue_stop(struct rpc_queue *queue) {
  grpc_completion_queue_shutdown(queue->cq);
  pthread_join(queue->thread, NULL);
}

void rpc_queue_close(struct rpc_queue *queue) {
  grpc_completion_queue_destroy(queue->cq);
}

void rpc_start_batch(grpc_call *call, const grpc_op *ops, size_t n_ops, struct rpc_event *event) {
  RPC_HAND_OVER(event);
  CHECK(grpc_call_start_batch(call, ops, n_ops, event, NULL) == GRPC_CALL_OK);
}

void rpc_args_init(struct rpc_args *args) {
  args->list = (grpc_channel_args){0, args->args};
  rpc_args_add(args, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, WIRE_MESSAGE_BYTES_MAX);
  rpc_args_add(args, GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
  rpc_args_add(args, GRPC_ARG_ENABLE_CHANNELZ, 0);
  rpc_args_add(args, GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
  rpc_args_add(args, GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1024 * 1024); /* a block never waits for window */
  /* Calls may be parked for long on a silent connection: keepalive finds out when its other end is gone. */
  rpc_args_add(args, GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  rpc_args_add(args, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  rpc_args_add(args, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  rpc_args_add(args, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

void rpc_args_add(struct rpc_args *args, const char *key, int value) {
  CHECK(args->list.num_args < RPC_ARGS_MAX);
  args->args[args->list.num_args++] =
      (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

void rpc_outbox_init(struct rpc_outbox *outbox) {
  *outbox = (struct rpc_outbox){.end = &outbox->first};
}

void rpc_outbox_add(struct rpc_outbox *outbox, grpc_byte_buffer *message) {
  struct rpc_outbox_item *item = mem_new(sizeof *item);
  item->message = message;
  *outbox->end = item;
  outbox->end = &item->next;
  outbox->count++;
}

grpc_byte_buffer *rpc_outbox_take(struct rpc_outbox *outbox) {
  struct rpc_outbox_item *item = outbox->first;
  grpc_byte_buffer *message;
  if (!item)
    return NULL;
  message = item->message;
  if (!(outbox->first = item->next))
    outbox->end = &outbox->first;
  outbox->count--;
  free(item);
  return message;
}

void rpc_outbox_clear(struct rpc_outbox *outbox) {
  grpc_byte_buffer *message;
  while ((message = rpc_outbox_take(outbox)))
    grpc_byte_buffer_destroy(message);
}
