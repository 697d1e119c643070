/* Frames of HTTP/2, as far as their heads. */
#include "common/door/header_watch.h"

#include <string.h>

#include "common/base/limits.h"

enum { PREFACE_BYTES = 24, FRAME_HEADERS = 1, FRAME_CONTINUATION = 9, FLAG_END_HEADERS = 4 };

static const uint8_t preface[PREFACE_BYTES] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/* Bytes of the preface among these. */
static size_t take_preface(struct header_watch *watch, const uint8_t *bytes, size_t size) {
  size_t n = PREFACE_BYTES - watch->n_preface;
  n = n < size ? n : size;
  watch->is_other = memcmp(bytes, preface + watch->n_preface, n) != 0;
  watch->n_preface += (uint8_t)n;
  return n;
}

static void frame_begins(struct header_watch *watch) {
  const uint8_t *head = watch->head;
  uint8_t type = head[3], flags = head[4];
  watch->left = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
  watch->n_head = 0;
  if (type == FRAME_HEADERS)
    watch->header_bytes = watch->header_frames = 0;
  else if (type != FRAME_CONTINUATION)
    return;
  watch->header_bytes += watch->left; /* at most 2^24 a frame, and it is looked at after each */
  watch->header_frames++;
  watch->is_refused = watch->header_bytes > LIMIT_HEADER_BYTES || watch->header_frames > LIMIT_HEADER_FRAMES;
  if (flags & FLAG_END_HEADERS)
    watch->header_bytes = watch->header_frames = 0;
}

bool header_watch_feed(struct header_watch *watch, const void *data, size_t size) {
  const uint8_t *bytes = data, *end = bytes + size;
  if (watch->n_preface < PREFACE_BYTES && !watch->is_other)
    bytes += take_preface(watch, bytes, size);
  while (bytes < end && !watch->is_other && !watch->is_refused) {
    size_t has = (size_t)(end - bytes);
    if (watch->left) {
      size_t skipped = watch->left < has ? watch->left : has;
      watch->left -= (uint32_t)skipped;
      bytes += skipped;
      continue;
    }
    watch->head[watch->n_head++] = *bytes++;
    if (watch->n_head == sizeof watch->head)
      frame_begins(watch);
  }
  return !watch->is_refused;
}
