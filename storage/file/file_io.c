/* Files that are written whole and durably. */
#include "storage/file/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "storage/store.h"

static int write_parts(int fd, const char *path, const struct iovec *parts, int n_parts, struct err *err);

char *file_write_temporary(const char *folder, const struct iovec *parts, int n_parts, bool syncs,
                           struct err *err) {
  char *name = mem_printf("%s/XXXXXX", folder);
  int rc, fd = mkostemp(name, O_CLOEXEC);
  if (fd < 0) {
    file_failed(err, errno, "", name);
    free(name);
    return NULL;
  }
  rc = write_parts(fd, name, parts, n_parts, err);
  if (!rc && syncs && fsync(fd))
    rc = file_failed(err, errno, "sync ", name);
  if (close(fd) && !rc)
    rc = file_failed(err, errno, "close ", name);
  if (!rc)
    return name;
  unlink(name);
  free(name);
  return NULL;
}

static int write_parts(int fd, const char *path, const struct iovec *parts, int n_parts, struct err *err) {
  struct iovec left[STORE_PARTS_MAX];
  int at = 0;
  CHECK(n_parts <= STORE_PARTS_MAX);
  if (n_parts)
    memcpy(left, parts, (size_t)n_parts * sizeof *left);
  while (at < n_parts) {
    ssize_t n = writev(fd, left + at, n_parts - at);
    if (n < 0 && errno != EINTR)
      return file_failed(err, errno, "write ", path);
    for (size_t done = n > 0 ? (size_t)n : 0; at < n_parts;) {
      size_t step = done < left[at].iov_len ? done : left[at].iov_len;
      left[at].iov_base = (char *)left[at].iov_base + step;
      left[at].iov_len -= step;
      done -= step;
      if (left[at].iov_len)
        break;
      at++;
    }
  }
  return 0;
}

/* Files are replaced, never changed: the size is that of the opened one. */
int file_read(const char *path, void **data, size_t *size, struct err *err) {
  struct stat status;
  size_t got = 0;
  char *bytes = NULL;
  int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
    return err_set(err, ERR_NOT_FOUND, "store: no such file: %s", path);
  if (fd < 0 || fstat(fd, &status)) {
    rc = file_failed(err, errno, "", path);
    goto out;
  }
  if (!S_ISREG(status.st_mode)) {
    rc = err_set(err, ERR_NOT_FOUND, "store: %s is not a file", path);
    goto out;
  }
  bytes = malloc(status.st_size ? (size_t)status.st_size : 1);
  if (!bytes) {
    rc = err_set(err, ERR_NO_MEMORY, "store: %s: no memory for %lld bytes", path, (long long)status.st_size);
    goto out;
  }
  while (got < (size_t)status.st_size) {
    ssize_t n = read(fd, bytes + got, (size_t)status.st_size - got);
    if (n == 0)
      break;
    if (n < 0 && errno != EINTR) {
      rc = file_failed(err, errno, "read ", path);
      goto out;
    }
    got += n > 0 ? (size_t)n : 0;
  }
  *data = bytes;
  *size = got;
  bytes = NULL;
out:
  free(bytes);
  if (fd >= 0)
    close(fd);
  return rc;
}

int file_make_parents(const char *path, bool syncs, struct err *err) {
  char *parent = mem_strdup(path);
  char *slash = strrchr(parent, '/');
  int rc = 0;
  if (slash == parent)
    goto out;
  *slash = 0;
  if (access(parent, F_OK) == 0)
    goto out;
  rc = file_make_parents(parent, syncs, err);
  if (!rc && mkdir(parent, 0700) && errno != EEXIST)
    rc = file_failed(err, errno, "mkdir ", parent);
  if (!rc && syncs)
    rc = file_sync_parent(parent, err);
out:
  free(parent);
  return rc;
}

int file_sync_all_begin(const char *folder, struct err *err) {
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    file_failed(err, errno, "", folder);
  return fd;
}

int file_sync_all_end(int begun, const char *folder, struct err *err) {
  return syncfs(begun) ? file_failed(err, errno, "sync the file system of ", folder) : 0;
}

int file_sync_parent(const char *path, struct err *err) {
  const char *slash = strrchr(path, '/');
  char *parent = mem_printf("%.*s", slash == path ? 1 : (int)(slash - path), path);
  int rc = 0, fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || fsync(fd))
    rc = file_failed(err, errno, "sync ", parent);
  if (fd >= 0)
    close(fd);
  free(parent);
  return rc;
}

int file_failed(struct err *err, int errno_value, const char *what, const char *path) {
  static const int away[] = {ENOSPC, EDQUOT, EROFS, EMFILE, ENFILE, ESTALE, ETIMEDOUT, EHOSTDOWN, ENODEV};
  err_errno(err, errno_value, "store: %s%s", what, path);
  for (size_t i = 0; i < sizeof away / sizeof *away; i++)
    if (errno_value == away[i])
      err->code = ERR_UNAVAILABLE;
  return err->code;
}
