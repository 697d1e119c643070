/* Tensors in pieces. What is large in a model travels and is kept by the hashes of its pieces, and need not
   be where the graph is: servers read the pieces that they own, workers pull what is trained. */
#ifndef WEIR_MODEL_GRAPH_PIECES_H
#define WEIR_MODEL_GRAPH_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/agree/placement.h"
#include "common/base/err.h"
#include "common/base/sha256.h"

/* Elements of a piece, the last of a tensor apart: a block of a tensor that is in pieces is one of them. */
enum { PIECE_ELEMS = BLOCK_ELEMS_MAX, PIECE_BYTES_MAX = PIECE_ELEMS * (int)sizeof(float) };

enum piece_type { PIECE_F32, PIECE_F16, PIECE_BF16 };

/* A tensor of a graph whose data is elsewhere. */
struct pieces {
  enum piece_type type; /* of the elements as they are kept, little-endian; the graph computes with f32 */
  uint64_t elems;
  uint32_t n;
  const char *keys; /* [n] of SHA-256 in 64 hexadecimal digits, one after the other */
};

/* A piece to read. */
struct piece_read {
  char key[SHA256_HEX_SIZE];
  size_t size_bytes;
  void *to; /* [size_bytes] */
};

/* Whoever has pieces. Reads all n, whose bytes have the hashes of their keys. Errors: NOT_FOUND, CORRUPT, and
   those of where they are. */
struct piece_source {
  int (*read)(void *user, const struct piece_read *reads, int n, struct err *err);
  void *user;
};

size_t piece_type_size(enum piece_type type); /* bytes of an element */
uint32_t pieces_count(uint64_t elems);        /* of a tensor of so many */
uint32_t pieces_elems(const struct pieces *pieces, uint32_t piece);
size_t pieces_bytes(const struct pieces *pieces, uint32_t piece);
/* Names piece `piece`, to be read to `to`. */
struct piece_read pieces_read(const struct pieces *pieces, uint32_t piece, void *to);

/* Kept elements as f32: out[elems]. bytes and out may be the same. */
void piece_decode(enum piece_type type, const void *bytes, uint32_t elems, float *out);

#endif
