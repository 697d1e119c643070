/* The file: store. A directory with blocks/ab/cdef... (named by SHA-256) and records/NAME. Every file is
   written under tmp/, synced, renamed into place, and its directory synced: a reader sees all of it or
   nothing, also after a power cut. Several processes may share the directory. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/memory.h"
#include "storage/store.h"

enum { KEY_PREFIX = 2 };
static const char url_prefix[] = "file://";

struct file_store {
  struct store base;
  char *dir; /* absolute, without a slash at the end */
};

extern const struct store_def store_file;

static int file_open(const char *url, struct store **out, struct err *err);
static void file_close(struct store *store);
static int file_put_blocks(struct store *store, const struct store_block *blocks, int n, struct err *err);
static int file_has_blocks(struct store *store, const char *const *keys, int n, bool *has, struct err *err);
static int file_get_blocks(struct store *store, const char *const *keys, int n, void **data, size_t *sizes,
                           struct err *err);
static int file_write_record(struct store *store, const char *name, const void *data, size_t size,
                             const struct store_guard *guards, int n_guards, struct err *err);
static int file_get_record(struct store *store, const char *name, void **data, size_t *size, struct err *err);
static char *block_path(const struct file_store *store, const char *sha256);
static int write_replacing(struct file_store *store, const char *path, const void *data, size_t size,
                           struct err *err);
static int write_synced(int fd, const char *path, const void *data, size_t size, struct err *err);
static int read_whole(const char *path, const char *what, void **data, size_t *size, struct err *err);
static int make_parents(const char *path, struct err *err);
static int sync_parent(const char *path, struct err *err);

static int file_open(const char *url, struct store **out, struct err *err) {
  const char *dir = url + strlen(url_prefix);
  struct file_store *store;
  size_t length = strlen(dir);
  char *path;
  int rc;
  if (dir[0] != '/')
    return err_set(err, ERR_INVALID, "store: '%.200s': a file store is file:///absolute/directory", url);
  while (length > 1 && dir[length - 1] == '/')
    length--;
  store = mem_new(sizeof *store);
  store->base.def = &store_file;
  store->dir = mem_printf("%.*s", (int)length, dir);
  path = mem_printf("%s/tmp/x", store->dir);
  rc = make_parents(path, err);
  free(path);
  if (!rc && access(store->dir, W_OK | X_OK))
    rc = err_errno(err, errno, "store: %s", store->dir);
  if (rc)
    file_close(&store->base);
  else
    *out = &store->base;
  return rc;
}

static void file_close(struct store *base) {
  struct file_store *store = (struct file_store *)base;
  free(store->dir);
  free(store);
}

static int file_put_blocks(struct store *base, const struct store_block *blocks, int n, struct err *err) {
  struct file_store *store = (struct file_store *)base;
  int rc = 0;
  for (int i = 0; i < n && !rc; i++) {
    const struct store_block *block = &blocks[i];
    char *path = block_path(store, block->sha256), *content, *at;
    size_t size = 0;
    for (int p = 0; p < block->n_parts; p++)
      size += block->parts[p].iov_len;
    at = content = mem_new(size + 1);
    for (int p = 0; p < block->n_parts; p++) {
      memcpy(at, block->parts[p].iov_base, block->parts[p].iov_len);
      at += block->parts[p].iov_len;
    }
    if (!block->was_there)
      rc = write_replacing(store, path, content, size, err);
    free(content);
    free(path);
  }
  return rc;
}

static int file_has_blocks(struct store *base, const char *const *keys, int n, bool *has, struct err *err) {
  (void)err;
  for (int i = 0; i < n; i++) {
    char *path = block_path((struct file_store *)base, keys[i]);
    has[i] = access(path, F_OK) == 0;
    free(path);
  }
  return 0;
}

static int file_get_blocks(struct store *base, const char *const *keys, int n, void **data, size_t *sizes,
                           struct err *err) {
  for (int i = 0; i < n; i++) {
    char *path = block_path((struct file_store *)base, keys[i]);
    int rc = read_whole(path, "block", &data[i], &sizes[i], err);
    free(path);
    if (rc && rc != ERR_NOT_FOUND)
      return rc;
  }
  *err = ERR_NONE;
  return 0;
}

