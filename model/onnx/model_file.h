/* ONNX files as they are submitted, and as one piece of bytes. */
#ifndef WEIR_MODEL_ONNX_MODEL_FILE_H
#define WEIR_MODEL_ONNX_MODEL_FILE_H

#include <stddef.h>

#include "common/base/err.h"
#include "model/graph/pieces.h"

struct external_data;

/* An ONNX file without external data. What large tensors had of it is named by pieces
   (model/onnx/onnx_outline.h), which stay where they are; small ones are put into the bytes. */
struct model_file {
  void *bytes;
  size_t size_bytes;
  struct external_data *external; /* NULL: there are no pieces */
};

/* Opens an ONNX file; its weights that an exporter copied are tied again (model/onnx/model_tie.h). Errors: IO
   or INVALID naming the file; INVALID for external data that is missing, cut short or outside the model's
   folder. Released with model_file_close, also after an error. */
int model_file_open(const char *path, struct model_file *out, struct err *err);
void model_file_close(struct model_file *file); /* safe on a zeroed one */
/* Its pieces, as long as the file is open. read is NULL where there are none. Errors of reading: INVALID when
   the external file has changed. */
struct piece_source model_file_pieces(const struct model_file *file);

/* Puts the pieces that a file names into it. *out: freed by the caller. source: may be NULL where it names
   none. Errors: INVALID when it is not ONNX; UNSUPPORTED above 2 GiB; NO_MEMORY; those of source. */
int model_file_complete(const struct model_file *file, const struct piece_source *source, void **out,
                        size_t *size, struct err *err);

/* Opens and completes. */
int model_file_read(const char *path, void **bytes, size_t *size, struct err *err);

/* Reads any file whole. Errors: NOT_FOUND, IO, UNSUPPORTED above 2 GiB, NO_MEMORY, naming it. */
int model_file_read_bytes(const char *path, void **bytes, size_t *size, struct err *err);

#endif
