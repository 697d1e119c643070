/* Free lists of buffers by size class. */
#include "server/parameters/round/pool.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"

enum { STEPS_TO_DOUBLE = 4 }; /* classes: 64, 80, 96, 112, 128, 160, ... bytes */

static size_t class_bytes(int index) {
  size_t quarter = (size_t)POOL_CLASS_BYTES_MIN / STEPS_TO_DOUBLE << (index / STEPS_TO_DOUBLE);
  return quarter * (size_t)(STEPS_TO_DOUBLE + index % STEPS_TO_DOUBLE);
}

/* The smallest class with room for so many bytes. */
static int class_of(size_t size_bytes) {
  int index = 0;
  while (index < POOL_CLASSES && class_bytes(index) < size_bytes)
    index++;
  CHECK(index < POOL_CLASSES);
  return index;
}

void pool_init(struct pool *pool, struct budget *budget) {
  *pool = (struct pool){.budget = budget};
}

static void class_free_one(struct pool *pool, struct pool_class *class) {
  struct buffer *buffer = class->free[--class->n_free];
  budget_give(pool->budget, buffer->size_bytes);
  buffer_put(buffer);
}

void pool_trim(struct pool *pool) {
  for (int c = 0; c < POOL_CLASSES; c++)
    while (pool->classes[c].n_free > 0)
      class_free_one(pool, &pool->classes[c]);
}

void pool_fini(struct pool *pool) {
  pool_trim(pool);
  for (int c = 0; c < POOL_CLASSES; c++)
    free(pool->classes[c].free);
  *pool = (struct pool){.budget = pool->budget};
}

bool pool_has_room(const struct pool *pool, size_t size_bytes) {
  int index = class_of(size_bytes);
  size_t more = pool->classes[index].n_free > 0 ? 0 : class_bytes(index);
  return budget_has(pool->budget, more);
}

struct buffer *pool_take(struct pool *pool, size_t size_bytes) {
  int index = class_of(size_bytes);
  struct pool_class *class = &pool->classes[index];
  struct buffer *buffer;
  if (class->n_free > 0) {
    buffer = class->free[--class->n_free];
  } else {
    buffer = buffer_new(class_bytes(index));
    if (!buffer)
      return NULL;
    budget_take(pool->budget, buffer->size_bytes);
  }
  class->n_taken++;
  if (class->n_taken > class->most_taken[0])
    class->most_taken[0] = class->n_taken;
  return buffer;
}

void pool_give(struct pool *pool, struct buffer *buffer) {
  struct pool_class *class = &pool->classes[class_of(buffer->size_bytes)];
  array_reserve((void **)&class->free, &class->capacity, class->n_free, sizeof(struct buffer *));
  class->free[class->n_free++] = buffer;
  class->n_taken--;
  if (!budget_has(pool->budget, 0))
    class_free_one(pool, class);
}

static void class_step(struct pool *pool, struct pool_class *class) {
  int most = 0;
  for (int s = 0; s < POOL_RECENT_STEPS; s++)
    most = class->most_taken[s] > most ? class->most_taken[s] : most;
  while (class->n_free > 0 && class->n_free + class->n_taken > most)
    class_free_one(pool, class);
  memmove(class->most_taken + 1, class->most_taken, sizeof class->most_taken - sizeof *class->most_taken);
  class->most_taken[0] = class->n_taken;
}

void pool_step(struct pool *pool, uint64_t version) {
  if (version <= pool->step)
    return;
  pool->step = version;
  for (int c = 0; c < POOL_CLASSES; c++)
    class_step(pool, &pool->classes[c]);
}
