/* Process-wide start and end, completion queues, channel arguments, outboxes. */
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/rpc/core.h"

enum { END_MS_MAX = 1000 };

static int users; /* calls of rpc_init whose rpc_fini is to come; atomic */

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
  __atomic_add_fetch(&users, 1, __ATOMIC_ACQ_REL);
}

/* Connections outlive their channels, on threads of gRPC's: where one has failed, for as long as gRPC would
   wait before the next, which is half a second. The end of the process must not take away what those threads
   use. */
void rpc_fini(void) {
  uint64_t until_ns = clock_now_ns() + END_MS_MAX * UINT64_C(1000000);
  grpc_shutdown();
  if (__atomic_sub_fetch(&users, 1, __ATOMIC_ACQ_REL))
    return;
  while (grpc_is_initialized() && clock_now_ns() < until_ns)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

void rpc_queue_open(struct rpc_queue *queue) {
  queue->cq = grpc_completion_queue_create_for_next(NULL);
}

static gpr_timespec queue_due(const struct rpc_queue *queue) {
  int64_t wait_ns;
  if (!queue->first)
    return gpr_inf_future(GPR_CLOCK_REALTIME);
  wait_ns = (int64_t)(queue->first->due_ns - clock_now_ns()); /* in the past: at once */
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(wait_ns, GPR_TIMESPAN));
}

static void queue_expire(struct rpc_queue *queue) {
  uint64_t now_ns = clock_now_ns();
  while (queue->first && queue->first->due_ns <= now_ns) {
    struct rpc_timer *timer = queue->first;
    rpc_timer_clear(queue, timer);
    timer->expired(timer);
  }
}

static void *queue_run(void *arg) {
  struct rpc_queue *queue = arg;
  grpc_event event;
  prctl(PR_SET_NAME, "calls"); /* in the system's lists, where other threads have names, too */
  while ((event = grpc_completion_queue_next(queue->cq, queue_due(queue), NULL)).type !=
         GRPC_QUEUE_SHUTDOWN) {
    if (event.type == GRPC_OP_COMPLETE) {
      RPC_TAKE_OVER(event.tag);
      ((struct rpc_event *)event.tag)->done(event.tag, event.success);
    }
    if (queue->first)
      queue_expire(queue);
  }
  return NULL;
}

void rpc_timer_set(struct rpc_queue *queue, struct rpc_timer *timer, uint64_t due_ns) {
  struct rpc_timer *before = queue->last;
  CHECK(!timer->is_set);
  while (before && before->due_ns > due_ns) /* most are set for the same wait: none is passed */
    before = before->before;
  timer->due_ns = due_ns;
  timer->is_set = true;
  timer->before = before;
  timer->after = before ? before->after : queue->first;
  *(timer->before ? &timer->before->after : &queue->first) = timer;
  *(timer->after ? &timer->after->before : &queue->last) = timer;
}

void rpc_timer_clear(struct rpc_queue *queue, struct rpc_timer *timer) {
  if (!timer->is_set)
    return;
  *(timer->before ? &timer->before->after : &queue->first) = timer->after;
  *(timer->after ? &timer->after->before : &queue->last) = timer->before;
  timer->is_set = false;
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

void rpc_args_add_text(struct rpc_args *args, const char *key, const char *value) {
  CHECK(args->list.num_args < RPC_ARGS_MAX);
  args->args[args->list.num_args++] =
      (grpc_arg){.type = GRPC_ARG_STRING, .key = (char *)key, .value.string = (char *)value};
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
