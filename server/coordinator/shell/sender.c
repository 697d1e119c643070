/* Sends large blobs as streams of chunks. */
#include "server/coordinator/shell/sender.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "server/coordinator/shell/tasks.h"
#include "training.pb-c.h"

enum { CHUNKS_WAITING_MAX = 4, LOOK_AGAIN_MS = 2 };

struct sending {
  struct task task;
  struct sender *sender;
  struct rpc_call *call;
  struct buffer *blob;
  size_t sent;
  uint64_t moved_ns; /* when a chunk last went, or it began */
  struct sending *next;
};

struct sender {
  struct task_thread *thread;
  int unread_ms;
  struct sending *list; /* the thread's own */
};

static int send_some(void *user);
static bool send_chunks(struct sending *sending);
static void sending_begin(struct task *task);

struct sender *sender_start(int unread_ms) {
  struct sender *sender = mem_new(sizeof *sender);
  sender->unread_ms = unread_ms;
  sender->thread = task_thread_start(&(struct task_thread_options){.on_turn = send_some, .user = sender});
  return sender;
}

void sender_send(struct sender *sender, struct rpc_call *call, struct buffer *blob) {
  struct sending *sending = mem_new(sizeof *sending);
  *sending = (struct sending){.task.run = sending_begin, .sender = sender, .call = call, .blob = blob};
  task_post(sender->thread, &sending->task); /* one a call, and calls are bounded by the connections */
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
  if (sending->sent == sending->blob->size_bytes)
    rpc_call_finish(sending->call, NULL);
  else
    rpc_call_fail(sending->call, ERR_CANCELLED, "the client read nothing for %.3g s",
                  sender->unread_ms / 1e3);
  buffer_put(sending->blob);
  free(sending);
}

/* Nothing tells when a client has read, so all are looked at in turns. */
static int send_some(void *user) {
  struct sender *sender = user;
  struct sending **at = &sender->list, *sending;
  while ((sending = *at)) {
    if (send_chunks(sending)) {
      at = &sending->next;
      continue;
    }
    *at = sending->next;
    sending_end(sending);
  }
  return sender->list ? LOOK_AGAIN_MS : -1;
}

/* False when all is sent, or the client is gone or reads nothing. */
static bool send_chunks(struct sending *sending) {
  uint64_t unread_ns = (uint64_t)sending->sender->unread_ms * 1000000;
  while (sending->sent < sending->blob->size_bytes) {
    Weir__Chunk chunk = WEIR__CHUNK__INIT;
    size_t left = sending->blob->size_bytes - sending->sent;
    if (rpc_call_waiting(sending->call) >= CHUNKS_WAITING_MAX)
      return clock_now_ns() - sending->moved_ns < unread_ns;
    chunk.data.data = (uint8_t *)sending->blob->data + sending->sent;
    chunk.data.len = left < RPC_CHUNK_BYTES ? left : RPC_CHUNK_BYTES;
    if (rpc_call_send(sending->call, &chunk, NULL))
      return false;
    sending->sent += chunk.data.len;
    sending->moved_ns = clock_now_ns();
  }
  return false;
}
