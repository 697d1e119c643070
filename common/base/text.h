/* Texts that came from outside, from a user, a file or another process; and numbers as texts. */
#ifndef WEIR_COMMON_BASE_TEXT_H
#define WEIR_COMMON_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"

/* How many bytes the character at `at` has; 0 if it is none, or a control character. Shortest forms only, no
   surrogates, nothing above U+10FFFF. The end of the text is no character. */
size_t text_character_size(const char *at);

/* True if the text is UTF-8 (RFC 3629) without control characters: good for logs, terminals, JSON and
 * protobuf. */
bool text_is_clean(const char *text);

/* Whether a part of the path is "..". */
bool path_climbs(const char *path);

/* A copy of at most max_bytes, where '?' stands for every byte that a clean text has not. Freed by the
 * caller. */
char *text_copy_clean(const char *text, size_t max_bytes);

/* The text of a file that is open, which is named so in errors; freed by the caller. Errors: INVALID for what
   is no regular file, is longer than a MiB or has a zero byte; IO. */
int text_read(int fd, const char *name, char **text, struct err *err);

/* Calls take for each line that says something, without its comment, from '#' on, and the blanks at its ends,
   until it fails. Errors: those of take, behind "NAME:NUMBER: ". */
typedef int line_function(void *user, const char *line, struct err *err);
int text_each_line(const char *text, const char *name, line_function *take, void *user, struct err *err);

/* The shortest decimal text of a finite number, of at least six digits' precision, that reads as that very
   number; returns text. */
enum { TEXT_NUMBER_SIZE = 32 };
const char *text_number(double value, char text[TEXT_NUMBER_SIZE]);

#endif
