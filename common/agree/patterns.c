/* Shell patterns of initializers' names. */
#include "common/agree/patterns.h"

#include <string.h>

int patterns_check(char *const *patterns, size_t n, const char *path, struct err *err) {
  if (n > PATTERNS_MAX)
    return err_set(err, ERR_INVALID, "%s: %zu patterns, at most %d are taken", path, n, PATTERNS_MAX);
  for (size_t i = 0; i < n; i++)
    if (!*patterns[i] || strlen(patterns[i]) > PATTERN_LENGTH_MAX)
      return err_set(err, ERR_INVALID, "%s: a pattern has from 1 to %d letters", path, PATTERN_LENGTH_MAX);
  return 0;
}
