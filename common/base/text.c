/* Texts that others wrote, and numbers as texts. */
#include "common/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"

enum { FILE_BYTES_MAX = 1 << 20 };

size_t text_character_size(const char *at) {
  static const uint32_t least[] = {' ', 0x80, 0x800, 0x10000};
  uint32_t code = (unsigned char)*at;
  int more = code < 0x80 ? 0 : code < 0xc0 ? -1 : code < 0xe0 ? 1 : code < 0xf0 ? 2 : code < 0xf8 ? 3 : -1;
  if (more < 0)
    return 0;
  if (more > 0)
    code &= 0x3fu >> more;
  for (int i = 1; i <= more; i++) {
    if ((at[i] & 0xc0) != 0x80)
      return 0;
    code = code << 6 | (at[i] & 0x3fu);
  }
  if (code < least[more] || code == 127 || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff)
    return 0;
  return 1 + (size_t)more;
}

bool text_is_clean(const char *text) {
  for (size_t size; *text; text += size)
    if ((size = text_character_size(text)) == 0)
      return false;
  return true;
}

bool path_climbs(const char *path) {
  for (const char *part = path; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
    if (strcmp(part, "..") == 0 || strncmp(part, "../", 3) == 0)
      return true;
  return false;
}

char *text_copy_clean(const char *text, size_t max_bytes) {
  char *copy = mem_new(strnlen(text, max_bytes) + 1);
  memcpy(copy, text, strnlen(text, max_bytes));
  for (char *at = copy; *at;) {
    size_t size = text_character_size(at);
    if (size == 0)
      *at = '?';
    at += size ? size : 1;
  }
  return copy;
}

const char *text_number(double value, char text[TEXT_NUMBER_SIZE]) {
  for (int digits = 6; digits <= 17; digits++) {
    double read;
    snprintf(text, TEXT_NUMBER_SIZE, "%.*g", digits, value);
    read = strtod(text, NULL);
    if (memcmp(&read, &value, sizeof read) == 0) /* a comparison counts subnormals as zero */
      break;
  }
  return text;
}

int text_read(int fd, const char *name, char **text, struct err *err) {
  struct stat status;
  ssize_t size;
  if (fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_size > FILE_BYTES_MAX)
    return err_set(err, ERR_INVALID, "%s: not a text file of at most %d bytes", name, FILE_BYTES_MAX);
  *text = mem_new((size_t)status.st_size + 1);
  size = read(fd, *text, (size_t)status.st_size);
  if (size < 0)
    err_errno(err, errno, "%s", name);
  else if (memchr(*text, 0, (size_t)size))
    err_set(err, ERR_INVALID, "%s: not a text file of at most %d bytes", name, FILE_BYTES_MAX);
  if (!err->code)
    return 0;
  free(*text);
  *text = NULL;
  return err->code;
}

/* What a line says: without its comment and the spaces at its ends. */
static void line_trim(char *line) {
  char *first = line;
  size_t length;
  line[strcspn(line, "#")] = 0;
  while (isspace((unsigned char)*first))
    first++;
  length = strlen(first);
  while (length > 0 && isspace((unsigned char)first[length - 1]))
    length--;
  memmove(line, first, length);
  line[length] = 0;
}

int text_each_line(const char *text, const char *name, line_function *take, void *user, struct err *err) {
  char *copy = mem_strdup(text), *rest = copy, *line;
  for (int number = 1; !err->code && (line = strsep(&rest, "\n")); number++) {
    line_trim(line);
    if (*line && take(user, line, err))
      err_prefix(err, "%s:%d", name, number);
  }
  free(copy);
  return err->code;
}
