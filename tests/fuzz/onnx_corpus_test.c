/* Every file of the fuzzer's corpus, seeds and past findings, goes the fuzzer's way: none may end the
 * process.
 */
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tests/fuzz/onnx_target.h"

static const char folder[] = "tests/fuzz/corpus/onnx";

static bool replay(const char *name) {
  char path[512];
  struct stat stat_of;
  FILE *file;
  uint8_t *bytes;
  bool is_read;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  file = fopen(path, "rb");
  if (!file || fstat(fileno(file), &stat_of))
    return false;
  bytes = malloc((size_t)stat_of.st_size + 1);
  is_read = bytes && fread(bytes, 1, (size_t)stat_of.st_size, file) == (size_t)stat_of.st_size;
  if (is_read)
    onnx_target(bytes, (size_t)stat_of.st_size);
  free(bytes);
  fclose(file);
  return is_read;
}

int main(void) {
  struct dirent **entries;
  int n = scandir(folder, &entries, NULL, alphasort), run = 0;
  for (int i = 0; i < n; i++) {
    if (entries[i]->d_name[0] == '.')
      continue;
    printf("# %s\n", entries[i]->d_name); /* the last line, should it end here */
    fflush(stdout);
    printf("%sok %d - %s ends no process\n", replay(entries[i]->d_name) ? "" : "not ", ++run,
           entries[i]->d_name);
  }
  printf("1..%d\n", run);
  return run ? 0 : 1;
}
