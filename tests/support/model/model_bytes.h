/* The ONNX files that `weir model` writes, made in memory. */
#ifndef WEIR_TESTS_SUPPORT_MODEL_MODEL_BYTES_H
#define WEIR_TESTS_SUPPORT_MODEL_MODEL_BYTES_H

#include "client/models/model_kind.h"

/* What a model is drawn from. */
struct model_recipe {
  const struct model_kind_def *kind;
  const char *const *options; /* as on the command line, ended by NULL */
  uint64_t seed;              /* of the initial values */
};

/* Builds the model. The caller frees the bytes. Returns the error of the options or of packing. */
int model_bytes(const struct model_recipe *recipe, void **bytes, size_t *size_bytes, struct err *err);

#endif
