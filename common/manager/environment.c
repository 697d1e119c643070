/* Variables that are one word of a few. */
#include "common/manager/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 4, TEXT_SIZE = 128 };

static const struct variable {
  const char *name, *words[WORDS_MAX + 1]; /* the words end with NULL */
} variables[] = {
    {"WEIR_INSECURE", {"1", "0"}},         {"WEIR_LOG", {"debug", "info", "warn", "error"}},
    {"WEIR_LOG_FORMAT", {"text", "json"}}, {"WEIR_SHM", {"on", "off"}},
    {"WEIR_SOCKETS", {"1", "0"}},
};

static int variable_check(const struct variable *variable, struct err *err) {
  const char *value = getenv(variable->name);
  char list[TEXT_SIZE] = "";
  size_t length = 0;
  if (!value || !*value)
    return ERR_OK;
  for (const char *const *word = variable->words; *word; word++) {
    if (strcmp(value, *word) == 0)
      return ERR_OK;
    length += (size_t)snprintf(list + length, sizeof list - length, "%s%s", length ? ", " : "", *word);
  }
  return err_set(err, ERR_INVALID, "%s is %s or nothing, not '%s'", variable->name, list, value);
}

int environment_check(struct err *err) {
  for (size_t i = 0; i < sizeof variables / sizeof *variables && !err->code; i++)
    variable_check(&variables[i], err);
  return err->code;
}
