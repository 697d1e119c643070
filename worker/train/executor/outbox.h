/* What a stage has sent to a neighbour in its team, until that one has read it: bytes of every task that may
   be under way. They are written by the sender and read where they are; whoever hands the task on holds the
   run's lock meanwhile. Neighbours on other workers get messages of the same layout (edges.h). */
#ifndef WEIR_WORKER_TRAIN_EXECUTOR_OUTBOX_H
#define WEIR_WORKER_TRAIN_EXECUTOR_OUTBOX_H

#include "worker/backend/backend.h"

/* Where the pieces of a message lie. */
struct message_layout {
  int n;           /* pieces */
  size_t *offsets; /* [n + 1]; multiples of 64, the last of them the message's bytes */
  size_t *sizes_bytes;
};

void message_layout_init(struct message_layout *layout, const struct backend_message *message);
void message_layout_fini(struct message_layout *layout); /* safe on a zeroed one */
size_t message_layout_bytes(const struct message_layout *layout);
/* Copies pieces to a message, and says where those of one are. */
void message_write(const struct message_layout *layout, const void *const *pieces, unsigned char *message);
void message_look(const struct message_layout *layout, const unsigned char *message, const void **pieces);

struct outbox {
  struct message_layout layout;
  unsigned char *bytes;       /* of all slots */
  void (*unpin)(void *bytes); /* NULL: they are not pinned */
};

/* For so many messages of that kind at a time, which programs of the backend send and receive. Errors:
   NO_MEMORY. */
int outbox_open(struct outbox *outbox, const struct backend_message *message, int n_slots,
                const struct backend_def *backend, struct err *err);
void outbox_close(struct outbox *outbox); /* safe on a zeroed one */

/* Copies a message in. */
void outbox_put(struct outbox *outbox, int slot, const void *const *pieces);
/* Where it is. */
void outbox_look(const struct outbox *outbox, int slot, const void **pieces);

#endif
