/* Buffers for gradients. Whoever puts the last reference, gRPC or we, gives it back to its list; the pool
   itself lives until that is done for all. */
#include "worker/train/block_pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "worker/backend/memory.h"

enum { ALIGN = 64, SLAB_BYTES = 8 << 20 };

struct pooled {
  struct buffer buffer; /* first: a buffer of ours is its pooled */
  struct block_pool *pool;
  uint32_t block;
  struct pooled *next; /* in its block's list */
};

/* Pinning takes as long for a page as for a thousand: buffers are cut from what was pinned at once. */
struct slab {
  unsigned char *bytes;
  size_t size, used;
  struct slab *next;
};

struct block_pool {
  const struct model *model;
  const struct backend_def *backend;
  uint32_t n_blocks;
  pthread_mutex_t lock;  /* what follows */
  struct pooled **lists; /* [n_blocks] */
  struct slab *slabs;    /* the newest first */
  size_t n_taken;
  bool is_closed; /* by its owner */
};

struct block_pool *block_pool_new(const struct model *model, const struct backend_def *backend) {
  struct block_pool *pool = mem_new(sizeof *pool);
  pool->model = model;
  pool->backend = backend;
  pool->n_blocks = model->n_blocks;
  pool->lists = mem_new(model->n_blocks * sizeof *pool->lists);
  pthread_mutex_init(&pool->lock, NULL);
  return pool;
}

static void pool_destroy(struct block_pool *pool) {
  struct slab *slab, *next_slab;
  struct pooled *pooled, *next;
  for (uint32_t b = 0; b < pool->n_blocks; b++)
    for (pooled = pool->lists[b]; pooled; pooled = next) {
      next = pooled->next;
      if (!pool->slabs)
        free(pooled->buffer.data);
      free(pooled);
    }
  for (slab = pool->slabs; slab; slab = next_slab) {
    next_slab = slab->next;
    pool->backend->unpin(slab->bytes);
    free(slab->bytes);
    free(slab);
  }
  pthread_mutex_destroy(&pool->lock);
  free(pool->lists);
  free(pool);
}

/* Ends a hold of the lock. */
static void pool_unlock(struct block_pool *pool) {
  bool is_over = pool->is_closed && pool->n_taken == 0;
  pthread_mutex_unlock(&pool->lock);
  if (is_over)
    pool_destroy(pool);
}

void block_pool_free(struct block_pool *pool) {
  if (!pool)
    return;
  pthread_mutex_lock(&pool->lock);
  pool->is_closed = true;
  pool_unlock(pool);
}

static void on_release(struct buffer *buffer) {
  struct pooled *pooled = (struct pooled *)buffer;
  struct block_pool *pool = pooled->pool;
  pthread_mutex_lock(&pool->lock);
  pooled->next = pool->lists[pooled->block];
  pool->lists[pooled->block] = pooled;
  pool->n_taken--;
  pool_unlock(pool);
}

static struct slab *slab_new_locked(struct block_pool *pool, size_t size_bytes) {
  struct slab *slab = mem_new(sizeof *slab);
  slab->size = size_bytes > SLAB_BYTES ? size_bytes : SLAB_BYTES;
  slab->bytes = backend_pages_new(slab->size);
  if (!slab->bytes) {
    free(slab);
    return NULL;
  }
  pool->backend->pin(slab->bytes, slab->size);
  slab->next = pool->slabs;
  pool->slabs = slab;
  return slab;
}

/* NULL when out of memory. */
static void *bytes_new_locked(struct block_pool *pool, size_t size_bytes) {
  size_t rounded = (size_bytes + ALIGN - 1) / ALIGN * ALIGN;
  struct slab *slab = pool->slabs;
  if (!pool->backend->pin)
    return aligned_alloc(ALIGN, rounded);
  if (!slab || slab->size - slab->used < rounded)
    slab = slab_new_locked(pool, rounded);
  if (!slab)
    return NULL;
  slab->used += rounded;
  return slab->bytes + slab->used - rounded;
}

static struct pooled *pooled_new_locked(struct block_pool *pool, uint32_t block) {
  size_t size_bytes = pool->model->blocks[block].elems * sizeof(float);
  void *bytes = bytes_new_locked(pool, size_bytes);
  struct pooled *pooled;
  if (!bytes)
    return NULL;
  pooled = mem_new(sizeof *pooled);
  pooled->buffer = (struct buffer){.data = bytes, .size_bytes = size_bytes, .release = on_release};
  pooled->pool = pool;
  pooled->block = block;
  return pooled;
}

struct buffer *block_pool_take(struct block_pool *pool, uint32_t block) {
  struct pooled *pooled;
  pthread_mutex_lock(&pool->lock);
  pooled = pool->lists[block];
  if (pooled)
    pool->lists[block] = pooled->next;
  else
    pooled = pooled_new_locked(pool, block);
  pool->n_taken += pooled != NULL;
  pthread_mutex_unlock(&pool->lock);
  if (!pooled)
    return NULL;
  pooled->buffer.refs = 1;
  return &pooled->buffer;
}

void block_pool_give(struct block_pool *pool, uint32_t block, struct buffer *buffer) {
  const struct pooled *pooled = (struct pooled *)buffer;
  CHECK(!buffer || buffer->release != on_release || (pooled->pool == pool && pooled->block == block));
  buffer_put(buffer);
}
