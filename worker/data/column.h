/* A column: samples of one kind and where they come from. */
#ifndef WEIR_WORKER_DATA_COLUMN_H
#define WEIR_WORKER_DATA_COLUMN_H

#include "common/base/sha256.h"
#include "worker/data/mapping.h"
#include "worker/data/sample.h"

/* Where samples come from that do not lie in memory, but are made when they are read. */
struct column_source {
  /* Makes sample `index`, with sample->shape.channels channels (1 or 3, set by the caller). What it makes
     lies in sample->scratch. Any thread, several at a time. Errors: CORRUPT, INVALID, NOT_FOUND, NO_MEMORY or
     IO, naming the file. */
  int (*read)(const void *state, uint64_t index, struct sample *sample, struct err *err);
  const char *(*name)(const void *state, uint64_t index); /* of a sample, for messages */
  void (*hash)(const void *state, struct sha256 *sha);    /* what tells it from another dataset */
  void (*release)(void *state);
};

/* Samples in host byte order, at any alignment; or a source. */
struct column {
  const char *name;    /* static, or the spec's */
  enum dtype dtype;    /* F32, I64, I32, U8 or BOOL */
  struct shape sample; /* of one sample; from a source: channels, height, width, -1 where they differ */
  uint64_t samples;
  const void *data; /* within memory or mapping; NULL: from a source */
  int packed_bytes; /* of I32 and I64: elements lie as unsigned numbers of 2 or 4 bytes; 0: they do not */
  uint64_t stride;  /* elements from one sample to the next, which may overlap; 0: as many as it has */
  void *memory;     /* malloc'ed, or */
  struct mapping *mapping; /* a mapped file; released with the column */
  const struct column_source *source;
  void *state; /* the source's */
};

void column_release(struct column *column); /* safe on a zeroed column */

/* Where sample s begins. Of a column that is not from a source, as all that follows but column_hash. */
const void *column_sample(const struct column *column, uint64_t s);

/* Element i of sample s of a column that is not f32; a boolean is 0 or 1. */
int64_t column_integer(const struct column *column, uint64_t s, uint64_t i);

/* The first element of sample s that does not belong to the sample before, too: checks begin there. */
uint64_t column_first_new(const struct column *column, uint64_t s);

/* Sample s as f32, or as integers of dtype I64, I32, U8 or BOOL that hold them (see column_check_integers).
 */
void column_read_f32(const struct column *column, uint64_t s, float *out);
void column_read_integers(const struct column *column, uint64_t s, enum dtype dtype, void *out);

/* Whether every element fits a graph input of that dtype. Errors: INVALID naming both, or the first sample
   that does not fit and its value. */
int column_check_integers(const struct column *column, const struct value *input, struct err *err);

/* Adds name, type, shape and content; of a source what it says of itself. */
void column_hash(const struct column *column, struct sha256 *sha);

#endif
