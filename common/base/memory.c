/* Memory: checked allocations, arenas, shared buffers. */
#include "common/base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"

enum { ARENA_CHUNK_BYTES = 64 * 1024, BUFFER_ALIGN = 64 };

struct arena_chunk {
  struct arena_chunk *next;
  size_t used, size;
  _Alignas(16) unsigned char bytes[];
};

void *mem_new(size_t size) {
  void *memory = calloc(1, size ? size : 1);
  CHECK(memory);
  return memory;
}

void *mem_resize(void *old, size_t size) {
  void *memory = realloc(old, size ? size : 1);
  CHECK(memory);
  return memory;
}

char *mem_strdup(const char *text) {
  char *copy = strdup(text);
  CHECK(copy);
  return copy;
}

char *mem_printf(const char *format, ...) {
  char *text;
  va_list args;
  va_start(args, format);
  CHECK(vasprintf(&text, format, args) >= 0);
  va_end(args);
  return text;
}

void array_reserve(void **array, int *capacity, int count, size_t element) {
  if (count < *capacity)
    return;
  *capacity = count < 8 ? 16 : count * 2;
  *array = mem_resize(*array, (size_t)*capacity * element);
}

void arena_init(struct arena *arena) {
  arena->chunks = NULL;
}

void arena_fini(struct arena *arena) {
  struct arena_chunk *chunk = arena->chunks, *next;
  for (; chunk; chunk = next) {
    next = chunk->next;
    free(chunk);
  }
  arena->chunks = NULL;
}

void *arena_new(struct arena *arena, size_t size) {
  struct arena_chunk *chunk = arena->chunks;
  size_t rounded = (size + 15) & ~(size_t)15;
  if (!chunk || chunk->size - chunk->used < rounded) {
    size_t chunk_size = rounded > ARENA_CHUNK_BYTES ? rounded : ARENA_CHUNK_BYTES;
    chunk = mem_new(sizeof *chunk + chunk_size);
    chunk->size = chunk_size;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
  }
  chunk->used += rounded;
  return chunk->bytes + chunk->used - rounded;
}

void *arena_copy(struct arena *arena, const void *data, size_t size) {
  void *copy = arena_new(arena, size);
  if (size)
    memcpy(copy, data, size);
  return copy;
}

char *arena_strdup(struct arena *arena, const char *text) {
  return arena_copy(arena, text, strlen(text) + 1);
}

char *arena_printf(struct arena *arena, const char *format, ...) {
  char *text, *copy;
  va_list args;
  va_start(args, format);
  CHECK(vasprintf(&text, format, args) >= 0);
  va_end(args);
  copy = arena_strdup(arena, text);
  free(text);
  return copy;
}

struct buffer *buffer_new(size_t size_bytes) {
  struct buffer *buffer;
  size_t rounded = (size_bytes + BUFFER_ALIGN - 1) & ~(size_t)(BUFFER_ALIGN - 1);
  if (rounded < size_bytes || rounded > SIZE_MAX - BUFFER_ALIGN)
    return NULL;
  buffer = aligned_alloc(BUFFER_ALIGN, rounded + BUFFER_ALIGN);
  if (!buffer)
    return NULL;
  buffer->data = (unsigned char *)buffer + BUFFER_ALIGN;
  buffer->size_bytes = size_bytes;
  buffer->refs = 1;
  buffer->place = NULL;
  buffer->release = NULL;
  return buffer;
}

struct buffer *buffer_get(struct buffer *buffer) {
  __atomic_fetch_add(&buffer->refs, 1, __ATOMIC_RELAXED);
  return buffer;
}

void buffer_put(struct buffer *buffer) {
  if (!buffer || __atomic_sub_fetch(&buffer->refs, 1, __ATOMIC_ACQ_REL) > 0)
    return;
  if (buffer->release)
    buffer->release(buffer);
  else
    free(buffer);
}

int buffer_is_sole(const struct buffer *buffer) {
  return __atomic_load_n(&buffer->refs, __ATOMIC_ACQUIRE) == 1;
}
