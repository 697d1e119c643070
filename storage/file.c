/* The file: store. A directory with blocks/ab/cdef... (named by SHA-256) and records/NAME. Every file is
   written under tmp/, synced, renamed into place, and its directory synced: a reader sees all of it or
   nothing, also after a power cut. Several processes may share the directory: who changes a record holds the
   lock of the file `lock`, which ends with its process. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/memory.h"
#include "storage/file_io.h"
#include "storage/store.h"

enum { KEY_PREFIX = 2, KEY_REST = 62, FOLDERS = 256, SYNC_ALL_LEAST = 4 };
static const char url_prefix[] = "file://";

struct file_store {
  struct store base;
  char *dir; /* absolute, without a slash at the end */
  char *temporary;
};

extern const struct store_def store_file;

static char *block_path(const struct file_store *store, const char *sha256) {
  return mem_printf("%s/blocks/%.*s/%s", store->dir, KEY_PREFIX, sha256, sha256 + KEY_PREFIX);
}

static char *record_path(const struct file_store *store, const char *name) {
  return mem_printf("%s/records/%s", store->dir, name);
}

static void file_close(struct store *base) {
  struct file_store *store = (struct file_store *)base;
  free(store->dir);
  free(store->temporary);
  free(store);
}

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
  store->temporary = mem_printf("%s/tmp", store->dir);
  path = mem_printf("%s/x", store->temporary);
  rc = file_make_parents(path, err);
  free(path);
  if (!rc && access(store->dir, W_OK | X_OK))
    rc = err_errno(err, errno, "store: %s", store->dir);
  if (rc)
    file_close(&store->base);
  else
    *out = &store->base;
  return rc;
}

/* ---- blocks ---- */

/* Files on their way from tmp/ to their places. */
struct placing {
  char *temporary, *path;
};

static int place_write(const struct file_store *store, const struct store_block *block, bool syncs,
                       struct placing *placing, struct err *err) {
  placing->path = block_path(store, block->sha256);
  if (file_make_parents(placing->path, err))
    return err->code;
  return file_write_temporary(store->temporary, block->parts, block->n_parts, syncs, &placing->temporary,
                              err);
}

static int place_rename(struct placing *placing, struct err *err) {
  if (rename(placing->temporary, placing->path))
    return err_errno(err, errno, "store: %s", placing->path);
  free(placing->temporary);
  placing->temporary = NULL;
  return 0;
}

static void place_fini(struct placing *placing) {
  if (placing->temporary)
    unlink(placing->temporary);
  free(placing->temporary);
  free(placing->path);
}

/* Contents are durable before they get their names, and names before we say so: also that of a block which
   was there, for its writer may have died before its folder was synced. */
static int file_put_blocks(struct store *base, const struct store_block *blocks, int n, struct err *err) {
  struct file_store *store = (struct file_store *)base;
  struct placing placings[STORE_BATCH_MAX] = {0};
  bool is_many = n >= SYNC_ALL_LEAST;
  int rc = 0, n_new = 0;
  for (int i = 0; i < n && !rc; i++)
    if (!blocks[i].was_there)
      rc = place_write(store, &blocks[i], !is_many, &placings[n_new++], err);
  if (!rc && is_many && n_new)
    rc = file_sync_all(store->dir, err);
  for (int i = 0; i < n_new && !rc; i++)
    rc = place_rename(&placings[i], err);
  if (!rc && is_many)
    rc = file_sync_all(store->dir, err);
  for (int i = 0; i < n && !rc && !is_many; i++) {
    char *path = block_path(store, blocks[i].sha256);
    rc = file_sync_parent(path, err);
    free(path);
  }
  for (int i = 0; i < n_new; i++)
    place_fini(&placings[i]);
  return rc;
}

static int file_has_blocks(struct store *base, const char *const *keys, int n, bool *has, struct err *err) {
  int rc = 0;
  for (int i = 0; i < n && !rc; i++) {
    char *path = block_path((struct file_store *)base, keys[i]);
    has[i] = access(path, F_OK) == 0;
    if (!has[i] && errno != ENOENT && errno != ENOTDIR)
      rc = err_errno(err, errno, "store: %s", path);
    free(path);
  }
  return rc;
}

