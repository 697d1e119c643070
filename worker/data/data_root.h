/* The files that specs name: they are opened below the worker's --data-root, by openat2, and nowhere else. */
#ifndef WEIR_WORKER_DATA_DATA_ROOT_H
#define WEIR_WORKER_DATA_DATA_ROOT_H

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "common/base/err.h"

struct data_root {
  const char *path;   /* --data-root */
  bool follows_links; /* --follow-links: also those that lead out of it */
  /* What the run's tenant has of it (LoadRun.data_root): relative to it, or absolute below it. The run's
     files lie below that, and no link that leads out of that is followed, whatever follows_links. NULL, "":
     all of it. */
  const char *tenants;
};

/* What a worker looks at when it starts: the root is a folder, this kernel has openat2, and the root neither
   contains the folder of certificates (NULL: there is none) nor lies in it. Errors: NOT_FOUND, INVALID,
   UNSUPPORTED, IO, naming option and folder. */
int data_root_check(const struct data_root *root, const char *certificates, struct err *err);

/* A spec's data.root, opened. What is opened below it is named relative to it: no "..", no '/' at the
   beginning. A link that leads out of the data root is not followed without follows_links; one whose target
   begins with '/' leads out, wherever that is, unless the data root is '/'. Links that the kernel makes up,
   as in /proc, are never followed. No file of a file:// store is opened. Any thread. */
struct data_folder;

/* spec_root: absolute below the data root, or joined to it; of a tenant's, the same of that. Errors: INVALID
   (it lies outside, or is no folder), NOT_FOUND, UNSUPPORTED (no openat2), IO, naming data.root or the
   tenant's data_root. */
int data_folder_open(const struct data_root *root, const char *spec_root, struct data_folder **out,
                     struct err *err);
struct data_folder *data_folder_get(struct data_folder *folder); /* one more holder */
void data_folder_put(struct data_folder *folder);                /* NULL is ignored */

const char *data_folder_path(const struct data_folder *folder); /* for messages */

/* The path of what lies in the folder or below it, for messages. Errors: INVALID naming it. */
int data_folder_name(const struct data_folder *folder, const char *below, char path[PATH_MAX],
                     struct err *err);

/* A file, to be read and closed by the caller; below 0: the error. path: its name for messages. Errors:
   INVALID (data_folder_name, a link that leads out, no plain file, a store's), NOT_FOUND, UNSUPPORTED, IO. */
int data_folder_file(const struct data_folder *folder, const char *below, char path[PATH_MAX],
                     struct err *err);

/* The entries of a folder, for the caller's closedir; NULL: the error. Errors: as data_folder_file. */
DIR *data_folder_list(const struct data_folder *folder, const char *below, struct err *err);

/* What there is by a name, links followed as when it is opened. Errors: as data_folder_file. */
int data_folder_stat(const struct data_folder *folder, const char *below, struct stat *status,
                     struct err *err);

#endif
