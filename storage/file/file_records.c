/* Records of the file: store: files below records/ that only the holder of the lock changes. */
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

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "storage/file/file_io.h"
#include "storage/file/file_store.h"

enum { LOCK_WAIT_MS = 10000, LOCK_PAUSE_US = 200, LOCK_PAUSE_MAX_US = 10000 };

static char *record_path(const struct file_store *store, const char *name) {
  return mem_printf("%s/records/%s", store->dir, name);
}

bool file_store_is_at(const char *directory) {
  static const char *const names[] = {"lock", "records", "tmp"};
  bool is_there = true;
  for (size_t i = 0; i < sizeof names / sizeof *names && is_there; i++) {
    char *path = mem_printf("%s/%s", directory, names[i]);
    is_there = access(path, F_OK) == 0;
    free(path);
  }
  return is_there;
}

/* The lock's descriptor; closing it lets go. Below 0: an error. A process that was stopped may hold it for
   ever: nobody waits that long. */
static int records_lock(const struct file_store *store, struct err *err) {
  char *path = mem_printf("%s/lock", store->dir);
  uint64_t end_ns = clock_now_ns() + LOCK_WAIT_MS * 1000000ull;
  int pause_us = LOCK_PAUSE_US, fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), rc = 0;
  while (fd >= 0 && (rc = flock(fd, LOCK_EX | LOCK_NB)) &&
         (errno == EINTR || (errno == EWOULDBLOCK && clock_now_ns() < end_ns))) {
    usleep((useconds_t)pause_us);
    pause_us = pause_us < LOCK_PAUSE_MAX_US ? pause_us * 2 : LOCK_PAUSE_MAX_US;
  }
  if (fd >= 0 && rc && errno == EWOULDBLOCK)
    err_set(err, ERR_TIMEOUT, "store: %s: another process has held it for %d s", path, LOCK_WAIT_MS / 1000);
  else if (fd < 0 || rc)
    file_failed(err, errno, "", path);
  if (fd >= 0 && rc)
    close(fd);
  free(path);
  return rc ? -1 : fd;
}

static int guard_check(const struct file_store *store, const struct store_record *guard, struct err *err) {
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

static int record_replace(struct file_store *store, const char *path, const struct iovec *content,
                          struct err *err) {
  char *temporary;
  int rc = file_make_parents(path, false, err); /* synced below */
  if (rc || !(temporary = file_write_temporary(store->temporary, content, 1, true, err)))
    return err->code;
  if (rename(temporary, path)) {
    rc = file_failed(err, errno, "", path);
    unlink(temporary);
  } else
    rc = file_store_sync(store, path, err);
  free(temporary);
  return rc;
}

static int record_delete(const char *path, struct err *err) {
  if (unlink(path) == 0)
    return file_sync_parent(path, err);
  return errno == ENOENT || errno == ENOTDIR ? 0 : file_failed(err, errno, "delete ", path);
}

int file_write_record(struct store *base, const struct store_record *record, struct err *err) {
  struct file_store *store = (struct file_store *)base;
  struct iovec content = {(void *)record->data, record->size};
  char *path;
  int fd, rc = file_store_make(store, err);
  if (rc || (fd = records_lock(store, err)) < 0)
    return err->code;
  for (const struct store_record *guard = record->guard; guard && !rc; guard = guard->guard)
    rc = guard_check(store, guard, err);
  path = record_path(store, record->name);
  if (!rc)
    rc = record->data ? record_replace(store, path, &content, err) : record_delete(path, err);
  free(path);
  close(fd);
  return rc;
}

int file_get_record(struct store *base, const char *name, void **data, size_t *size, struct err *err) {
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
    rc = file_failed(err, errno, "", folder);
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

int file_list_records(struct store *base, const char *prefix, struct store_names *names, struct err *err) {
  return list_records_below((struct file_store *)base, "", prefix, names, err);
}

/* Removes folders of records that hold nothing. The caller holds the lock: no record is on its way there. */
static int remove_empty(const struct file_store *store, const char *below, struct err *err) {
  char *folder = record_path(store, below);
  DIR *dir = opendir(folder);
  struct dirent *entry;
  int rc = 0;
  if (!dir && errno != ENOENT && errno != ENOTDIR)
    rc = file_failed(err, errno, "", folder);
  while (dir && !rc && (entry = readdir(dir))) {
    char *inner = mem_printf("%s%s/", below, entry->d_name);
    if (entry->d_name[0] != '.')
      rc = remove_empty(store, inner, err);
    free(inner);
  }
  if (dir)
    closedir(dir);
  if (dir && *below && !rc)
    rmdir(folder);
  free(folder);
  return rc;
}

/* Files under tmp/ whose writers have gone. */
static int remove_rests(const struct file_store *store, int age_s, struct err *err) {
  DIR *dir = opendir(store->temporary);
  struct dirent *entry;
  struct stat status;
  int rc = 0;
  if (!dir)
    return file_failed(err, errno, "", store->temporary);
  while (!rc && (entry = readdir(dir))) {
    if (entry->d_name[0] == '.' || fstatat(dirfd(dir), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) ||
        !S_ISREG(status.st_mode) || time(NULL) - status.st_mtime < age_s)
      continue;
    if (unlinkat(dirfd(dir), entry->d_name, 0) && errno != ENOENT)
      rc = file_failed(err, errno, "delete below ", store->temporary);
  }
  closedir(dir);
  return rc;
}

int file_sweep(struct store *base, int age_s, struct err *err) {
  struct file_store *store = (struct file_store *)base;
  int fd, rc = file_store_make(store, err);
  if (rc || (fd = records_lock(store, err)) < 0)
    return err->code;
  rc = remove_empty(store, "", err);
  close(fd);
  return rc ? rc : remove_rests(store, age_s, err);
}