static int file_write_record(struct store *base, const char *name, const void *data, size_t size,
                             const struct store_guard *guards, int n_guards, struct err *err) {
  struct file_store *store = (struct file_store *)base;
  char *path = mem_printf("%s/records/%s", store->dir, name);
  int rc = write_replacing(store, path, data, size, err);
  (void)guards;
  (void)n_guards;
  free(path);
  return rc;
}

static int file_get_record(struct store *base, const char *name, void **data, size_t *size, struct err *err) {
  char *path = mem_printf("%s/records/%s", ((struct file_store *)base)->dir, name);
  int rc = read_whole(path, "record", data, size, err);
  free(path);
  return rc;
}

static char *block_path(const struct file_store *store, const char *sha256) {
  return mem_printf("%s/blocks/%.*s/%s", store->dir, KEY_PREFIX, sha256, sha256 + KEY_PREFIX);
}

static int write_replacing(struct file_store *store, const char *path, const void *data, size_t size,
                           struct err *err) {
  char *temporary = mem_printf("%s/tmp/XXXXXX", store->dir);
  int fd = -1, rc = make_parents(path, err);
  if (rc)
    goto out;
  fd = mkostemp(temporary, O_CLOEXEC);
  if (fd < 0) {
    rc = err_errno(err, errno, "store: %s", temporary);
    goto out;
  }
  rc = write_synced(fd, temporary, data, size, err);
  if (!rc && rename(temporary, path))
    rc = err_errno(err, errno, "store: %s", path);
  if (rc)
    unlink(temporary);
  else
    rc = sync_parent(path, err);
out:
  free(temporary);
  return rc;
}

/* Closes fd. */
static int write_synced(int fd, const char *path, const void *data, size_t size, struct err *err) {
  const char *at = data;
  int rc = 0;
  while (size > 0 && !rc) {
    ssize_t n = write(fd, at, size);
    if (n < 0 && errno != EINTR)
      rc = err_errno(err, errno, "store: write %s", path);
    at += n > 0 ? n : 0;
    size -= n > 0 ? (size_t)n : 0;
  }
  if (!rc && (fchmod(fd, 0644) || fsync(fd)))
    rc = err_errno(err, errno, "store: sync %s", path);
  if (close(fd) && !rc)
    rc = err_errno(err, errno, "store: close %s", path);
  return rc;
}

/* Files are replaced, never changed: the size is that of the opened one. */
static int read_whole(const char *path, const char *what, void **data, size_t *size, struct err *err) {
  struct stat status;
  size_t got = 0;
  char *bytes = NULL;
  int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT)
    return err_set(err, ERR_NOT_FOUND, "store: no such %s: %s", what, path);
  if (fd < 0 || fstat(fd, &status)) {
    rc = err_errno(err, errno, "store: %s", path);
    goto out;
  }
  if (!S_ISREG(status.st_mode)) {
    rc = err_set(err, ERR_IO, "store: %s is not a file", path);
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
      rc = err_errno(err, errno, "store: read %s", path);
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

/* Makes the directories above path that are missing, each synced into its own parent. */
static int make_parents(const char *path, struct err *err) {
  char *parent = mem_strdup(path);
  char *slash = strrchr(parent, '/');
  int rc = 0;
  if (slash == parent)
    goto out;
  *slash = 0;
  if (access(parent, F_OK) == 0)
    goto out;
  rc = make_parents(parent, err);
  if (!rc && mkdir(parent, 0755) && errno != EEXIST)
    rc = err_errno(err, errno, "store: mkdir %s", parent);
  if (!rc)
    rc = sync_parent(parent, err);
out:
  free(parent);
  return rc;
}

static int sync_parent(const char *path, struct err *err) {
  const char *slash = strrchr(path, '/');
  char *parent = mem_printf("%.*s", slash == path ? 1 : (int)(slash - path), path);
  int rc = 0, fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || fsync(fd))
    rc = err_errno(err, errno, "store: sync %s", parent);
  if (fd >= 0)
    close(fd);
  free(parent);
  return rc;
}

const struct store_def store_file = {
    .schemes = "file",
    .open = file_open,
    .close = file_close,
    .put_blocks = file_put_blocks,
    .has_blocks = file_has_blocks,
    .get_blocks = file_get_blocks,
    .write_record = file_write_record,
    .get_record = file_get_record,
};
