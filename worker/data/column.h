/* A column: samples of one kind and where their bytes lie. */
#ifndef WEIR_WORKER_DATA_COLUMN_H
#define WEIR_WORKER_DATA_COLUMN_H

#include "common/graph/graph.h"
#include "worker/data/mapping.h"

/* Dense samples in host byte order, at any alignment. */
struct column {
  const char *name;    /* static, or the spec's */
  enum dtype dtype;    /* F32, I64, I32, U8 or BOOL */
  struct shape sample; /* of one sample */
  uint64_t samples;
  const void *data;        /* [samples, sample...], within memory */
  void *memory;            /* malloc'ed, or */
  struct mapping *mapping; /* a mapped file; released with the column */
};

void column_release(struct column *column); /* safe on a zeroed column */

/* Element i of a column that is not f32; a boolean is 0 or 1. */
int64_t column_integer(const struct column *column, uint64_t i);

/* Elements [begin, begin + elems) as f32, or as integers of dtype I64, I32, U8 or BOOL that hold them (see
   column_check_integers). */
void column_read_f32(const struct column *column, uint64_t begin, int64_t elems, float *out);
void column_read_integers(const struct column *column, uint64_t begin, int64_t elems, enum dtype dtype,
                          void *out);

/* Whether every element fits a graph input of that dtype. Errors: INVALID naming both, or the first sample
   that does not fit and its value. */
int column_check_integers(const struct column *column, const struct value *input, struct err *err);

#endif
