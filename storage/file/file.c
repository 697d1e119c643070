/* The file: store. A directory with blocks/ab/cdef... (named by SHA-256) and records/NAME. Every file is
   written under tmp/, synced, renamed into place, and its directory synced: a reader sees all of it or
   nothing, also after a power cut. Several processes may share the directory: a process that changes a record
   holds a lock on the file `lock`, which ends with the process. A directory that was taken away is made anew.
   Who reads a store has all models, and who writes it rules: only its owner may enter the directory.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "storage/file/file_io.h"
#include "storage/file/file_store.h"

enum { KEY_PREFIX = 2, KEY_REST = 62, FOLDERS = 256, SYNC_ALL_LEAST = 4 };
static const char url_prefix[] = "file://";

extern const struct store_def store_file;

static char *block_path(const struct file_store *store, const char *sha256) {
  return mem_printf("%s/blocks/%.*s/%s", store->dir, KEY_PREFIX, sha256, sha256 + KEY_PREFIX);
}

int file_store_make(const struct file_store *store, struct err *err) {
  char *path = mem_printf("%s/x", store->temporary);
  int rc = file_make_parents(path, true, err);
  free(path);
  return rc;
}

static bool is_synced(struct file_store *store, const char *folder, ino_t inode) {
  bool is_known = false;
  pthread_mutex_lock(&store->lock);
  for (int i = 0; i < store->n_synced && !is_known; i++)
    is_known = store->synced[i].inode == inode && strcmp(store->synced[i].path, folder) == 0;
  pthread_mutex_unlock(&store->lock);
  return is_known;
}

static void set_synced(struct file_store *store, const char *folder, ino_t inode) {
  struct file_synced synced = {mem_strdup(folder), inode};
  pthread_mutex_lock(&store->lock);
  array_reserve((void **)&store->synced, &store->synced_capacity, store->n_synced, sizeof *store->synced);
  store->synced[store->n_synced++] = synced;
  pthread_mutex_unlock(&store->lock);
}

int file_store_sync(struct file_store *store, const char *path, struct err *err) {
  char *folder = mem_strdup(path), *slash;
  struct stat status = {0};
  int rc = file_sync_parent(path, err);
  while (!rc && (slash = strrchr(folder, '/')) && (size_t)(slash - folder) > strlen(store->dir)) {
    *slash = 0;
    if (stat(folder, &status) == 0 && is_synced(store, folder, status.st_ino))
      continue;
    rc = file_sync_parent(folder, err);
    if (!rc)
      set_synced(store, folder, status.st_ino);
  }
  free(folder);
  return rc;
}

static void file_close(struct store *base) {
  struct file_store *store = (struct file_store *)base;
  for (int i = 0; i < store->n_synced; i++)
    free(store->synced[i].path);
  free(store->synced);
  pthread_mutex_destroy(&store->lock);
  free(store->dir);
  free(store->temporary);
  free(store);
}

/* Whether the directory is a store's or empty. errno is set where it cannot be read. */
static bool holds_store_alone(const char *path) {
  static const char *const names[] = {"blocks", "records", "tmp", "lock", "lost+found"};
  DIR *dir = opendir(path);
  struct dirent *entry;
  bool is_alone = dir != NULL;
  while (is_alone && (entry = readdir(dir))) {
    bool is_ours = entry->d_name[0] == '.';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
      is_ours |= strcmp(entry->d_name, names[i]) == 0;
    is_alone = is_ours;
  }
  if (dir)
    closedir(dir);
  return is_alone;
}

/* A directory of an earlier build, or one that somebody made, may let others in. One that is not the store's
   alone, such as /tmp, keeps its mode. */
static int shut_others_out(const struct file_store *store, struct err *err) {
  struct stat status;
  if (stat(store->dir, &status))
    return file_failed(err, errno, "", store->dir);
  if ((status.st_mode & 077) && holds_store_alone(store->dir) &&
      chmod(store->dir, status.st_mode & 0700) == 0 && stat(store->dir, &status))
    return file_failed(err, errno, "", store->dir);
  if (status.st_mode & 077)
    return err_set(
        err, ERR_INVALID,
        "store: %s has mode %03o: other users of this machine could read or change all models; give "
        "the store a folder of its own, and its owner alone access to it (chmod 700)",
        store->dir, (unsigned)status.st_mode & 0777);
  return 0;
}

static int file_open(const char *url, struct store **out, struct err *err) {
  const char *dir = url + strlen(url_prefix);
  struct file_store *store;
  size_t length = strlen(dir);
  int rc;
  if (dir[0] != '/')
    return err_set(err, ERR_INVALID, "store: '%.200s': a file store is file:///absolute/directory", url);
  while (length > 1 && dir[length - 1] == '/')
    length--;
  store = mem_new(sizeof *store);
  store->base.def = &store_file;
  store->dir = mem_printf("%.*s", (int)length, dir);
  store->temporary = mem_printf("%s/tmp", store->dir);
  pthread_mutex_init(&store->lock, NULL);
  rc = file_store_make(store, err);
  if (!rc)
    rc = shut_others_out(store, err);
  if (!rc && access(store->dir, W_OK | X_OK))
    rc = file_failed(err, errno, "", store->dir);
  if (rc)
    file_close(&store->base);
  else
    *out = &store->base;
  return rc;
}

