/* Ranges of segments and their turns. */
#include "common/share/shared.h"

#include <string.h>

static size_t aligned(size_t size_bytes) {
  return (size_bytes + SHARED_ALIGN - 1) / SHARED_ALIGN * SHARED_ALIGN;
}

struct shared_cut shared_cut_of(struct segment *segment) {
  return (struct shared_cut){segment, SEGMENT_HEADER_BYTES};
}

size_t shared_bytes_of(size_t size_bytes) {
  return SHARED_ALIGN + aligned(size_bytes);
}

void *shared_cut_take(struct shared_cut *cut, size_t size_bytes, struct shared_place *place) {
  if (size_bytes > cut->segment->size_bytes ||
      shared_bytes_of(size_bytes) > cut->segment->size_bytes - cut->used_bytes)
    return NULL;
  *place = (struct shared_place){cut->segment, cut->used_bytes + SHARED_ALIGN};
  cut->used_bytes += shared_bytes_of(size_bytes);
  return cut->segment->data + place->offset;
}

static uint32_t *turn_at(const struct segment *segment, uint64_t offset) {
  return (uint32_t *)(void *)(segment->data + offset - SHARED_ALIGN);
}

/* Before any of the bytes that follow, as a reader sees it. */
void shared_renew(const struct buffer *buffer) {
  if (!buffer->place)
    return;
  __atomic_fetch_add(turn_at(buffer->place->segment, buffer->place->offset), 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

uint32_t shared_turn(const struct shared_place *place) {
  return __atomic_load_n(turn_at(place->segment, place->offset), __ATOMIC_RELAXED);
}

int shared_bytes_check(const struct shared_bytes *bytes, struct err *err) {
  size_t end = bytes->segment->size_bytes;
  if (bytes->offset >= SEGMENT_HEADER_BYTES + SHARED_ALIGN && bytes->offset % SHARED_ALIGN == 0 &&
      bytes->offset <= end && bytes->size_bytes <= end - bytes->offset)
    return 0;
  return err_set(err, ERR_INVALID, "a segment of %zu bytes has no range of %zu bytes at %llu", end,
                 bytes->size_bytes, (unsigned long long)bytes->offset);
}

int shared_bytes_copy(const struct shared_bytes *bytes, void *out, struct err *err) {
  memcpy(out, bytes->segment->data + bytes->offset, bytes->size_bytes);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (__atomic_load_n(turn_at(bytes->segment, bytes->offset), __ATOMIC_RELAXED) == bytes->turn)
    return 0;
  return err_set(err, ERR_STALE, "the bytes in shared memory are others by now");
}

void shared_bytes_put(struct shared_bytes *bytes) {
  segment_put(bytes->segment);
  *bytes = (struct shared_bytes){0};
}
