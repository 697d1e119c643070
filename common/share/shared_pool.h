/* Buffers in segments, for what lives as long as a run. Any thread. */
#ifndef WEIR_COMMON_SHARE_SHARED_POOL_H
#define WEIR_COMMON_SHARE_SHARED_POOL_H

#include "common/share/shared.h"

struct shared_pool;

/* slab_bytes: how large its segments are, within reason: buffers that are taken together are given back
   together, and a segment's memory comes back when none of its buffers is taken. */
struct shared_pool *shared_pool_new(size_t slab_bytes);
/* Its buffers may outlive it. NULL is ignored. */
void shared_pool_free(struct shared_pool *pool);

/* One reference, bytes not set. NULL where there is no segment to be had: the caller has memory elsewhere. */
struct buffer *shared_pool_take(struct shared_pool *pool, size_t size_bytes);
/* Lets go of segments of which nothing is taken. */
void shared_pool_trim(struct shared_pool *pool);
/* Whether the buffer was taken of the pool; nothing was of none. */
bool shared_pool_has(const struct shared_pool *pool, const struct buffer *buffer);

#endif
