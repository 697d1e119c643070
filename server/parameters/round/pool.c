/* A free list of buffers. */
#include "server/parameters/round/pool.h"

#include <stdlib.h>

void pool_init(struct pool *pool, size_t buffer_bytes) {
  *pool = (struct pool){.buffer_bytes = buffer_bytes};
}

void pool_fini(struct pool *pool) {
  while (pool->n_free > 0)
    buffer_put(pool->free[--pool->n_free]);
  free(pool->free);
  *pool = (struct pool){0};
}

struct buffer *pool_take(struct pool *pool) {
  return pool->n_free > 0 ? pool->free[--pool->n_free] : buffer_new(pool->buffer_bytes);
}

void pool_give(struct pool *pool, struct buffer *buffer) {
  array_reserve((void **)&pool->free, &pool->capacity, pool->n_free, sizeof(struct buffer *));
  pool->free[pool->n_free++] = buffer;
}
