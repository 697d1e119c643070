/* Buffers for gradients. Whoever puts the last reference, gRPC or we, gives it back to its list; the pool
   itself lives until that is done for all. In host memory they lie in segments, where there are any, so that
   servers of this host read gradients there. */
#include "worker/train/block/block_pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/share/shared.h"
#include "worker/backend/memory.h"

enum { ALIGN = 256, SLAB_BYTES = 8 << 20, HOST = -1 };
_Static_assert(SHARED_ALIGN % ALIGN == 0, "buffers in segments lie as others do");

/* Where buffers are: in host memory, or on a device. */
struct place {
  int device;            /* HOST: none */
  struct pooled **lists; /* [n_blocks] */
  struct slab *slabs;    /* the newest first */
  size_t slabs_bytes;
  bool is_full;        /* of a device: it had no room for another slab */
  bool has_no_segment; /* of the host: there was none to be had */
  struct place *next;
};

struct pooled {
  struct buffer buffer; /* first: a buffer of ours is its pooled */
  struct shared_place shared;
  bool is_alone; /* its bytes are of no slab */
  struct block_pool *pool;
  struct place *place;
  uint32_t block;
  struct pooled *next; /* in its list */
};

/* Pinning takes as long for a page as for a thousand, and a device gives memory in pages, too: buffers are
   cut from what was made at once. */
struct slab {
  unsigned char *bytes;
  size_t size, used;
  struct segment *segment; /* that the bytes are; NULL: none */
  struct slab *next;
};

struct block_pool {
  const struct model *model;
  const struct backend_def *backend;
  uint32_t n_blocks, inner_steps;
  pthread_mutex_t lock; /* what follows */
  struct place *places; /* the host's is the last */
  size_t n_taken;
  bool is_closed; /* by its owner */
};

static struct place *place_new(uint32_t n_blocks, int device) {
  struct place *place = mem_new(sizeof *place);
  place->device = device;
  place->lists = mem_new(n_blocks * sizeof *place->lists);
  return place;
}

struct block_pool *block_pool_new(const struct model *model, const struct backend_def *backend,
                                  uint32_t inner_steps) {
  struct block_pool *pool = mem_new(sizeof *pool);
  pool->model = model;
  pool->backend = backend;
  pool->inner_steps = inner_steps;
  pool->n_blocks = model->n_blocks;
  pool->places = place_new(model->n_blocks, HOST);
  pthread_mutex_init(&pool->lock, NULL);
  return pool;
}

static void slab_free(const struct block_pool *pool, const struct place *place, struct slab *slab) {
  if (place->device != HOST)
    pool->backend->memory->free(place->device, slab->bytes);
  else if (pool->backend->unpin)
    pool->backend->unpin(slab->bytes);
  if (slab->segment)
    segment_put(slab->segment);
  else if (place->device == HOST)
    free(slab->bytes);
  free(slab);
}

static void place_free(const struct block_pool *pool, struct place *place) {
  struct slab *next_slab;
  struct pooled *pooled, *next;
  for (uint32_t b = 0; b < pool->n_blocks; b++)
    for (pooled = place->lists[b]; pooled; pooled = next) {
      next = pooled->next;
      if (pooled->is_alone)
        free(pooled->buffer.data);
      free(pooled);
    }
  for (struct slab *slab = place->slabs; slab; slab = next_slab) {
    next_slab = slab->next;
    slab_free(pool, place, slab);
  }
  free(place->lists);
  free(place);
}

static void pool_destroy(struct block_pool *pool) {
  struct place *place, *next;
  for (place = pool->places; place; place = next) {
    next = place->next;
    place_free(pool, place);
  }
  pthread_mutex_destroy(&pool->lock);
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
  struct pooled **list = &pooled->place->lists[pooled->block];
  shared_renew(buffer);
  pthread_mutex_lock(&pool->lock);
  pooled->next = *list;
  *list = pooled;
  pool->n_taken--;
  pool_unlock(pool);
}

/* Host memory that servers can read, if there is any. */
static bool segment_make(struct place *place, struct slab *slab) {
  struct err err = ERR_NONE;
  if (place->has_no_segment || !segment_is_on() || slab->size > SEGMENT_BYTES_MAX)
    return false;
  place->has_no_segment = segment_new(slab->size, &slab->segment, &err) != ERR_OK;
  if (place->has_no_segment) {
    log_event(LOG_INFO, "worker", "no_segments", "code=%s error=\"%s\": gradients go by socket",
              err_name(err.code), err.text);
    return false;
  }
  slab->bytes = slab->segment->data;
  slab->used = SEGMENT_HEADER_BYTES;
  return true;
}

