/* Files that are written whole and durably, for the file: store. */
#ifndef WEIR_STORAGE_FILE_IO_H
#define WEIR_STORAGE_FILE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "common/err.h"

/* Writes a new file below `folder` under a name of its own and, if asked to, syncs it. *path is the caller's,
   who renames it (file_sync_parent makes the rename durable) or unlinks it. */
int file_write_temporary(const char *folder, const struct iovec *parts, int n_parts, bool syncs, char **path,
                         struct err *err);

/* Writes `path` anew, whole and durable: made under `folder`, renamed into place. */
int file_replace(const char *folder, const char *path, const struct iovec *parts, int n_parts,
                 struct err *err);

/* The whole file, malloc'd. Errors: NOT_FOUND, without a text of its own. */
int file_read(const char *path, void **data, size_t *size, struct err *err);

/* Makes the directories above path that are missing, each synced into its own parent. */
int file_make_parents(const char *path, struct err *err);

/* All of the file system that holds `folder`, contents and names: cheaper than each of many files. */
int file_sync_all(const char *folder, struct err *err);

int file_sync_parent(const char *path, struct err *err); /* what was renamed or unlinked there is durable */

#endif
