/* DIR/run: the record of the run that a folder holds, which `weir train --resume` needs. */
#ifndef WEIR_CLIENT_FILES_RUN_FILE_H
#define WEIR_CLIENT_FILES_RUN_FILE_H

#include "common/base/err.h"

struct run_file {
  char *run;          /* its id; NULL: none was submitted yet, which only run_file_write takes */
  char *store;        /* URL without a password; NULL: the folder's own store */
  char *model_sha256; /* of the model that the spec names, as it was then */
};

/* Errors: NOT_FOUND when there is none; INVALID for what is not one; IO. Released with run_file_fini. */
int run_file_read(const char *folder, struct run_file *file, struct err *err);
int run_file_write(const char *folder, const struct run_file *file, struct err *err);
void run_file_fini(struct run_file *file); /* safe on a zeroed one */

#endif
