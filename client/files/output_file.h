/* A file that is written in any order and gets its name when it is whole. */
#ifndef WEIR_CLIENT_FILES_OUTPUT_FILE_H
#define WEIR_CLIENT_FILES_OUTPUT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct output_file {
  char *path, *temporary;
  int fd;
};

/* Links are followed. Errors of all: IO naming the path; INVALID, where something else than a file has the
 * name. */
int output_file_open(struct output_file *file, const char *path, struct err *err);
int output_file_write(struct output_file *file, uint64_t offset, const void *data, size_t size,
                      struct err *err);
/* Syncs it, and gives it its name. */
int output_file_commit(struct output_file *file, struct err *err);
/* Removes what was not committed. Safe on a zeroed one, whose fd is 0. */
void output_file_close(struct output_file *file);

/* Whether both names lead to one file that is there. */
bool output_file_is(const char *path, const char *other);

/* All of it: a whole file. */
int output_file_save(const char *path, const void *data, size_t size, struct err *err);

#endif
