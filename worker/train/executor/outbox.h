/* What a stage has sent to a neighbour in its team, until that one has read it: bytes of every task that may
   be under way. They are written by the sender and read where they are; whoever hands the task on holds the
   run's lock meanwhile. */
#ifndef WEIR_WORKER_TRAIN_EXECUTOR_OUTBOX_H
#define WEIR_WORKER_TRAIN_EXECUTOR_OUTBOX_H

#include "worker/backend/backend.h"

struct outbox {
  int n;           /* pieces of a message */
  size_t *offsets; /* [n + 1] in a message; multiples of 64 */
  size_t *sizes_bytes;
  unsigned char *bytes; /* of all slots */
};

/* For so many messages of that kind at a time. Errors: NO_MEMORY. */
int outbox_open(struct outbox *outbox, const struct backend_message *message, int n_slots, struct err *err);
void outbox_close(struct outbox *outbox); /* safe on a zeroed one */

/* Copies a message in. */
void outbox_put(struct outbox *outbox, int slot, const void *const *pieces);
/* Where it is. */
void outbox_look(const struct outbox *outbox, int slot, const void **pieces);

#endif