/* Files on their way from tmp/ to their places. */
struct placing {
  char *temporary, *path;
};

static int place_write(const struct file_store *store, const struct store_block *block, bool syncs,
                       struct placing *placing, struct err *err) {
  placing->path = block_path(store, block->sha256);
  if (file_make_parents(placing->path, false, err)) /* synced with the block's own name */
    return err->code;
  placing->temporary = file_write_temporary(store->temporary, block->parts, block->n_parts, syncs, err);
  return placing->temporary ? 0 : err->code;
}

static int place_rename(struct placing *placing, struct err *err) {
  if (rename(placing->temporary, placing->path))
    return file_failed(err, errno, "", placing->path);
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

/* Is the block still there, and of its size? One that a disk cut short is written again. */
static bool is_whole(const struct file_store *store, const struct store_block *block) {
  char *path = block_path(store, block->sha256);
  struct stat status;
  off_t size = 0;
  bool is_there = stat(path, &status) == 0;
  for (int p = 0; p < block->n_parts; p++)
    size += (off_t)block->parts[p].iov_len;
  free(path);
  return is_there && status.st_size == size;
}

/* Contents are durable before they get their names. */
static int place_many(struct file_store *store, const struct store_block *blocks, int n, struct err *err) {
  struct placing placings[STORE_BATCH_MAX] = {0};
  int rc = 0, n_new = 0, begun = file_sync_all_begin(store->dir, err);
  if (begun < 0)
    return err->code;
  for (int i = 0; i < n && !rc; i++)
    if (!blocks[i].was_there || !is_whole(store, &blocks[i]))
      rc = place_write(store, &blocks[i], false, &placings[n_new++], err);
  if (!rc && n_new)
    rc = file_sync_all_end(begun, store->dir, err);
  for (int i = 0; i < n_new && !rc; i++)
    rc = place_rename(&placings[i], err);
  if (!rc)
    rc = file_sync_all_end(begun, store->dir, err);
  for (int i = 0; i < n_new; i++)
    place_fini(&placings[i]);
  close(begun);
  return rc;
}

static int place_one(struct file_store *store, const struct store_block *block, struct err *err) {
  struct placing placing = {.path = block_path(store, block->sha256)};
  int rc = 0;
  if (!block->was_there || !is_whole(store, block)) {
    free(placing.path);
    rc = place_write(store, block, true, &placing, err);
    if (!rc)
      rc = place_rename(&placing, err);
  }
  if (!rc)
    rc = file_store_sync(store, placing.path, err);
  place_fini(&placing);
  return rc;
}

/* Names are durable when it returns: also those of blocks that were there, for their writer may have died
   before it synced them. */
static int file_put_blocks(struct store *base, const struct store_block *blocks, int n, struct err *err) {
  struct file_store *store = (struct file_store *)base;
  int rc = file_store_make(store, err);
  if (!rc && n >= SYNC_ALL_LEAST)
    return place_many(store, blocks, n, err);
  for (int i = 0; i < n && !rc; i++)
    rc = place_one(store, &blocks[i], err);
  return rc;
}

static int file_has_blocks(struct store *base, const char *const *keys, int n, bool *has, struct err *err) {
  int rc = 0;
  for (int i = 0; i < n && !rc; i++) {
    char *path = block_path((struct file_store *)base, keys[i]);
    has[i] = access(path, F_OK) == 0;
    if (!has[i] && errno != ENOENT && errno != ENOTDIR)
      rc = file_failed(err, errno, "", path);
    free(path);
  }
  return rc;
}

static int file_get_blocks(struct store *base, struct store_read *reads, int n, struct err *err) {
  int rc = 0;
  for (int i = 0; i < n && !rc; i++) {
    char *path = block_path((struct file_store *)base, reads[i].key);
    rc = file_read(path, &reads[i].data, &reads[i].size, err);
    free(path);
    if (rc == ERR_NOT_FOUND)
      rc = 0;
  }
  for (int i = 0; i < n && rc; i++) {
    free(reads[i].data);
    reads[i].data = NULL;
  }
  return rc;
}

static int file_delete_blocks(struct store *base, const char *const *keys, int n, struct err *err) {
  int rc = 0;
  for (int i = 0; i < n && !rc; i++) {
    char *path = block_path((struct file_store *)base, keys[i]);
    if (unlink(path) && errno != ENOENT)
      rc = file_failed(err, errno, "delete ", path);
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
    return errno == ENOENT || errno == ENOTDIR ? 0 : file_failed(err, errno, "", folder);
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
