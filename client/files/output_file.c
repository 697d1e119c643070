/* A file that is written in any order and gets its name when it is whole. */
#include "client/files/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"

/* As /dev/stdout is: what is printed afterwards would go into the file that was replaced. */
static bool is_standard(const struct stat *file) {
  struct stat standard;
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fstat(fd, &standard) == 0 && standard.st_dev == file->st_dev && standard.st_ino == file->st_ino)
      return true;
  return false;
}

/* The file that the name leads to, which is replaced: nothing else may be, neither a device nor a link. NULL:
   the error. */
static char *find_target(const char *path, struct err *err) {
  struct stat status;
  char *target = NULL;
  bool is_there = stat(path, &status) == 0;
  if (strcmp(path, "-") == 0)
    err_set(err, ERR_INVALID, "'-' is no file: name one, for what is written gets its name when it is whole");
  else if (is_there && !S_ISREG(status.st_mode))
    err_set(err, ERR_INVALID, "%s: is not a file but a %s", path,
            S_ISDIR(status.st_mode) ? "folder" : "pipe or a device");
  else if (is_there && is_standard(&status))
    err_set(err, ERR_INVALID, "%s: is open already, as standard input, output or error: name another file",
            path);
  else if (lstat(path, &status))
    target = mem_strdup(path); /* that is new, or what opening it says */
  else if (!(target = realpath(path, NULL)))
    err_errno(err, errno, "%s, a link", path);
  return target;
}

int output_file_open(struct output_file *file, const char *path, struct err *err) {
  *file = (struct output_file){.path = find_target(path, err), .fd = -1};
  if (!file->path)
    return err->code;
  file->temporary = mem_printf("%s.%d.tmp", file->path, (int)getpid());
  unlink(file->temporary); /* that a process of this number left */
  file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
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

bool output_file_is(const char *path, const char *other) {
  struct stat status, others;
  return stat(path, &status) == 0 && stat(other, &others) == 0 && status.st_dev == others.st_dev &&
         status.st_ino == others.st_ino;
}

int output_file_save(const char *path, const void *data, size_t size, struct err *err) {
  struct output_file file;
  if (output_file_open(&file, path, err) == 0 && output_file_write(&file, 0, data, size, err) == 0)
    output_file_commit(&file, err);
  output_file_close(&file);
  return err->code;
}
