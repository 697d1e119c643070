/* Lines of small files. */
#include "common/base/lines.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"

enum { FILE_BYTES_MAX = 1 << 20 };

int lines_read(int fd, const char *name, char **text, struct err *err) {
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

int lines_each(const char *text, const char *name, line_function *take, void *user, struct err *err) {
  char *copy = mem_strdup(text), *rest = copy, *line;
  for (int number = 1; !err->code && (line = strsep(&rest, "\n")); number++) {
    line_trim(line);
    if (*line && take(user, line, err))
      err_prefix(err, "%s:%d", name, number);
  }
  free(copy);
  return err->code;
}
