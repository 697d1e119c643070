/* What an outline says in place of an initializer's data. Private to model/onnx. */
#ifndef WEIR_MODEL_ONNX_ONNX_PIECES_H
#define WEIR_MODEL_ONNX_ONNX_PIECES_H

#include <stdbool.h>

#include "model/graph/pieces.h"
#include "onnx.pb-c.h"

/* Whether an initializer of so many bytes of data may be left out, and in which pieces: all but the keys. */
bool onnx_pieces_plan(const Onnx__TensorProto *tensor, size_t data_bytes, struct pieces *pieces);

/* The tensor names these pieces and has no data any more. keys is taken. */
void onnx_pieces_set(Onnx__TensorProto *tensor, char *keys);

#endif