static int file_get_blocks(struct store *base, const char *const *keys, int n, void **data, size_t *sizes,
                           struct err *err) {
  int rc = 0;
  for (int i = 0; i < n && !rc; i++) {
    char *path = block_path((struct file_store *)base, keys[i]);
    rc = file_read(path, &data[i], &sizes[i], err);
    free(path);
    if (rc == ERR_NOT_FOUND)
      rc = 0;
  }
  for (int i = 0; i < n && rc; i++) {
    free(data[i]);
    data[i] = NULL;
  }
  return rc;
}

static int file_delete_blocks(struct store *base, const char *const *keys, int n, struct err *err) {
  int rc = 0;
  for (int i = 0; i < n && !rc; i++) {
    char *path = block_path((struct file_store *)base, keys[i]);
    if (unlink(path) && errno != ENOENT)
      rc = err_errno(err, errno, "store: delete %s", path);
    free(path);
  }
  return rc;
}

static int list_folder(const char *folder, const char *prefix,
                       int (*each)(void *user, const char *key, uint64_t size_bytes), void *user,
                       struct err *err) {
  DIR *dir = opendir(folder);
  struct dirent *entry;
  struct stat status;
  char key[STORE_KEY_SIZE];
  int rc = 0;
  if (!dir)
    return errno == ENOENT || errno == ENOTDIR ? 0 : err_errno(err, errno, "store: %s", folder);
  while (!rc && (entry = readdir(dir))) {
    if (strlen(entry->d_name) != KEY_REST || strspn(entry->d_name, "0123456789abcdef") != KEY_REST ||
        fstatat(dirfd(dir), entry->d_name, &status, 0))
      continue;
    snprintf(key, sizeof key, "%.2s%.62s", prefix, entry->d_name);
    rc = each(user, key, (uint64_t)status.st_size);
  }
  closedir(dir);
  return rc;
}

static int file_list_blocks(struct store *base, int (*each)(void *user, const char *key, uint64_t size_bytes),
                            void *user, struct err *err) {
  struct file_store *store = (struct file_store *)base;
  int rc = 0;
  for (int f = 0; f < FOLDERS && !rc; f++) {
    char prefix[16], *folder;
    snprintf(prefix, sizeof prefix, "%02x", f);
    folder = mem_printf("%s/blocks/%s", store->dir, prefix);
    rc = list_folder(folder, prefix, each, user, err);
    free(folder);
  }
  return rc;
}

/* ---- records ---- */

/* The lock's descriptor; closing it lets go. Below 0: an error. */
static int lock(const struct file_store *store, struct err *err) {
  char *path = mem_printf("%s/lock", store->dir);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644), rc = 0;
  while (fd >= 0 && (rc = flock(fd, LOCK_EX)) && errno == EINTR)
    continue;
  if (fd < 0 || rc) {
    err_errno(err, errno, "store: %s", path);
    if (fd >= 0)
      close(fd);
    fd = -1;
  }
  free(path);
  return fd;
}

static int guard_check(const struct file_store *store, const struct store_guard *guard, struct err *err) {
  char *path = record_path(store, guard->name);
  void *data = NULL;
  size_t size = 0;
  int rc = file_read(path, &data, &size, err);
  bool exists = rc == 0;
  free(path);
  if (rc && rc != ERR_NOT_FOUND)
    return rc;
  *err = ERR_NONE;
  if (exists != (guard->data != NULL) || (exists && (size != guard->size || memcmp(data, guard->data, size))))
    err_set(err, ERR_STALE, "store: record %s is not what the writer knows", guard->name);
  free(data);
  return err->code;
}

static int record_delete(const char *path, struct err *err) {
  if (unlink(path) == 0)
    return file_sync_parent(path, err);
  return errno == ENOENT || errno == ENOTDIR ? 0 : err_errno(err, errno, "store: delete %s", path);
}

