/* Stamps of files. */
#include "worker/data/stamp.h"

#include <stdint.h>
#include <string.h>

/* What no file has, such as the fields of a CSV file, is the same each time. A file that is changed and given
   its former time has another time of change. */
static void add_file(struct sha256 *sha, const struct data_folder *folder, const char *file) {
  char path[PATH_MAX];
  struct stat status;
  uint64_t facts[8] = {0};
  struct err unused = ERR_NONE;
  if (!file || data_folder_name(folder, file, path, &unused))
    return;
  sha256_update(sha, path, strlen(path) + 1);
  if (data_folder_stat(folder, file, &status, &unused) == 0) {
    const uint64_t found[] = {1,
                              (uint64_t)status.st_dev,
                              (uint64_t)status.st_ino,
                              (uint64_t)status.st_size,
                              (uint64_t)status.st_mtim.tv_sec,
                              (uint64_t)status.st_mtim.tv_nsec,
                              (uint64_t)status.st_ctim.tv_sec,
                              (uint64_t)status.st_ctim.tv_nsec};
    memcpy(facts, found, sizeof facts);
  }
  sha256_update(sha, facts, sizeof facts);
}

bool stamp_make(const struct data_folder *folder, const Weir__DataSource *source,
                char stamp[SHA256_HEX_SIZE]) {
  struct sha256 *sha = sha256_new();
  add_file(sha, folder, source->images);
  add_file(sha, folder, source->labels);
  add_file(sha, folder, source->file);
  for (size_t i = 0; i < source->n_files; i++)
    add_file(sha, folder, source->files[i]);
  for (size_t i = 0; i < source->n_columns; i++)
    add_file(sha, folder, source->columns[i]->value);
  sha256_finish(sha, stamp);
  return !source->folder || !*source->folder;
}
