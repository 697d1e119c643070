/* Data formats: rows of format.def. A format turns the files of a source into columns. */
#ifndef WEIR_WORKER_DATA_FORMAT_H
#define WEIR_WORKER_DATA_FORMAT_H

#include "spec.pb-c.h"
#include "worker/data/column.h"

enum { COLUMNS_MAX = 16 };

struct format_def {
  const char *name;
  /* Fills columns[0 .. *n) from the files of source below folder. What was filled is released by the caller,
     also after an error. Errors: INVALID, NOT_FOUND, CORRUPT or IO, naming file and cause. */
  int (*open)(const char *folder, const Weir__DataSource *source, struct column *columns, int *n,
              struct err *err);
};

const struct format_def *format_find(const char *name); /* NULL if unknown */
const char *format_names(void);                         /* "idx npy" for messages */

/* The path of a source's file, which lies in the folder or below it. Errors: INVALID naming it. */
int format_path(const char *folder, const char *file, char *out, size_t size, struct err *err);

#endif
