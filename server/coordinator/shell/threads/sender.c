/* Sends large blobs as streams of chunks. */
#include "server/coordinator/shell/threads/sender.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "server/coordinator/shell/reading/reads.h"
#include "server/coordinator/shell/threads/tasks.h"
#include "training.pb-c.h"

enum { CHUNKS_WAITING_MAX = 4, CHUNKS_A_TURN_MAX = 16, LOOK_AGAIN_MS = 2 };

struct sending {
  struct task task;
  struct sender *sender;
  struct rpc_call *call;
  struct buffer *blob;
  struct sender_source source; /* next NULL: there is only the blob */
  const char *data;
  size_t size, sent; /* of data */
  bool has_ended;    /* all was sent */
  struct err err;
  uint64_t moved_ns; /* when a chunk last went, or it began */
  struct sending *next;
};

struct sender {
  struct task_thread *thread;
  int unread_ms;
  struct sending *list; /* the thread's own, */
  bool is_behind;       /* as this: some had more to send when their turn was over */
};

static int send_some(void *user);
static bool sending_refill(struct sending *sending);
static bool send_chunks(struct sending *sending);
static void sending_begin(struct task *task);

struct sender *sender_start(int unread_ms) {
  struct sender *sender = mem_new(sizeof *sender);
  sender->unread_ms = unread_ms;
  sender->thread = task_thread_start(&(struct task_thread_options){.on_turn = send_some, .user = sender});
  return sender;
}

static void sending_start(const struct sending *sending) {
  struct sending *copy = mem_new(sizeof *copy);
  *copy = *sending;
  copy->task.run = sending_begin;
  task_post(copy->sender->thread, &copy->task); /* one a call, and calls are bounded by the connections */
}

void sender_send(struct sender *sender, struct rpc_call *call, struct buffer *blob) {
  sending_start(&(struct sending){
      .sender = sender, .call = call, .blob = blob, .data = blob->data, .size = blob->size_bytes});
}

void sender_send_source(struct sender *sender, struct rpc_call *call, const struct sender_source *source) {
  sending_start(&(struct sending){.sender = sender, .call = call, .source = *source});
}

void sender_finish(struct rpc_call *call, const struct err *err) {
  struct read *read = rpc_call_user(call);
  rpc_call_finish(call, err);
  read_end(read);
}

void sender_stop(struct sender *sender) {
  if (!sender)
    return;
  task_thread_stop(sender->thread);
  CHECK(!sender->list);
  free(sender);
}

static void sending_begin(struct task *task) {
  struct sending *sending = TASK_OWNER(task, struct sending, task);
  sending->moved_ns = clock_now_ns();
  sending->next = sending->sender->list;
  sending->sender->list = sending;
}

static void sending_end(struct sending *sending) {
  const struct sender *sender = sending->sender;
  if (!sending->has_ended)
    err_set(&sending->err, ERR_CANCELLED, "the client read nothing for %.3g s", sender->unread_ms / 1e3);
  sender_finish(sending->call, sending->err.code ? &sending->err : NULL);
  if (sending->source.next)
    sending->source.close(sending->source.user);
  buffer_put(sending->blob);
  free(sending);
}

/* Nothing tells when a client has read, so all are looked at in turns, and one that reads as fast as it is
   sent does not keep the others waiting. */
static int send_some(void *user) {
  struct sender *sender = user;
  struct sending **at = &sender->list, *sending;
  sender->is_behind = false;
  while ((sending = *at)) {
    if (send_chunks(sending)) {
      at = &sending->next;
      continue;
    }
    *at = sending->next;
    sending_end(sending);
  }
  if (sender->is_behind)
    return 0;
  return sender->list ? LOOK_AGAIN_MS : -1;
}

/* False: that was all. */
static bool sending_refill(struct sending *sending) {
  const void *data;
  if (sending->sent < sending->size)
    return true;
  sending->sent = sending->size = 0;
  if (sending->source.next &&
      sending->source.next(sending->source.user, &data, &sending->size, &sending->err) == 0)
    sending->data = data;
  sending->has_ended = sending->size == 0 || sending->err.code;
  return !sending->has_ended;
}

/* False when all is sent, or the client is gone or reads nothing. */
static bool send_chunks(struct sending *sending) {
  uint64_t unread_ns = (uint64_t)sending->sender->unread_ms * 1000000;
  for (int n = 0; n < CHUNKS_A_TURN_MAX; n++) {
    Weir__Chunk chunk = WEIR__CHUNK__INIT;
    size_t left;
    if (rpc_call_waiting(sending->call) >= CHUNKS_WAITING_MAX)
      return clock_now_ns() - sending->moved_ns < unread_ns;
    if (!sending_refill(sending))
      return false;
    left = sending->size - sending->sent;
    chunk.data.data = (uint8_t *)sending->data + sending->sent;
    chunk.data.len = left < RPC_CHUNK_BYTES ? left : RPC_CHUNK_BYTES;
    if (rpc_call_send(sending->call, &chunk, NULL))
      return false;
    sending->sent += chunk.data.len;
    sending->moved_ns = clock_now_ns();
  }
  sending->sender->is_behind = true;
  return true;
}
