/* Buffers for gradients: one list for each block and place, so that a step allocates nothing after the first
   one. Buffers in host memory are pinned where the backend can pin: a device copies into the very bytes that
   are sent. Buffers on a device are for sums that are made there. */
#ifndef WEIR_WORKER_TRAIN_BLOCK_BLOCK_POOL_H
#define WEIR_WORKER_TRAIN_BLOCK_BLOCK_POOL_H

#include "common/base/memory.h"
#include "model/model.h"
#include "worker/backend/backend.h"

struct block_pool;

/* The model must outlive the pool, the backend the process. inner_steps: block_part_elems. */
struct block_pool *block_pool_new(const struct model *model, const struct backend_def *backend,
                                  uint32_t inner_steps);
/* Every buffer must have been given back. One that gRPC still refers to is freed when gRPC lets go of it.
   NULL is ignored. */
void block_pool_free(struct block_pool *pool);

/* A buffer of f32[block_part_elems], not set; the caller's only reference. NULL when out of memory. Any
   thread. */
struct buffer *block_pool_take(struct block_pool *pool, uint32_t block);

/* The same in the memory of a device of the backend's, or, when that is full, in host memory. */
struct buffer *block_pool_take_on(struct block_pool *pool, uint32_t block, int device);

/* The device in whose memory a taken buffer lies; -1: host memory. */
int block_pool_device(const struct buffer *buffer);

/* Gives a taken buffer back: it is taken again once nobody else refers to it. NULL is ignored. Any thread. */
void block_pool_give(struct block_pool *pool, uint32_t block, struct buffer *buffer);

#endif
