/* Shell patterns (fnmatch) of initializers' names, as specs have them. */
#ifndef WEIR_COMMON_AGREE_PATTERNS_H
#define WEIR_COMMON_AGREE_PATTERNS_H

#include <stddef.h>

#include "common/base/err.h"

/* Each is tried on every initializer of a model, so there are bounds. */
enum { PATTERNS_MAX = 1000, PATTERN_LENGTH_MAX = 255 };

/* path: of their key, for messages: "model.frozen". Errors: INVALID for one that is empty or too long, and
   for too many. */
int patterns_check(char *const *patterns, size_t n, const char *path, struct err *err);

#endif
