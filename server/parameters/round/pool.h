/* Free lists of buffers by size class, so that the step loop does not allocate. What recent steps did not
   need at a time goes back to the allocator. For one thread at a time. */
#ifndef WEIR_SERVER_PARAMETERS_ROUND_POOL_H
#define WEIR_SERVER_PARAMETERS_ROUND_POOL_H

#include "common/base/budget.h"
#include "common/base/memory.h"

/* A class is at most a quarter larger than the one before, and a buffer than what it was taken for. */
enum { POOL_CLASS_BYTES_MIN = 64, POOL_CLASSES = 64, POOL_RECENT_STEPS = 8 };

struct pool_class {
  struct buffer **free;
  int n_free, capacity;
  int n_taken;
  int most_taken[POOL_RECENT_STEPS]; /* at a time, in each of the last steps; [0] is the present one's */
};

struct pool {
  struct budget *budget; /* taken buffers and free ones together; several pools may share it */
  struct pool_class classes[POOL_CLASSES];
  uint64_t step; /* the newest of which it was told */
};

void pool_init(struct pool *pool, struct budget *budget); /* which outlives it */
void pool_fini(struct pool *pool);                        /* nothing is taken any more */

/* Frees what nobody has taken. */
void pool_trim(struct pool *pool);

/* True if a buffer for so many bytes can be taken within the budget. */
bool pool_has_room(const struct pool *pool, size_t size_bytes);
/* One reference, of at least so many bytes, also beyond the budget; NULL when out of memory. */
struct buffer *pool_take(struct pool *pool, size_t size_bytes);
/* The sole reference, of a buffer of this pool. Beyond the budget it is freed. */
void pool_give(struct pool *pool, struct buffer *buffer);

/* A block has come to this version: with the first one a step of the pool is over, and buffers that none of
   the recent steps needed are freed. */
void pool_step(struct pool *pool, uint64_t version);

#endif
