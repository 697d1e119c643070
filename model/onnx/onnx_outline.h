/* Outlines: ONNX files whose large initializers are left out. In place of its data such an initializer names
   the pieces that hold it (model/graph/pieces.h): external data at the location "weir.pieces", with the key
   "sha256", the hashes of the pieces one after the other. Workers and servers get outlines. */
#ifndef WEIR_MODEL_ONNX_ONNX_OUTLINE_H
#define WEIR_MODEL_ONNX_ONNX_OUTLINE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/sha256.h"

/* Pieces that a file may name: of tensors of 256 GiB in all. Of one with more, one more is listed. */
enum { ONNX_NAMED_MAX = 1 << 20 };

/* A piece where it lies in the file. */
struct piece_place {
  char key[SHA256_HEX_SIZE];
  const void *data;
  size_t size_bytes;
};

struct onnx_outline {
  void *bytes; /* NULL: nothing is left out, the file is its own outline */
  size_t size_bytes;
  struct piece_place *places; /* [n_places] by key; the same one may come several times */
  size_t n_places;
  struct piece_place *named; /* [n_named] likewise: that the file itself names; data is NULL */
  size_t n_named;
};

/* Makes the outline of an ONNX file: matrices and larger tensors of at least PIECE_ELEMS f32,
   f16 or bf16 in raw_data are left out of its initializers; all other bytes stay. What is not ONNX, or is
   written in a way that nobody writes, is left alone. file outlives the places. Released with
   onnx_outline_fini. */
void onnx_outline_make(const void *file, size_t size_bytes, struct onnx_outline *out);
void onnx_outline_fini(struct onnx_outline *outline); /* safe on a zeroed one */

/* The piece of that key in the file, or named by it; NULL: there is none. */
const struct piece_place *onnx_outline_find(const struct onnx_outline *outline, const char *key);
const struct piece_place *onnx_outline_find_named(const struct onnx_outline *outline, const char *key);
/* Names alone, without an outline: of a file that may be large, in no time. */
void onnx_outline_names(const void *file, size_t size_bytes, struct onnx_outline *out);

#endif
