/* The ONNX files that `weir model` writes, made in memory. */
#ifndef WEIR_TESTS_SUPPORT_MODEL_BYTES_H
#define WEIR_TESTS_SUPPORT_MODEL_BYTES_H

#include "client/models/model_kind.h"

/* Builds a model of this kind. options: as on the command line, ended by NULL; seed: of the initial
   values. The caller frees the bytes. Returns the error of the options or of packing. */
int model_bytes(const struct model_kind_def *kind, const char *const *options, uint64_t seed, void **bytes,
                size_t *size_bytes, struct err *err);

#endif
