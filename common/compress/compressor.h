/* Compressors: how values travel in fewer bytes than as f32. Each is a row of compressor.def, and pure:
   worker and server compute the same bytes of the same values. A row works on ranges of at most
   COMPRESSOR_RANGE values, which follow one another in what is sent.

   The floating-point setting of common/agree/float_setting.h must hold on the calling thread. */
#ifndef WEIR_COMMON_COMPRESS_COMPRESSOR_H
#define WEIR_COMMON_COMPRESS_COMPRESSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum { COMPRESSOR_RANGE = 128 };

/* Random numbers of a range are those of `key` from `index` on, one a value (common/agree/random.h). */
struct compressor_draws {
  uint64_t key, index;
};

struct compressor_def {
  const char *name;
  bool
      fits_weights; /* it rounds to the nearest, with a relative error that weights bear, and draws nothing */
  /* It leaves much out, which must be added to what is sent next (compressor_encode_with_feedback). */
  bool has_feedback;
  size_t (*range_bytes)(uint32_t n); /* of n values: at most 4 n */
  /* values f32[n], finite -> out u8[range_bytes(n)], not aliased */
  void (*encode)(const float *values, uint32_t n, const struct compressor_draws *draws, uint8_t *out);
  /* bytes u8[range_bytes(n)] -> out f32[n], not aliased. False if encode never makes such bytes. What is made
     of others is finite. */
  bool (*decode)(const uint8_t *bytes, uint32_t n, float *out);
};

const struct compressor_def *compressor_at(int index); /* in the table's order; NULL past the last */

/* Errors: INVALID, "KEY: ..." with those known. */
const struct compressor_def *compressor_find(const char *key, const char *name, struct err *err);

/* Those that this program knows, for its Hello. */
const char *const *compressor_names(size_t *n);
/* A bit for each of these names that is a row of ours; of others there is none. */
uint32_t compressor_set(const char *const *names, size_t n);

size_t compressor_bytes(const struct compressor_def *compressor, uint32_t elems);

/* values f32[elems], finite -> out u8[compressor_bytes]. `out` may be where the values lie. */
void compressor_encode(const struct compressor_def *compressor, uint64_t key, const float *values,
                       uint32_t elems, void *out);

/* Error feedback: values f32[elems], finite, plus the residual -> u8[compressor_bytes] where the values lie.
   residual: f32[elems], finite, zeroed at first; it becomes what is not sent. */
void compressor_encode_with_feedback(const struct compressor_def *compressor, uint64_t key, float *values,
                                     float *residual, uint32_t elems);

/* bytes u8[compressor_bytes] -> out f32[elems]. The bytes may be the last ones of out's memory; else they do
   not overlap. Errors: INVALID for bytes that compressor_encode never makes; `out` counts for nothing. */
int compressor_decode(const struct compressor_def *compressor, const void *bytes, uint32_t elems, float *out,
                      struct err *err);

/* values f32[elems], finite: what is sent of them, read again. */
void compressor_round(const struct compressor_def *compressor, uint64_t key, float *values, uint32_t elems);

#endif
