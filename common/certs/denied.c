/* Denied holders, read and found. */
#include "common/certs/denied.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/base/text.h"

static line_function denied_add;

/* The folder is opened first, so that a link that leads nowhere for a moment is an error, not an empty list.
 */
int cert_denied_read(const char *folder, struct cert_denied *denied, struct err *err) {
  char *file = mem_printf("%s/denied.txt", folder);
  int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
  *denied = (struct cert_denied){0};
  if (at < 0)
    err_open(err, errno, "the folder of certificates '%s'", folder);
  else if ((fd = openat(at, "denied.txt", O_RDONLY | O_CLOEXEC | O_NONBLOCK)) >= 0) {
    if (text_read(fd, file, &denied->text, err) == 0)
      text_each_line(denied->text, file, denied_add, denied, err);
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

static int denied_add(void *user, const char *name, struct err *err) {
  struct cert_denied *denied = user;
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
