/* Tensors in pieces. */
#include "model/graph/pieces.h"

#include <string.h>

#include "common/base/half.h"

enum { KEY_LENGTH = SHA256_HEX_SIZE - 1 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are kept as they lie in memory");

size_t piece_type_size(enum piece_type type) {
  return type == PIECE_F32 ? sizeof(float) : sizeof(uint16_t);
}

uint32_t pieces_count(uint64_t elems) {
  return (uint32_t)((elems + PIECE_ELEMS - 1) / PIECE_ELEMS);
}

uint32_t pieces_elems(const struct pieces *pieces, uint32_t piece) {
  uint64_t left = pieces->elems - (uint64_t)piece * PIECE_ELEMS;
  return left < PIECE_ELEMS ? (uint32_t)left : PIECE_ELEMS;
}

size_t pieces_bytes(const struct pieces *pieces, uint32_t piece) {
  return pieces_elems(pieces, piece) * piece_type_size(pieces->type);
}

struct piece_read pieces_read(const struct pieces *pieces, uint32_t piece, void *to) {
  struct piece_read read = {.size_bytes = pieces_bytes(pieces, piece), .to = to};
  memcpy(read.key, pieces->keys + (size_t)piece * KEY_LENGTH, KEY_LENGTH);
  return read;
}

/* From the end, so that halves can grow where they lie. */
void piece_decode(enum piece_type type, const void *bytes, uint32_t elems, float *out) {
  if (type == PIECE_F32) {
    memmove(out, bytes, elems * sizeof *out);
    return;
  }
  for (uint32_t i = elems; i-- > 0;) {
    uint16_t bits;
    memcpy(&bits, (const char *)bytes + i * sizeof bits, sizeof bits);
    out[i] = type == PIECE_F16 ? f32_of_f16(bits) : f32_of_bf16(bits);
  }
}
