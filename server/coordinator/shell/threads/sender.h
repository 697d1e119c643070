/* Sends large blobs as streams of chunks, each as fast as its client reads. */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_THREADS_SENDER_H
#define WEIR_SERVER_COORDINATOR_SHELL_THREADS_SENDER_H

#include "common/base/memory.h"
#include "common/rpc/server.h"

struct sender;

/* Finishes a call whose user is NULL, or the struct read of a tenant, which ends. */
void sender_finish(struct rpc_call *call, const struct err *err);

/* unread_ms: for how long a client may read nothing. */
struct sender *sender_start(int unread_ms);

/* Answers the call (of a method whose reply is a stream of Chunk) with the blob, and finishes it as
   sender_finish does; with
   CANCELLED when the client reads nothing for too long, as it would keep the blob in memory. Takes the
   reference. Any thread. */
void sender_send(struct sender *sender, struct rpc_call *call, struct buffer *blob);

/* What comes bit by bit, where the whole would be too much for memory. Its functions are called on the
   sender's thread, which every other answer waits for meanwhile. */
struct sender_source {
  /* The next bytes, good until the next call; *size 0: that was all. Errors: end the call. */
  int (*next)(void *user, const void **data, size_t *size, struct err *err);
  void (*close)(void *user);
  void *user;
};
/* Likewise. Takes the source. */
void sender_send_source(struct sender *sender, struct rpc_call *call, const struct sender_source *source);

/* Waits until every call is finished; their clients must be gone or served by then. NULL is ignored. */
void sender_stop(struct sender *sender);

#endif
