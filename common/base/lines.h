/* Small files that people write: a word a line, comments from '#' on. */
#ifndef WEIR_COMMON_BASE_LINES_H
#define WEIR_COMMON_BASE_LINES_H

#include "common/base/err.h"

/* The text of a file that is open, which is named so in errors; freed by the caller. Errors: INVALID for what
   is no regular file, is longer than a MiB or has a zero byte; IO. */
int lines_read(int fd, const char *name, char **text, struct err *err);

/* Calls take for each line that says something, without its comment and the blanks at its ends, until it
   fails. Errors: those of take, behind "NAME:NUMBER: ". */
typedef int line_function(void *user, const char *line, struct err *err);
int lines_each(const char *text, const char *name, line_function *take, void *user, struct err *err);

#endif
