/* A file of quotas, read again and again. */
#include "server/quota_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/text.h"

static int add_line(void *user, const char *line, struct err *err) {
  return quotas_add(user, line, err);
}

static int read_text(const char *path, char **text, struct err *err) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return err_open(err, errno, "%s", path);
  text_read(fd, path, text, err);
  close(fd);
  return err->code;
}

int quota_file_read(struct quota_file *file, struct quotas *quotas, struct err *err) {
  char *text = NULL;
  if (read_text(file->path, &text, err) || text_each_line(text, file->path, add_line, quotas, err)) {
    free(text);
    quotas_fini(quotas);
    return err->code;
  }
  free(file->text);
  file->text = text;
  return 0;
}

bool quota_file_look(struct quota_file *file, struct quotas *quotas) {
  struct quota_file now = {.path = file->path};
  struct err err = ERR_NONE;
  bool is_new = quota_file_read(&now, quotas, &err) == 0 && strcmp(now.text, file->text) != 0;
  if (err.code && strcmp(file->refused.text, err.text) != 0)
    log_event(LOG_WARN, "coordinator", "quotas_not_taken", "reason=\"%s\"", err.text);
  file->refused = err;
  if (!is_new) {
    quotas_fini(quotas);
    quota_file_fini(&now);
    return false;
  }
  log_event(LOG_INFO, "coordinator", "new_quotas", "file=\"%s\" tenants=%d", file->path, quotas->n);
  free(file->text);
  file->text = now.text;
  return true;
}

void quota_file_fini(struct quota_file *file) {
  free(file->text);
  file->text = NULL;
}