/* False when out of memory. */
static bool slab_make(const struct block_pool *pool, struct place *place, struct slab *slab) {
  struct err err = ERR_NONE;
  void *bytes = NULL;
  if (place->device != HOST) {
    place->is_full = pool->backend->memory->new (place->device, slab->size, &bytes, &err) != ERR_OK;
    slab->bytes = bytes;
  } else if (!segment_make(place, slab) && pool->backend->pin)
    slab->bytes = backend_pages_new(slab->size);
  if (place->device == HOST && slab->bytes && pool->backend->pin)
    pool->backend->pin(slab->bytes, slab->size);
  if (place->is_full)
    log_event(LOG_WARN, "worker", "device_full", "code=%s error=\"%s\": gradients are added on the host",
              err_name(err.code), err.text);
  return slab->bytes != NULL;
}

/* A quarter more each time: a segment takes a descriptor, and what is pinned is taken whether it is used or
 * not. */
static struct slab *slab_new_locked(struct block_pool *pool, struct place *place, size_t size_bytes) {
  struct slab *slab = mem_new(sizeof *slab);
  size_t least = size_bytes + SEGMENT_HEADER_BYTES, usual = place->slabs_bytes / 4;
  usual = usual < SEGMENT_BYTES_MAX ? usual : SEGMENT_BYTES_MAX;
  usual = usual > SLAB_BYTES ? usual : SLAB_BYTES;
  slab->size = least > usual ? least : usual;
  if (place->is_full || !slab_make(pool, place, slab)) {
    free(slab);
    return NULL;
  }
  slab->next = place->slabs;
  place->slabs = slab;
  place->slabs_bytes += slab->size;
  return slab;
}

/* Bytes of the slab, whose turn lies before them in a segment. */
static void bytes_cut(struct slab *slab, size_t size_bytes, struct pooled *pooled) {
  struct shared_cut cut = {slab->segment, slab->used};
  if (slab->segment) {
    pooled->buffer.data = shared_cut_take(&cut, size_bytes, &pooled->shared);
    pooled->buffer.place = &pooled->shared;
    CHECK(pooled->buffer.data);
    slab->used = cut.used_bytes;
    return;
  }
  pooled->buffer.data = slab->bytes + slab->used;
  slab->used += size_bytes;
}

/* False when out of memory. */
static bool bytes_new_locked(struct block_pool *pool, struct place *place, size_t size_bytes,
                             struct pooled *pooled) {
  size_t rounded = (size_bytes + ALIGN - 1) / ALIGN * ALIGN, taken = shared_bytes_of(rounded);
  struct slab *slab = place->slabs;
  if (!slab || slab->size - slab->used < taken)
    slab = slab_new_locked(pool, place, taken);
  if (slab) {
    bytes_cut(slab, rounded, pooled);
    return true;
  }
  pooled->is_alone = place->device == HOST && !pool->backend->pin;
  if (pooled->is_alone)
    pooled->buffer.data = aligned_alloc(ALIGN, rounded);
  return pooled->buffer.data != NULL;
}

static struct pooled *pooled_new_locked(struct block_pool *pool, struct place *place, uint32_t block) {
  size_t size_bytes = block_part_elems(&pool->model->blocks[block], pool->inner_steps) * sizeof(float);
  struct pooled *pooled = mem_new(sizeof *pooled);
  pooled->buffer = (struct buffer){.size_bytes = size_bytes, .release = on_release};
  pooled->pool = pool;
  pooled->place = place;
  pooled->block = block;
  if (bytes_new_locked(pool, place, size_bytes, pooled))
    return pooled;
  free(pooled);
  return NULL;
}

static struct place *place_of_locked(struct block_pool *pool, int device) {
  struct place *place = pool->places;
  while (place && place->device != device)
    place = place->next;
  if (place)
    return place;
  place = place_new(pool->n_blocks, device);
  place->next = pool->places;
  pool->places = place;
  return place;
}

static struct buffer *block_take(struct block_pool *pool, uint32_t block, int device) {
  struct place *place;
  struct pooled *pooled;
  pthread_mutex_lock(&pool->lock);
  place = place_of_locked(pool, device);
  pooled = place->lists[block];
  if (pooled)
    place->lists[block] = pooled->next;
  else
    pooled = pooled_new_locked(pool, place, block);
  pool->n_taken += pooled != NULL;
  pthread_mutex_unlock(&pool->lock);
  if (!pooled)
    return NULL;
  pooled->buffer.refs = 1;
  return &pooled->buffer;
}

struct buffer *block_pool_take(struct block_pool *pool, uint32_t block) {
  return block_take(pool, block, HOST);
}

struct buffer *block_pool_take_on(struct block_pool *pool, uint32_t block, int device) {
  struct buffer *buffer = block_take(pool, block, device);
  return buffer ? buffer : block_take(pool, block, HOST);
}

int block_pool_device(const struct buffer *buffer) {
  const struct pooled *pooled = (const struct pooled *)buffer;
  return buffer->release == on_release ? pooled->place->device : HOST;
}

void block_pool_give(struct block_pool *pool, uint32_t block, struct buffer *buffer) {
  const struct pooled *pooled = (struct pooled *)buffer;
  CHECK(!buffer || buffer->release != on_release || (pooled->pool == pool && pooled->block == block));
  buffer_put(buffer);
}
