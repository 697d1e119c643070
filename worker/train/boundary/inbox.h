/* Boundary messages of one kind that come to a worker from a neighbour in its team, piece by piece and in
   whatever order: bookkeeping, and the memory that they are read from. A message stays until it is released.
   What lies in it is only written between a claim and its landing.

   There is no lock of its own: the caller holds one lock over every call. Bytes are copied outside the lock,
   between inbox_claim and inbox_land. */
#ifndef WEIR_WORKER_TRAIN_BOUNDARY_INBOX_H
#define WEIR_WORKER_TRAIN_BOUNDARY_INBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/backend/backend.h"

/* The task and the execution of it that a message belongs to. */
struct boundary_key {
  bool is_chunk;
  uint64_t step;
  uint32_t index;
  uint32_t execution; /* of a chunk; else 0 */
};

bool boundary_key_is_same(const struct boundary_key *a, const struct boundary_key *b);

enum { BOUNDARY_PIECE_BYTES = 256 * 1024 };

/* A range of a message. */
struct boundary_range {
  size_t begin, size_bytes;
};

enum inbox_answer {
  INBOX_CLAIMED,
  INBOX_HAS, /* it has come before, or is about to */
  INBOX_FULL,
  INBOX_INVALID /* it is no piece of such a message */
};

struct inbox_slot {
  bool is_used, is_taken;
  struct boundary_key key;
  uint64_t order;       /* the message came as the order-th */
  uint8_t *pieces;      /* [n_pieces] empty, claimed or there */
  uint32_t n_left;      /* pieces that are not there */
  unsigned char *bytes; /* NULL before the slot is first used */
};

struct inbox {
  size_t message_bytes;
  uint32_t n_pieces;        /* of a message; one of a message without bytes */
  struct inbox_slot *slots; /* [n_slots] */
  int n_slots;
  uint64_t n_come;
  const struct backend_def *backend;
};

/* For so many messages of that size at a time, which programs of the backend read. Memory comes with the
   first message of each slot, pinned where the backend can, so that it copies from there without staging. */
void inbox_init(struct inbox *inbox, size_t message_bytes, int n_slots, const struct backend_def *backend);
void inbox_fini(struct inbox *inbox); /* nothing is claimed; safe on a zeroed one */

/* A piece is to come. CLAIMED: its bytes are to be written to *to, then inbox_land. FULL also when there is
   no memory. */
enum inbox_answer inbox_claim(struct inbox *inbox, const struct boundary_key *key,
                              const struct boundary_range *range, void **to);
/* The claimed piece that begins there has come. True: the message is whole. */
bool inbox_land(struct inbox *inbox, const struct boundary_key *key, size_t begin);

/* The bytes of a whole message; NULL: it is not here. */
const unsigned char *inbox_find(const struct inbox *inbox, const struct boundary_key *key);

/* The first come of the whole messages that were not taken. False: there is none. */
bool inbox_next(const struct inbox *inbox, struct boundary_key *key);
void inbox_take(struct inbox *inbox, const struct boundary_key *key); /* it is here */

/* Lets go of the message, if it is here: nothing reads it any more. */
void inbox_release(struct inbox *inbox, const struct boundary_key *key);

#endif
