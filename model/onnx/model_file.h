/* ONNX files as one piece of bytes. */
#ifndef WEIR_MODEL_ONNX_MODEL_FILE_H
#define WEIR_MODEL_ONNX_MODEL_FILE_H

#include <stddef.h>

#include "common/base/err.h"

/* Reads an ONNX file; tensors that it keeps in external data files (relative to it) are put into the bytes.
   *bytes is freed by the caller. Errors: IO or INVALID naming the file; INVALID for external data that is
   missing, cut short or outside the model's folder. */
int model_file_read(const char *path, void **bytes, size_t *size, struct err *err);

/* Reads any file whole. Errors: NOT_FOUND, IO, UNSUPPORTED above 2 GiB, NO_MEMORY, naming it. */
int model_file_read_bytes(const char *path, void **bytes, size_t *size, struct err *err);

/* Writes a file beside `path` and renames it, so that no half file is ever seen under that name. Errors: IO
   naming the path. */
int model_file_write(const char *path, const void *bytes, size_t size, struct err *err);

#endif
