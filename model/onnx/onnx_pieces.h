/* What an outline says in place of an initializer's data, for those who handle files themselves. */
#ifndef WEIR_MODEL_ONNX_ONNX_PIECES_H
#define WEIR_MODEL_ONNX_ONNX_PIECES_H

#include <stdbool.h>

#include "model/graph/pieces.h"
#include "onnx.pb-c.h"

/* Whether an initializer of so many bytes of data may be left out, and in which pieces: all but the keys. */
bool onnx_pieces_plan(const Onnx__TensorProto *tensor, size_t data_bytes, struct pieces *pieces);

/* The same of the type and the shape alone. */
bool onnx_pieces_fit(const Onnx__TensorProto *tensor, uint64_t data_bytes, struct pieces *pieces);

/* Whether the tensor names pieces in place of data. */
bool onnx_is_in_pieces(const Onnx__TensorProto *tensor);
/* Which: keys are the tensor's. False: they are not those of its shape and type. */
bool onnx_pieces_find(const Onnx__TensorProto *tensor, struct pieces *pieces);

/* The tensor names these pieces and has no data any more. keys is taken. */
void onnx_pieces_set(Onnx__TensorProto *tensor, char *keys);
/* The same of any external data. */
void onnx_external_set(Onnx__TensorProto *tensor, const char *location, uint64_t offset, uint64_t size_bytes);

/* The tensor has this data (raw, from malloc, taken) and no other. */
void onnx_tensor_put(Onnx__TensorProto *tensor, void *data, size_t size);
/* Reads a tensor's pieces into it. Errors: INVALID for pieces that are not those of its shape and type;
   NOT_FOUND without a source (NULL, or its read is); NO_MEMORY; those of source. */
int onnx_pieces_fill(Onnx__TensorProto *tensor, const struct piece_source *source, struct err *err);

#endif
