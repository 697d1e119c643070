/* A free list of buffers of one size, so that the step loop does not allocate. For one thread at a time. */
#ifndef WEIR_SERVER_PARAMETERS_ROUND_POOL_H
#define WEIR_SERVER_PARAMETERS_ROUND_POOL_H

#include "common/base/memory.h"

struct pool {
  size_t buffer_bytes;
  struct buffer **free;
  int n_free, capacity;
};

void pool_init(struct pool *pool, size_t buffer_bytes);
void pool_fini(struct pool *pool);                        /* buffers that were taken are their holders' */
struct buffer *pool_take(struct pool *pool);              /* one reference; NULL when out of memory */
void pool_give(struct pool *pool, struct buffer *buffer); /* the sole reference, of a buffer of this size */

#endif
