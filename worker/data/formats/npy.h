/* Arrays of numpy.save: a header that describes the elements, then the elements. */
#ifndef WEIR_WORKER_DATA_FORMATS_NPY_H
#define WEIR_WORKER_DATA_FORMATS_NPY_H

#include "worker/data/column.h"

/* A saved array, or its beginning. */
struct npy_file {
  const char *path; /* for messages */
  const unsigned char *bytes;
  uint64_t have, size; /* bytes that are there, and of the whole; the header must be there */
};

/* Fills column's dtype, sample, samples and data from the header; column->data points behind it. Errors:
   INVALID, CORRUPT or UNSUPPORTED naming the path, also when the header and the size do not agree. */
int npy_read(const struct npy_file *file, struct column *column, struct err *err);

#endif
