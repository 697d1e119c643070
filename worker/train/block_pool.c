/* Buffers for gradients. */
#include "worker/train/block_pool.h"

#include <pthread.h>
#include <stdlib.h>

struct pool_list {
  struct buffer **buffers;
  int n, capacity;
};

struct block_pool {
  const struct model *model;
  pthread_mutex_t lock;
  struct pool_list *lists; /* [n_blocks] */
};

struct block_pool *block_pool_new(const struct model *model) {
  struct block_pool *pool = mem_new(sizeof *pool);
  pool->model = model;
  pool->lists = mem_new(model->n_blocks * sizeof *pool->lists);
  pthread_mutex_init(&pool->lock, NULL);
  return pool;
}

void block_pool_free(struct block_pool *pool) {
  if (!pool)
    return;
  for (uint32_t b = 0; b < pool->model->n_blocks; b++) {
    for (int i = 0; i < pool->lists[b].n; i++)
      buffer_put(pool->lists[b].buffers[i]);
    free(pool->lists[b].buffers);
  }
  pthread_mutex_destroy(&pool->lock);
  free(pool->lists);
  free(pool);
}

struct buffer *block_pool_take(struct block_pool *pool, uint32_t block) {
  struct pool_list *list = &pool->lists[block];
  struct buffer *buffer = NULL;
  pthread_mutex_lock(&pool->lock);
  if (list->n > 0)
    buffer = list->buffers[--list->n];
  pthread_mutex_unlock(&pool->lock);
  return buffer ? buffer : buffer_new(pool->model->blocks[block].elems * sizeof(float));
}

void block_pool_give(struct block_pool *pool, uint32_t block, struct buffer *buffer) {
  struct pool_list *list = &pool->lists[block];
  if (!buffer)
    return;
  if (!buffer_is_sole(buffer)) {
    buffer_put(buffer);
    return;
  }
  pthread_mutex_lock(&pool->lock);
  array_reserve((void **)&list->buffers, &list->capacity, list->n, sizeof(struct buffer *));
  list->buffers[list->n++] = buffer;
  pthread_mutex_unlock(&pool->lock);
}
