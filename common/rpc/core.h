/* What the files of this folder share: completion queues, the method table, channel arguments. */
#ifndef WEIR_COMMON_RPC_CORE_H
#define WEIR_COMMON_RPC_CORE_H

#include <grpc/grpc.h>
#include <pthread.h>

#include "common/rpc/callers.h"
#include "common/rpc/rpc.h"
#include "common/rpc/wire.h"

/* The tag of every operation; embedded in the struct that waits for it. ok is not success: it says that the
   operation took place. Runs on the queue's thread. */
struct rpc_event {
  void (*done)(struct rpc_event *event, bool ok);
};

#define RPC_EVENT_OWNER(event, type, field) ((type *)(void *)((char *)(event)-offsetof(type, field)))

/* Something that is to happen at a time, on a queue's thread, which alone sets and clears it. */
struct rpc_timer {
  void (*expired)(struct rpc_timer *timer); /* it is set no more, and may be set again */
  uint64_t due_ns;                          /* by clock_now_ns */
  bool is_set;
  struct rpc_timer *before, *after; /* by due_ns */
};

/* A completion queue and its only thread: the events of one call never overlap. */
struct rpc_queue {
  grpc_completion_queue *cq;
  pthread_t thread;
  struct rpc_timer *first, *last; /* that are set */
};

void rpc_timer_set(struct rpc_queue *queue, struct rpc_timer *timer, uint64_t due_ns);
void rpc_timer_clear(struct rpc_queue *queue, struct rpc_timer *timer); /* also one that is not set */

void rpc_queue_open(struct rpc_queue *queue); /* may be registered with a server before its thread runs */
void rpc_queue_start(struct rpc_queue *queue);
void rpc_queue_stop(struct rpc_queue *queue);  /* no operation may be outstanding; joins the thread */
void rpc_queue_close(struct rpc_queue *queue); /* after stop */

/* Starts a batch whose end is the event. */
void rpc_start_batch(grpc_call *call, const grpc_op *ops, size_t n_ops, struct rpc_event *event);

/* What one thread gives to another through gRPC: ThreadSanitizer cannot see into it. */
#ifdef __SANITIZE_THREAD__
void __tsan_release(void *);
void __tsan_acquire(void *);
#define RPC_HAND_OVER(thing) __tsan_release(thing)
#define RPC_TAKE_OVER(thing) __tsan_acquire(thing)
#else
#define RPC_HAND_OVER(thing) ((void)(thing))
#define RPC_TAKE_OVER(thing) ((void)(thing))
#endif

/* The metadata in which a caller's ticket travels. */
#define RPC_TICKET_KEY "weir-ticket"

struct rpc_method_def {
  const char *path;
  struct wire_type request, reply;
  enum rpc_callers callers;
};

extern const struct rpc_method_def rpc_method_defs[RPC_METHODS];

/* "weir.Training" of "/weir.Training/ListRuns"; out has room for the whole path. */
void rpc_method_service(enum rpc_method_id id, char *out, size_t size);

enum { RPC_ARGS_MAX = 24 };

/* Channel arguments of both sides; more are added with rpc_args_add. */
struct rpc_args {
  grpc_channel_args list;
  grpc_arg args[RPC_ARGS_MAX];
};

void rpc_args_init(struct rpc_args *args);
void rpc_args_add(struct rpc_args *args, const char *key, int value);
void rpc_args_add_text(struct rpc_args *args, const char *key, const char *value); /* kept by the caller */

/* Messages that wait for the one before them to be written. The caller that adds bounds them. */
struct rpc_outbox {
  struct rpc_outbox_item *first, **end;
  size_t count;
};

enum { RPC_OUTBOX_MAX = 4096 };

void rpc_outbox_init(struct rpc_outbox *outbox);
void rpc_outbox_add(struct rpc_outbox *outbox, grpc_byte_buffer *message); /* takes it */
grpc_byte_buffer *rpc_outbox_take(struct rpc_outbox *outbox);              /* the oldest, or NULL */
void rpc_outbox_clear(struct rpc_outbox *outbox);

#endif
