/* Data formats: rows of format.def. A format turns the files of a source into columns. */
#ifndef WEIR_WORKER_DATA_FORMAT_H
#define WEIR_WORKER_DATA_FORMAT_H

#include "spec.pb-c.h"
#include "worker/data/column.h"
#include "worker/data/data_root.h"

enum { COLUMNS_MAX = 16 };

/* What a format is asked to read. */
struct format_source {
  const char *key;            /* "data.train" or "data.eval", for messages */
  struct data_folder *folder; /* its files lie in or below it */
  const Weir__DataSource *spec;
  const Weir__DataSource *train; /* what classes and characters are numbered by: data.train, or spec itself */
};

struct format_def {
  const char *name;
  /* The keys of DataSource that it reads besides 'format': those that must be given, and those that may be.
     Each list is ended by NULL. Others are refused before open is called. */
  const char *const *required, *const *optional;
  /* Fills columns[0 .. *n) from the files of the source. What was filled is released by the caller, also
     after an error. Errors: INVALID, NOT_FOUND, CORRUPT, UNSUPPORTED, NO_MEMORY or IO, naming file and cause,
     or the key: "data.train.context: ...". err holds none before. */
  int (*open)(const struct format_source *source, struct column *columns, int *n, struct err *err);
};

/* Opens a source by the format that it names. Errors: INVALID naming the key, "data.train.labels: ...", or
   those of the format's open, after "data.train: ". */
int format_open(const struct format_source *source, struct column *columns, int *n, struct err *err);

/* Maps a source's file. path: PATH_MAX bytes, for messages. Errors: those of data_folder_file and
   mapping_open. */
int format_map(const struct format_source *source, const char *file, char *path, struct mapping **out,
               struct err *err);

/* realloc of what had `had` bytes (NULL: 0), for what a file holds or announces. Errors: NO_MEMORY naming the
   path, when this machine has not that much left; *memory stays. */
int format_resize(const char *path, uint64_t had, uint64_t bytes, void **memory, struct err *err);

#endif
