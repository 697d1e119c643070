/* The table of compressors, and values range by range. */
#include "common/compress/compressor.h"

#include <float.h>
#include <string.h>

#include "common/base/def_table.h"
#include "common/base/vector_variants.h"

#define COMPRESSOR(name) extern const struct compressor_def compressor_##name;
#include "common/compress/compressor.def"
#undef COMPRESSOR

static const struct compressor_def *const defs[] = {
#define COMPRESSOR(name) &compressor_##name,
#include "common/compress/compressor.def"
#undef COMPRESSOR
};
static const char *const names_of_all[] = {
#define COMPRESSOR(name) #name,
#include "common/compress/compressor.def"
#undef COMPRESSOR
};
_Static_assert(sizeof defs / sizeof *defs <= 32, "a set of them has a bit for each");
static const struct def_table compressors = DEF_TABLE(defs);

enum { RANGE_BYTES_MAX = COMPRESSOR_RANGE * sizeof(float) };

const struct compressor_def *compressor_at(int index) {
  return def_at(&compressors, index);
}

const struct compressor_def *compressor_find(const char *key, const char *name, struct err *err) {
  const struct compressor_def *compressor = def_find(&compressors, name);
  char known[DEF_NAMES_SIZE];
  if (!compressor)
    err_set(err, ERR_INVALID, "%s: '%.60s' is not known (known: %s)", key, name,
            def_names(&compressors, ", ", known));
  return compressor;
}

const char *const *compressor_names(size_t *n) {
  *n = sizeof names_of_all / sizeof *names_of_all;
  return names_of_all;
}

uint32_t compressor_set(const char *const *names, size_t n) {
  uint32_t set = 0;
  for (size_t i = 0; i < n; i++)
    for (int row = 0; row < compressors.n; row++)
      if (strcmp(names[i], names_of_all[row]) == 0)
        set |= 1u << row;
  return set;
}

static uint32_t range_elems(uint32_t elems, uint32_t begin) {
  return elems - begin < COMPRESSOR_RANGE ? elems - begin : COMPRESSOR_RANGE;
}

size_t compressor_bytes(const struct compressor_def *compressor, uint32_t elems) {
  uint32_t rest = elems % COMPRESSOR_RANGE;
  return elems / COMPRESSOR_RANGE * compressor->range_bytes(COMPRESSOR_RANGE) +
         (rest ? compressor->range_bytes(rest) : 0);
}

void compressor_encode(const struct compressor_def *compressor, uint64_t key, const float *values,
                       uint32_t elems, void *out) {
  uint8_t range[RANGE_BYTES_MAX], *to = out;
  for (uint32_t i = 0; i < elems; i += COMPRESSOR_RANGE) {
    uint32_t n = range_elems(elems, i);
    struct compressor_draws draws = {key, i};
    compressor->encode(values + i, n, &draws, range);
    memcpy(to, range, compressor->range_bytes(n));
    to += compressor->range_bytes(n);
  }
}

/* What overflows is cut. */
VECTOR_VARIANTS
static void add_residual(const float *restrict values, const float *restrict residual, uint32_t n,
                         float *restrict sums) {
  for (uint32_t i = 0; i < n; i++) {
    float sum = values[i] + residual[i];
    sum = sum < FLT_MAX ? sum : FLT_MAX;
    sums[i] = sum > -FLT_MAX ? sum : -FLT_MAX;
  }
}

VECTOR_VARIANTS
static void subtract_sent(const float *restrict sums, const float *restrict sent, uint32_t n,
                          float *restrict residual) {
  for (uint32_t i = 0; i < n; i++)
    residual[i] = sums[i] - sent[i];
}

void compressor_encode_with_feedback(const struct compressor_def *compressor, uint64_t key, float *values,
                                     float *residual, uint32_t elems) {
  uint8_t range[RANGE_BYTES_MAX], *to = (uint8_t *)values;
  float sums[COMPRESSOR_RANGE], sent[COMPRESSOR_RANGE];
  for (uint32_t i = 0; i < elems; i += COMPRESSOR_RANGE) {
    uint32_t n = range_elems(elems, i);
    struct compressor_draws draws = {key, i};
    add_residual(values + i, residual + i, n, sums);
    compressor->encode(sums, n, &draws, range);
    CHECK(compressor->decode(range, n, sent));
    subtract_sent(sums, sent, n, residual + i);
    memcpy(to, range, compressor->range_bytes(n));
    to += compressor->range_bytes(n);
  }
}

int compressor_decode(const struct compressor_def *compressor, const void *bytes, uint32_t elems, float *out,
                      struct err *err) {
  uint8_t range[RANGE_BYTES_MAX];
  const uint8_t *from = bytes;
  for (uint32_t i = 0; i < elems; i += COMPRESSOR_RANGE) {
    uint32_t n = range_elems(elems, i);
    memcpy(range, from, compressor->range_bytes(n));
    from += compressor->range_bytes(n);
    if (!compressor->decode(range, n, out + i))
      return err_set(err, ERR_INVALID, "elements %u to %u are not what %s makes of finite numbers", i,
                     i + n - 1, compressor->name);
  }
  return 0;
}

void compressor_round(const struct compressor_def *compressor, uint64_t key, float *values, uint32_t elems) {
  uint8_t range[RANGE_BYTES_MAX];
  for (uint32_t i = 0; i < elems; i += COMPRESSOR_RANGE) {
    uint32_t n = range_elems(elems, i);
    struct compressor_draws draws = {key, i};
    compressor->encode(values + i, n, &draws, range);
    CHECK(compressor->decode(range, n, values + i));
  }
}
