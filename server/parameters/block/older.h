/* The versions of a block before the newest that somebody may still need: as many as the run's mode says, one
   after another. */
#ifndef WEIR_SERVER_PARAMETERS_BLOCK_OLDER_H
#define WEIR_SERVER_PARAMETERS_BLOCK_OLDER_H

#include "common/base/memory.h"

/* Those of versions [newest - n, newest), a reference to each. Here versions are counted as they are made
   (mode_count). */
struct older {
  struct buffer **buffers; /* [capacity]: version v at v % capacity */
  uint32_t n, capacity;
};

void older_init(struct older *older, uint32_t capacity);
void older_fini(struct older *older); /* safe on a zeroed one */
void older_clear(struct older *older);

/* The reference is the callee's. version: the newest until now. There is room: n < capacity. */
void older_add(struct older *older, uint64_t version, struct buffer *buffer);
/* NULL: it is not among them. newest: which they lie before. */
struct buffer *older_find(const struct older *older, uint64_t newest, uint64_t version);
/* Takes out the oldest one if it is lower than `lowest`; the reference is the caller's. NULL: it is not. */
struct buffer *older_take(struct older *older, uint64_t newest, uint64_t lowest);

#endif
