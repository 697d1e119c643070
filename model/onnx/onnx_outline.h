/* Outlines: ONNX files whose large initializers are left out. In place of its data such an initializer names
   the pieces that hold it (model/graph/pieces.h): external data at the location "weir.pieces", with the key
   "sha256", the hashes of the pieces one after the other. Workers and servers get outlines. */
#ifndef WEIR_MODEL_ONNX_ONNX_OUTLINE_H
#define WEIR_MODEL_ONNX_ONNX_OUTLINE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/sha256.h"

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
};

/* Makes the outline of an ONNX file that is whole: matrices and larger tensors of at least PIECE_ELEMS f32,
   f16 or bf16 in raw_data are left out of its initializers; all other bytes stay. What is not ONNX, or is
   written in a way that nobody writes, is left alone. file outlives the places. Released with
   onnx_outline_fini. */
void onnx_outline_make(const void *file, size_t size_bytes, struct onnx_outline *out);
void onnx_outline_fini(struct onnx_outline *outline); /* safe on a zeroed one */

/* The piece of that key; NULL: the file has none. */
const struct piece_place *onnx_outline_find(const struct onnx_outline *outline, const char *key);

#endif
