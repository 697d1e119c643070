/* Buffers in segments: what is given back waits in its slab for one that takes as much. */
#include "common/share/shared_pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/log.h"

enum { SLAB_BYTES_MIN = 1 << 20 };

/* A place is first, so that a buffer's place is its pooled. */
struct pooled {
  struct shared_place place;
  struct buffer buffer;
  struct slab *slab;
  struct pooled *next; /* among its slab's free ones */
};

struct slab {
  struct shared_pool *pool;
  struct shared_cut cut;
  struct pooled *free;
  int n_taken;
  struct slab *next;
};

struct shared_pool {
  size_t slab_bytes;
  pthread_mutex_t lock; /* what follows */
  struct slab *slabs;   /* the newest first */
  bool has_failed;      /* no segment was to be had */
  int refs;             /* the owner's, and one of each buffer that is taken */
};

struct shared_pool *shared_pool_new(size_t slab_bytes) {
  struct shared_pool *pool = mem_new(sizeof *pool);
  pool->slab_bytes = slab_bytes;
  pool->refs = 1;
  pthread_mutex_init(&pool->lock, NULL);
  return pool;
}

static void slab_free(struct slab *slab) {
  struct pooled *pooled, *next;
  for (pooled = slab->free; pooled; pooled = next) {
    next = pooled->next;
    free(pooled);
  }
  segment_put(slab->cut.segment);
  free(slab);
}

static void trim_locked(struct shared_pool *pool) {
  struct slab **link = &pool->slabs, *slab;
  while ((slab = *link)) {
    if (slab->n_taken > 0) {
      link = &slab->next;
      continue;
    }
    *link = slab->next;
    slab_free(slab);
  }
}

static void put_and_unlock(struct shared_pool *pool) {
  int refs = --pool->refs;
  if (refs == 0)
    trim_locked(pool);
  pthread_mutex_unlock(&pool->lock);
  if (refs)
    return;
  pthread_mutex_destroy(&pool->lock);
  free(pool);
}

void shared_pool_free(struct shared_pool *pool) {
  if (!pool)
    return;
  pthread_mutex_lock(&pool->lock);
  trim_locked(pool);
  put_and_unlock(pool);
}

void shared_pool_trim(struct shared_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  trim_locked(pool);
  pthread_mutex_unlock(&pool->lock);
}

static void on_release(struct buffer *buffer) {
  struct pooled *pooled = (struct pooled *)buffer->place;
  struct slab *slab = pooled->slab;
  struct shared_pool *pool = slab->pool;
  shared_renew(buffer);
  pthread_mutex_lock(&pool->lock);
  pooled->next = slab->free;
  slab->free = pooled;
  slab->n_taken--;
  put_and_unlock(pool);
}

static struct pooled *take_free_locked(struct shared_pool *pool, size_t size_bytes) {
  for (struct slab *slab = pool->slabs; slab; slab = slab->next)
    for (struct pooled **link = &slab->free; *link; link = &(*link)->next)
      if ((*link)->buffer.size_bytes == size_bytes) {
        struct pooled *pooled = *link;
        *link = pooled->next;
        return pooled;
      }
  return NULL;
}

static struct slab *slab_new_locked(struct shared_pool *pool, size_t size_bytes) {
  size_t least = SEGMENT_HEADER_BYTES + shared_bytes_of(size_bytes);
  size_t wanted = pool->slab_bytes > SLAB_BYTES_MIN ? pool->slab_bytes : SLAB_BYTES_MIN;
  struct segment *segment;
  struct slab *slab;
  struct err err;
  wanted = wanted < SEGMENT_BYTES_MAX ? wanted : SEGMENT_BYTES_MAX;
  if (pool->has_failed || least > SEGMENT_BYTES_MAX)
    return NULL;
  if (segment_new(least > wanted ? least : wanted, &segment, &err)) {
    pool->has_failed = true;
    log_event(LOG_INFO, "share", "no_segments", "code=%s error=\"%s\": bytes go by socket",
              err_name(err.code), err.text);
    return NULL;
  }
  slab = mem_new(sizeof *slab);
  *slab = (struct slab){.pool = pool, .cut = shared_cut_of(segment), .next = pool->slabs};
  pool->slabs = slab;
  return slab;
}

static struct pooled *cut_locked(struct slab *slab, size_t size_bytes) {
  struct shared_place place;
  void *data = shared_cut_take(&slab->cut, size_bytes, &place);
  struct pooled *pooled;
  if (!data)
    return NULL;
  pooled = mem_new(sizeof *pooled);
  *pooled = (struct pooled){.place = place, .slab = slab};
  pooled->buffer =
      (struct buffer){.data = data, .size_bytes = size_bytes, .place = &pooled->place, .release = on_release};
  return pooled;
}

struct buffer *shared_pool_take(struct shared_pool *pool, size_t size_bytes) {
  struct pooled *pooled;
  pthread_mutex_lock(&pool->lock);
  pooled = take_free_locked(pool, size_bytes);
  if (!pooled && pool->slabs)
    pooled = cut_locked(pool->slabs, size_bytes);
  if (!pooled && slab_new_locked(pool, size_bytes))
    pooled = cut_locked(pool->slabs, size_bytes);
  if (pooled) {
    pooled->buffer.refs = 1;
    pooled->slab->n_taken++;
    pool->refs++;
  }
  pthread_mutex_unlock(&pool->lock);
  return pooled ? &pooled->buffer : NULL;
}

bool shared_pool_has(const struct shared_pool *pool, const struct buffer *buffer) {
  return pool && buffer->release == on_release && ((const struct pooled *)buffer->place)->slab->pool == pool;
}
