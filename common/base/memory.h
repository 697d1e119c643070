/* Memory: checked small allocations, arenas for what lives as long as one thing, and shared byte buffers. */
#ifndef WEIR_COMMON_BASE_MEMORY_H
#define WEIR_COMMON_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* For small sizes that no outside input controls: zeroed, never NULL (CHECKs). */
void *mem_new(size_t size);
void *mem_resize(void *old, size_t size); /* grown bytes are not zeroed */
char *mem_strdup(const char *text);
char *mem_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Grows `array` (elements of `element` bytes) so that index `count` is valid; capacity doubles.
   usage: array_reserve((void **)&list, &capacity, count, sizeof *list); list[count++] = x; */
void array_reserve(void **array, int *capacity, int count, size_t element);

/* A bump allocator; everything is released at once. Not for several threads at a time. */
struct arena {
  struct arena_chunk *chunks;
};

void arena_init(struct arena *arena);
void arena_fini(struct arena *arena);              /* safe on a zeroed arena */
void *arena_new(struct arena *arena, size_t size); /* zeroed, 16-byte aligned, never NULL */
void *arena_copy(struct arena *arena, const void *data, size_t size);
char *arena_strdup(struct arena *arena, const char *text);
char *arena_printf(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A reference-counted block of bytes, 64-byte aligned, shared between threads and with gRPC's slices.
   Only the holder of the sole reference may write. */
struct buffer {
  void *data;
  size_t size_bytes;
  struct shared_place *place; /* where other processes find the bytes (common/share/shared.h); NULL:
                                 they do not */
  uint32_t refs;              /* atomic */
  void (*release)(struct buffer *buffer); /* gets it, on any thread, when the last reference is put; NULL: it
                                             is freed */
};

struct buffer *buffer_new(size_t size_bytes); /* one reference, bytes not set; NULL when out of memory */
struct buffer *buffer_get(struct buffer *buffer);
void buffer_put(struct buffer *buffer); /* NULL is ignored */
int buffer_is_sole(const struct buffer *buffer);

#endif