static int file_write_record(struct store *base, const char *name, const void *data, size_t size,
                             const struct store_guard *guards, int n_guards, struct err *err) {
  struct file_store *store = (struct file_store *)base;
  struct iovec content = {(void *)data, size};
  char *path;
  int rc = 0, fd = lock(store, err);
  if (fd < 0)
    return err->code;
  for (int i = 0; i < n_guards && !rc; i++)
    rc = guard_check(store, &guards[i], err);
  path = record_path(store, name);
  if (!rc)
    rc = data ? file_replace(store->temporary, path, &content, 1, err) : record_delete(path, err);
  free(path);
  close(fd);
  return rc;
}

static int file_get_record(struct store *base, const char *name, void **data, size_t *size, struct err *err) {
  char *path = record_path((struct file_store *)base, name);
  int rc = file_read(path, data, size, err);
  free(path);
  return rc == ERR_NOT_FOUND ? err_set(err, ERR_NOT_FOUND, "store: no such record: %s", name) : rc;
}

/* Could a record below this folder begin with the prefix? */
static bool may_hold(const char *folder, const char *prefix) {
  size_t length = strlen(folder), wanted = strlen(prefix);
  return strncmp(folder, prefix, length < wanted ? length : wanted) == 0;
}

/* below: the records' names so far, "" or with a slash at the end. */
static int list_records_below(const struct file_store *store, const char *below, const char *prefix,
                              struct store_names *names, struct err *err) {
  char *folder = record_path(store, below);
  DIR *dir = opendir(folder);
  struct dirent *entry;
  int rc = 0;
  if (!dir && errno != ENOENT)
    rc = err_errno(err, errno, "store: %s", folder);
  while (dir && !rc && (entry = readdir(dir))) {
    char *name = mem_printf("%s%s", below, entry->d_name), *path = record_path(store, name), *inner;
    struct stat status;
    if (entry->d_name[0] != '.' && stat(path, &status) == 0) {
      inner = mem_printf("%s/", name);
      if (S_ISDIR(status.st_mode) && may_hold(inner, prefix))
        rc = list_records_below(store, inner, prefix, names, err);
      if (S_ISREG(status.st_mode) && strncmp(name, prefix, strlen(prefix)) == 0) {
        array_reserve((void **)&names->items, &names->capacity, names->count, sizeof *names->items);
        names->items[names->count++] = mem_strdup(name);
      }
      free(inner);
    }
    free(path);
    free(name);
  }
  if (dir)
    closedir(dir);
  free(folder);
  return rc;
}

static int file_list_records(struct store *base, const char *prefix, struct store_names *names,
                             struct err *err) {
  return list_records_below((struct file_store *)base, "", prefix, names, err);
}

/* Files under tmp/ whose writers have gone. */
static int file_sweep(struct store *base, int age_s, struct err *err) {
  struct file_store *store = (struct file_store *)base;
  DIR *dir = opendir(store->temporary);
  struct dirent *entry;
  struct stat status;
  int rc = 0;
  if (!dir)
    return err_errno(err, errno, "store: %s", store->temporary);
  while (!rc && (entry = readdir(dir))) {
    if (entry->d_name[0] == '.' || fstatat(dirfd(dir), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) ||
        !S_ISREG(status.st_mode) || time(NULL) - status.st_mtime < age_s)
      continue;
    if (unlinkat(dirfd(dir), entry->d_name, 0) && errno != ENOENT)
      rc = err_errno(err, errno, "store: delete %s/%s", store->temporary, entry->d_name);
  }
  closedir(dir);
  return rc;
}

const struct store_def store_file = {
    .schemes = "file",
    .open = file_open,
    .close = file_close,
    .put_blocks = file_put_blocks,
    .has_blocks = file_has_blocks,
    .get_blocks = file_get_blocks,
    .delete_blocks = file_delete_blocks,
    .list_blocks = file_list_blocks,
    .write_record = file_write_record,
    .get_record = file_get_record,
    .list_records = file_list_records,
    .sweep = file_sweep,
};
