/* Denied holders, read and found. */
#include "common/certs/denied.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"

enum { FILE_BYTES_MAX = 1 << 20 };

static int denied_read(int fd, const char *file, char **text, struct err *err);
static int denied_parse(struct cert_denied *denied, const char *file, struct err *err);

/* The folder is opened first, so that a link that leads nowhere for a moment is an error, not an empty list.
 */
int cert_denied_read(const char *folder, struct cert_denied *denied, struct err *err) {
  char *file = mem_printf("%s/denied.txt", folder);
  int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
  *denied = (struct cert_denied){0};
  if (at < 0)
    err_open(err, errno, "the folder of certificates '%s'", folder);
  else if ((fd = openat(at, "denied.txt", O_RDONLY | O_CLOEXEC | O_NONBLOCK)) >= 0) {
    if (denied_read(fd, file, &denied->text, err) == 0)
      denied_parse(denied, file, err);
    close(fd);
  } else if (errno != ENOENT)
    err_open(err, errno, "%s", file);
  if (at >= 0)
    close(at);
  if (err->code)
    cert_denied_free(denied);
  free(file);
  return err->code;
}

static int denied_read(int fd, const char *file, char **text, struct err *err) {
  struct stat status;
  ssize_t size;
  if (fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_size > FILE_BYTES_MAX)
    return err_set(err, ERR_INVALID, "%s: not a text file of at most %d bytes", file, FILE_BYTES_MAX);
  *text = mem_new((size_t)status.st_size + 1);
  size = read(fd, *text, (size_t)status.st_size);
  if (size < 0)
    return err_errno(err, errno, "%s", file);
  if (memchr(*text, 0, (size_t)size))
    return err_set(err, ERR_INVALID, "%s: not a text file of at most %d bytes", file, FILE_BYTES_MAX);
  return 0;
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

static int denied_add(struct cert_denied *denied, const char *name, struct err *err) {
  static const char prefix[] = "spiffe://weir/";
  bool is_whole = strncmp(name, prefix, strlen(prefix)) == 0;
  char *uri = mem_printf("%s%s", is_whole ? "" : prefix, name);
  struct cert_holder holder;
  if (cert_holder_read(uri, &holder, err) == 0) {
    array_reserve((void **)&denied->uris, &denied->capacity, denied->count, sizeof *denied->uris);
    cert_holder_uri(&holder, denied->uris[denied->count++]);
  }
  free(uri);
  return err->code;
}

static int denied_parse(struct cert_denied *denied, const char *file, struct err *err) {
  char *copy = mem_strdup(denied->text), *rest = copy, *line;
  for (int number = 1; !err->code && (line = strsep(&rest, "\n")); number++) {
    line_trim(line);
    if (*line && denied_add(denied, line, err))
      err_prefix(err, "%s:%d", file, number);
  }
  free(copy);
  return err->code;
}

void cert_denied_free(struct cert_denied *denied) {
  free(denied->text);
  free(denied->uris);
  *denied = (struct cert_denied){0};
}

bool cert_denied_same(const struct cert_denied *a, const struct cert_denied *b) {
  return strcmp(a->text ? a->text : "", b->text ? b->text : "") == 0;
}

bool cert_denied_has(const struct cert_denied *denied, const struct cert_holder *holder) {
  char uri[CERT_TEXT_SIZE];
  cert_holder_uri(holder, uri);
  for (int i = 0; i < denied->count; i++)
    if (strcmp(denied->uris[i], uri) == 0)
      return true;
  return false;
}
