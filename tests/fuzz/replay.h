/* Every file of a fuzzer's corpus, seeds and past findings, goes the fuzzer's way: none may end the process.
 */
#ifndef WEIR_TESTS_FUZZ_REPLAY_H
#define WEIR_TESTS_FUZZ_REPLAY_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static inline bool replay_file(const char *path, void (*target)(const uint8_t *bytes, size_t size)) {
  struct stat stat_of;
  FILE *file = fopen(path, "rb");
  uint8_t *bytes;
  bool is_read;
  if (!file || fstat(fileno(file), &stat_of))
    return false;
  bytes = malloc((size_t)stat_of.st_size + 1);
  is_read = bytes && fread(bytes, 1, (size_t)stat_of.st_size, file) == (size_t)stat_of.st_size;
  if (is_read)
    target(bytes, (size_t)stat_of.st_size);
  free(bytes);
  fclose(file);
  return is_read;
}

/* Adds to *run the number of files. */
static inline void replay_files(const char *folder, void (*target)(const uint8_t *bytes, size_t size),
                                int *run) {
  struct dirent **entries;
  int n = scandir(folder, &entries, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    const char *name = entries[i]->d_name;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (name[0] != '.') {
      printf("# %s\n", name); /* the last line, should it end here */
      fflush(stdout);
      printf("%sok %d - %s ends no process\n", replay_file(path, target) ? "" : "not ", ++*run, name);
    }
    free(entries[i]);
  }
  if (n >= 0)
    free(entries);
}

/* The exit status of a test program. */
static inline int replay_folder(const char *folder, void (*target)(const uint8_t *bytes, size_t size)) {
  int run = 0;
  replay_files(folder, target, &run);
  printf("1..%d\n", run);
  return run ? 0 : 1;
}

#endif
