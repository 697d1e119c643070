/* The versions of a block before the newest. */
#include "server/parameters/block/older.h"

#include <stdlib.h>

#include "common/base/err.h"

void older_init(struct older *older, uint32_t capacity) {
  *older = (struct older){.buffers = mem_new(capacity * sizeof(struct buffer *)), .capacity = capacity};
}

void older_clear(struct older *older) {
  for (uint32_t i = 0; i < older->capacity; i++) {
    buffer_put(older->buffers[i]);
    older->buffers[i] = NULL;
  }
  older->n = 0;
}

void older_fini(struct older *older) {
  older_clear(older);
  free(older->buffers);
  *older = (struct older){0};
}

void older_add(struct older *older, uint64_t version, struct buffer *buffer) {
  CHECK(older->n < older->capacity);
  older->buffers[version % older->capacity] = buffer;
  older->n++;
}

struct buffer *older_find(const struct older *older, uint64_t newest, uint64_t version) {
  bool is_there = version < newest && newest - version <= older->n;
  return is_there ? older->buffers[version % older->capacity] : NULL;
}

struct buffer *older_take(struct older *older, uint64_t newest, uint64_t lowest) {
  uint64_t oldest = newest - older->n;
  struct buffer **place, *buffer;
  if (older->n == 0 || oldest >= lowest)
    return NULL;
  place = &older->buffers[oldest % older->capacity];
  buffer = *place;
  *place = NULL;
  older->n--;
  return buffer;
}
