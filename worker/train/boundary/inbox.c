/* Boundary messages that come to a worker. */
#include "worker/train/boundary/inbox.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/memory.h"
#include "worker/backend/memory.h"

enum piece_state { PIECE_EMPTY, PIECE_CLAIMED, PIECE_THERE };

bool boundary_key_is_same(const struct boundary_key *a, const struct boundary_key *b) {
  return a->is_chunk == b->is_chunk && a->step == b->step && a->index == b->index &&
         a->execution == b->execution;
}

void inbox_init(struct inbox *inbox, size_t message_bytes, int n_slots, const struct backend_def *backend) {
  size_t pieces = (message_bytes + BOUNDARY_PIECE_BYTES - 1) / BOUNDARY_PIECE_BYTES;
  *inbox = (struct inbox){.message_bytes = message_bytes,
                          .n_pieces = pieces ? (uint32_t)pieces : 1,
                          .slots = mem_new((size_t)n_slots * sizeof *inbox->slots),
                          .n_slots = n_slots,
                          .backend = backend};
  for (int s = 0; s < n_slots; s++)
    inbox->slots[s].pieces = mem_new(inbox->n_pieces);
}

void inbox_fini(struct inbox *inbox) {
  for (int s = 0; s < inbox->n_slots; s++) {
    if (inbox->slots[s].bytes && inbox->backend->unpin)
      inbox->backend->unpin(inbox->slots[s].bytes);
    free(inbox->slots[s].pieces);
    free(inbox->slots[s].bytes);
  }
  free(inbox->slots);
  *inbox = (struct inbox){0};
}

static struct inbox_slot *slot_find(const struct inbox *inbox, const struct boundary_key *key) {
  for (int s = 0; s < inbox->n_slots; s++)
    if (inbox->slots[s].is_used && boundary_key_is_same(&inbox->slots[s].key, key))
      return &inbox->slots[s];
  return NULL;
}

static unsigned char *bytes_new(const struct inbox *inbox) {
  unsigned char *bytes = backend_pages_new(inbox->message_bytes);
  if (bytes && inbox->backend->pin)
    inbox->backend->pin(bytes, inbox->message_bytes);
  return bytes;
}

/* Slots whose memory is there come first. */
static struct inbox_slot *slot_begin(struct inbox *inbox, const struct boundary_key *key) {
  struct inbox_slot *slot = NULL;
  for (int s = 0; s < inbox->n_slots; s++)
    if (!inbox->slots[s].is_used && (!slot || (!slot->bytes && inbox->slots[s].bytes)))
      slot = &inbox->slots[s];
  if (slot && !slot->bytes)
    slot->bytes = bytes_new(inbox);
  if (!slot || !slot->bytes)
    return NULL;
  slot->is_used = true;
  slot->is_taken = false;
  slot->key = *key;
  slot->order = inbox->n_come++;
  slot->n_left = inbox->n_pieces;
  memset(slot->pieces, PIECE_EMPTY, inbox->n_pieces);
  return slot;
}

static bool is_piece(const struct inbox *inbox, const struct boundary_range *range) {
  size_t left;
  if (range->begin % BOUNDARY_PIECE_BYTES || range->begin / BOUNDARY_PIECE_BYTES >= inbox->n_pieces)
    return false;
  left = inbox->message_bytes - range->begin;
  return range->size_bytes == (left < BOUNDARY_PIECE_BYTES ? left : BOUNDARY_PIECE_BYTES);
}

enum inbox_answer inbox_claim(struct inbox *inbox, const struct boundary_key *key,
                              const struct boundary_range *range, void **to) {
  struct inbox_slot *slot;
  uint8_t *piece;
  if (!is_piece(inbox, range))
    return INBOX_INVALID;
  slot = slot_find(inbox, key);
  if (!slot)
    slot = slot_begin(inbox, key);
  if (!slot)
    return INBOX_FULL;
  piece = &slot->pieces[range->begin / BOUNDARY_PIECE_BYTES];
  if (*piece != PIECE_EMPTY)
    return INBOX_HAS;
  *piece = PIECE_CLAIMED;
  *to = slot->bytes + range->begin;
  return INBOX_CLAIMED;
}

bool inbox_land(struct inbox *inbox, const struct boundary_key *key, size_t begin) {
  struct inbox_slot *slot = slot_find(inbox, key);
  uint8_t *piece;
  CHECK(slot);
  piece = &slot->pieces[begin / BOUNDARY_PIECE_BYTES];
  CHECK(*piece == PIECE_CLAIMED);
  *piece = PIECE_THERE;
  return --slot->n_left == 0;
}

const unsigned char *inbox_find(const struct inbox *inbox, const struct boundary_key *key) {
  const struct inbox_slot *slot = slot_find(inbox, key);
  return slot && slot->n_left == 0 ? slot->bytes : NULL;
}

bool inbox_next(const struct inbox *inbox, struct boundary_key *key) {
  const struct inbox_slot *first = NULL;
  for (int s = 0; s < inbox->n_slots; s++) {
    const struct inbox_slot *slot = &inbox->slots[s];
    if (slot->is_used && !slot->is_taken && slot->n_left == 0 && (!first || slot->order < first->order))
      first = slot;
  }
  if (first)
    *key = first->key;
  return first != NULL;
}

void inbox_take(struct inbox *inbox, const struct boundary_key *key) {
  struct inbox_slot *slot = slot_find(inbox, key);
  CHECK(slot && slot->n_left == 0);
  slot->is_taken = true;
}

void inbox_release(struct inbox *inbox, const struct boundary_key *key) {
  struct inbox_slot *slot = slot_find(inbox, key);
  if (slot && slot->n_left == 0)
    slot->is_used = false;
}
