/* Buffers for gradients, one list for each block, so that a step allocates nothing once the first is done. */
#ifndef WEIR_WORKER_TRAIN_BLOCK_POOL_H
#define WEIR_WORKER_TRAIN_BLOCK_POOL_H

#include "common/graph/model.h"
#include "common/memory.h"

struct block_pool;

struct block_pool *block_pool_new(const struct model *model);
void block_pool_free(struct block_pool *pool); /* every buffer was given back; NULL is ignored */

/* A buffer of f32[elems of block], not set; the caller's only reference. NULL when out of memory. Any
   thread. */
struct buffer *block_pool_take(struct block_pool *pool, uint32_t block);

/* Gives a taken buffer back. One that gRPC still refers to is left to it. NULL is ignored. Any thread. */
void block_pool_give(struct block_pool *pool, uint32_t block, struct buffer *buffer);

#endif
