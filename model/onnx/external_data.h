/* Files beside an ONNX file that hold data of its tensors. Nothing of them is mapped: whoever changes them
   while they are read gets a model that is refused, and a reader that goes on. Private to model/onnx. */
#ifndef WEIR_MODEL_ONNX_EXTERNAL_DATA_H
#define WEIR_MODEL_ONNX_EXTERNAL_DATA_H

#include <stdbool.h>

#include "model/graph/pieces.h"
#include "onnx.pb-c.h"

struct external_data;

/* A tensor's bytes. */
struct external_range {
  int file;
  uint64_t offset, size_bytes;
};

struct external_data *external_data_new(const char *model_path);
void external_data_free(struct external_data *external); /* NULL is ignored */
bool tensor_is_external(const Onnx__TensorProto *tensor);

/* Where the tensor's data lies; opens the file. Errors: INVALID for entries that make no sense, a file that
   is outside the model's folder, also by a link, or too short; NOT_FOUND, IO. They name model, tensor and
   file. */
int external_data_find(struct external_data *external, const Onnx__TensorProto *tensor,
                       struct external_range *out, struct err *err);
/* Reads it to `to`. Errors: INVALID when the file has become shorter; IO. */
int external_data_read(const struct external_data *external, struct external_range range, void *to,
                       struct err *err);

/* Hashes a tensor's pieces and remembers where they lie. *keys: one after the other; freed by the caller.
   Errors: those of reading. */
int external_data_add_pieces(struct external_data *external, struct external_range range,
                             const struct pieces *pieces, char **keys, struct err *err);
bool external_data_has_pieces(const struct external_data *external);
/* When all are added: a struct piece_source's read; user is the external_data. Errors: NOT_FOUND; INVALID
   naming the file and the place when the bytes are not those that were hashed. */
int external_data_read_pieces(void *user, const struct piece_read *reads, int n, struct err *err);

#endif
