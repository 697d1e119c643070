/* Files that are written whole and durably, for the file: store. */
#ifndef WEIR_STORAGE_FILE_FILE_IO_H
#define WEIR_STORAGE_FILE_FILE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "common/base/err.h"

/* Writes a new file below `folder`, for its owner alone, under a name of its own and, if asked to, syncs it.
   Its path is the caller's, who renames it (file_sync_parent makes the rename durable) or unlinks it. NULL:
   an error. */
char *file_write_temporary(const char *folder, const struct iovec *parts, int n_parts, bool syncs,
                           struct err *err);

/* The whole file, malloc'd. Errors: NOT_FOUND: no such file, or it is a folder. */
int file_read(const char *path, void **data, size_t *size, struct err *err);

/* Makes the directories above path that are missing, for their owner alone; syncs: each into its own parent.
 */
int file_make_parents(const char *path, bool syncs, struct err *err);

/* Syncs all of the file system that holds `folder`, contents and names: cheaper than each of many files. end
   takes what begin returned, and reports every write of the file system that failed between the two. */
int file_sync_all_begin(const char *folder, struct err *err); /* below 0: an error */
int file_sync_all_end(int begun, const char *folder, struct err *err);

int file_sync_parent(const char *path, struct err *err); /* what was renamed or unlinked there is durable */

/* "store: WHAT PATH: errno's text"; UNAVAILABLE for a file system that is full, read-only or away, else IO.
 */
int file_failed(struct err *err, int errno_value, const char *what, const char *path);

#endif
