/* Windows of a long sequence as samples of a language model: the elements of each, and those that follow
   them, one by one. */
#ifndef WEIR_WORKER_DATA_FORMATS_WINDOWS_H
#define WEIR_WORKER_DATA_FORMATS_WINDOWS_H

#include "worker/data/format.h"

/* A sequence of n whole numbers. */
struct sequence {
  const char *path;  /* for messages */
  const char *units; /* what its elements are: "tokens" */
  const void *data;
  uint64_t n;
  enum dtype dtype;
  int packed_bytes; /* as struct column's */
};

/* Adds the columns "tokens" and "labels": sample i is the elements [i * stride, + context), its labels are
   the elements after each. Both are views of sequence->data, which the caller gives to the first. Errors:
   INVALID, naming data.train.context or stride, or when the sequence has no window. */
int windows_add(const struct format_source *source, const struct sequence *sequence, struct column *columns,
                int *n, struct err *err);

#endif
