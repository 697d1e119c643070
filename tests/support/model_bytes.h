/* The files that `weir model` writes, in memory. */
#ifndef WEIR_TESTS_SUPPORT_MODEL_BYTES_H
#define WEIR_TESTS_SUPPORT_MODEL_BYTES_H

#include "client/models/model_kind.h"

/* A model of the kind with options as on its command line, which end with NULL. bytes are the caller's to
 * free. */
int model_bytes(const struct model_kind_def *kind, const char *const *options, uint64_t seed, void **bytes,
                size_t *size_bytes, struct err *err);

#endif
