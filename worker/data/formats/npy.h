/* Arrays of numpy.save: a header that describes the elements, then the elements. */
#ifndef WEIR_WORKER_DATA_NPY_H
#define WEIR_WORKER_DATA_NPY_H

#include "worker/data/column.h"

/* Fills column's dtype, sample, samples and data from an array of size bytes, of which the first `have` are
   at bytes; the header must lie within them, and column->data points behind it. path: for messages. Errors:
   INVALID, CORRUPT or UNSUPPORTED naming it, also when the header and the size do not agree. */
int npy_read(const char *path, const unsigned char *bytes, uint64_t have, uint64_t size,
             struct column *column, struct err *err);

#endif
