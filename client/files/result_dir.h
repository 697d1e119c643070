/* The folder that `weir train` leaves its results in. */
#ifndef WEIR_CLIENT_FILES_RESULT_DIR_H
#define WEIR_CLIENT_FILES_RESULT_DIR_H

#include <stdbool.h>

#include "common/base/err.h"

/* Makes the folder `path` (with its parents and its logs/). One that already holds a run (metrics of a
   step, or a model) is refused, or with is_forced emptied of what a run leaves there, its store too. What a
   run that never began left is removed. Nothing is removed that is not a run's: a folder without a run's file
   `run` (client/files/run_file.h) that holds something by one of its names is refused, is_forced or not, and
   so is one with an input of the new run (paths, ends with NULL) among what would be removed. *absolute: its
   path from the root, freed by the caller. Errors: EXISTS, IO. */
int result_dir_make(const char *path, bool is_forced, const char *const *inputs, char **absolute,
                    struct err *err);

/* A folder that holds a run which can be resumed (see client/files/run_file.h): makes its logs/ if they are
 *gone. absolute as above. Errors: INVALID when there is none, IO. */
int result_dir_reopen(const char *path, char **absolute, struct err *err);

/* Makes a folder, with its parents, where there is none. Errors: IO. */
int result_dir_make_folder(const char *path, struct err *err);

/* Removes a folder and all that is in it. Errors: IO. */
int result_dir_remove(const char *path, struct err *err);

/* Copies a file's bytes. Errors: IO. */
int result_dir_copy(const char *from, const char *to, struct err *err);

#endif
