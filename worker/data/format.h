/* Data formats: rows of format.def. A format turns the files of a source into columns. */
#ifndef WEIR_WORKER_DATA_FORMAT_H
#define WEIR_WORKER_DATA_FORMAT_H

#include "common/graph/graph.h"
#include "spec.pb-c.h"

/* Samples of one kind: dense, in host byte order. */
struct column {
  const char *name;    /* static */
  enum dtype dtype;    /* U8, I32, F32 */
  struct shape sample; /* of one sample */
  uint64_t samples;
  void *data; /* malloc'ed; [samples, sample...] */
};

enum { COLUMNS_MAX = 16 };

struct format_def {
  const char *name;
  /* Fills columns[0 .. *n) from the files of source below folder. What was filled is freed by the caller,
     also after an error. Errors: INVALID, NOT_FOUND, CORRUPT or IO, naming file and cause. */
  int (*open)(const char *folder, const Weir__DataSource *source, struct column *columns, int *n,
              struct err *err);
};

const struct format_def *format_find(const char *name); /* NULL if unknown */
const char *format_names(void);                         /* "idx" for messages */

#endif
