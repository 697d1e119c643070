/* The options of weir-server and weir-worker: one table gives help, man page and parsing. */
#ifndef WEIR_COMMON_MANAGER_PROGRAM_OPTION_H
#define WEIR_COMMON_MANAGER_PROGRAM_OPTION_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/page.h"

/* A table of them ends with {0}. */
struct program_option {
  const char *name;  /* without the dashes */
  const char *value; /* its name in the help: "DIR"; NULL for a flag */
  int key;           /* at least PROGRAM_OPTION_KEYS */
  const char *help;  /* sentences */
};

enum { PROGRAM_OPTIONS_MAX = 32, PROGRAM_OPTION_KEYS = 256 };

void program_options_print(const struct program_option *options, const struct page *page);

/* A command line, read from its begin: "--name VALUE", "--name=VALUE", names shortened as far as one option
   alone begins so. */
struct program_line {
  const struct program_option *options;
  int argc;
  char **argv;
  const char *value; /* set: of the option that was read; NULL: a flag. argv's */
  bool has_begun;
};

/* The key of the next option; 0: there is none. Not for two lines at a time (it is getopt's). Errors: -1 and
   INVALID for an unknown option (the nearest known one named), a missing or a superfluous value, a word that
   is no option. */
int program_option_read(struct program_line *line, struct err *err);

#endif
