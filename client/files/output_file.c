/* A file that is written in any order and gets its name when it is whole. */
#include "client/files/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/memory.h"

int output_file_open(struct output_file *file, const char *path, struct err *err) {
  *file = (struct output_file){.path = mem_strdup(path),
                               .temporary = mem_printf("%s.%d.tmp", path, (int)getpid())};
  file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  return file->fd < 0 ? err_errno(err, errno, "%s", path) : 0;
}

int output_file_write(struct output_file *file, uint64_t offset, const void *data, size_t size,
                      struct err *err) {
  for (size_t at = 0; at < size;) {
    ssize_t written = pwrite(file->fd, (const char *)data + at, size - at, (off_t)(offset + at));
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return err_errno(err, written < 0 ? errno : EIO, "%s", file->path);
    at += (size_t)written;
  }
  return 0;
}

int output_file_commit(struct output_file *file, struct err *err) {
  int error = fsync(file->fd) ? errno : 0;
  if (close(file->fd) && !error)
    error = errno;
  file->fd = -1;
  if (!error && rename(file->temporary, file->path))
    error = errno;
  if (error)
    return err_errno(err, error, "%s", file->path);
  free(file->temporary);
  file->temporary = NULL;
  return 0;
}

void output_file_close(struct output_file *file) {
  if (file->path && file->fd >= 0)
    close(file->fd);
  if (file->temporary)
    unlink(file->temporary);
  free(file->temporary);
  free(file->path);
  *file = (struct output_file){0};
}
