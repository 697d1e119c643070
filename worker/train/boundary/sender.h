/* Boundary messages on their way to one neighbour in a worker's team: a queue and a thread of its own, so
   that whoever computes never waits for the network. Messages go in order, in pieces of which some are on
   their way at a time. What could not be sent is sent again until the sender is freed: the receiver ignores
   what it has.
 */
#ifndef WEIR_WORKER_TRAIN_BOUNDARY_SENDER_H
#define WEIR_WORKER_TRAIN_BOUNDARY_SENDER_H

#include "common/base/memory.h"
#include "common/rpc/client.h"
#include "peers.pb-c.h"
#include "worker/train/boundary/inbox.h"

struct sender;

struct sender_options {
  struct rpc_client *client;
  const char *address;             /* of the neighbour; copied */
  const Weir__BoundaryPiece *head; /* what all pieces say: run, incarnation, term, team, stage; copied */
  const char *ticket;              /* of each call; copied; "" or NULL: none */
  int n_messages;                  /* that wait at most */
  int trace_number;                /* of trace_run_begin */
  /* The neighbour refuses them for good: DROPPED when it has the step behind it. Once; nothing is sent any
     more. On the sender's thread. */
  void (*refused)(void *user, const struct err *err);
  void (*sent)(void *user); /* a message is with the neighbour; likewise */
  void *user;
};

/* Connects when the first message is there. */
struct sender *sender_new(const struct sender_options *options);
/* Forgets what was not sent, waits for the thread. NULL is ignored. No lock is held that a callback takes. */
void sender_free(struct sender *sender);

/* A buffer of at least so many bytes to fill with the next message; it stays the sender's. NULL when out of
   memory, or when as many messages as may wait do. One thread at a time. */
struct buffer *sender_buffer(struct sender *sender, size_t size_bytes);
/* Queues the message that fills the buffer's first size_bytes. Never blocks. */
void sender_queue(struct sender *sender, const struct boundary_key *key, size_t size_bytes);

/* Messages that are not with the neighbour. Any thread. */
int sender_waiting(struct sender *sender);

/* Whether calls have failed for a while and none was answered, by a refusal for instance; failure: of the
   newest one. Any thread. */
bool sender_is_unreached(struct sender *sender, struct err *failure);

#endif
