/* Columns: their memory, and their elements in the type that an input wants. */
#include "worker/data/column.h"

#include <stdlib.h>
#include <string.h>

void column_release(struct column *column) {
  if (column->source)
    column->source->release(column->state);
  mapping_close(column->mapping);
  free(column->memory);
  *column = (struct column){0};
}

static uint64_t stride_of(const struct column *column) {
  return column->stride ? column->stride : (uint64_t)shape_elems(&column->sample);
}

static size_t element_bytes(const struct column *column) {
  return column->packed_bytes ? (size_t)column->packed_bytes : dtype_size(column->dtype);
}

const void *column_sample(const struct column *column, uint64_t s) {
  return (const char *)column->data + s * stride_of(column) * element_bytes(column);
}

static int64_t packed_value(const unsigned char *at, int bytes) {
  uint32_t wide;
  uint16_t narrow;
  if (bytes == sizeof wide) {
    memcpy(&wide, at, sizeof wide);
    return wide;
  }
  memcpy(&narrow, at, sizeof narrow);
  return narrow;
}

int64_t column_integer(const struct column *column, uint64_t s, uint64_t i) {
  const unsigned char *at = (const unsigned char *)column_sample(column, s) + i * element_bytes(column);
  int64_t wide;
  int32_t narrow;
  if (column->packed_bytes)
    return packed_value(at, column->packed_bytes);
  switch (column->dtype) {
  case DTYPE_I64:
    memcpy(&wide, at, sizeof wide);
    return wide;
  case DTYPE_I32:
    memcpy(&narrow, at, sizeof narrow);
    return narrow;
  case DTYPE_BOOL:
    return *at != 0;
  default:
    CHECK(column->dtype == DTYPE_U8);
    return *at;
  }
}

uint64_t column_first_new(const struct column *column, uint64_t s) {
  uint64_t elems = (uint64_t)shape_elems(&column->sample), stride = stride_of(column);
  return s == 0 || stride >= elems ? 0 : elems - stride;
}

void column_read_f32(const struct column *column, uint64_t s, float *out) {
  const unsigned char *bytes = column_sample(column, s);
  int64_t elems = shape_elems(&column->sample);
  if (column->dtype == DTYPE_F32)
    memcpy(out, bytes, (size_t)elems * sizeof *out);
  else if (column->dtype == DTYPE_U8)
    for (int64_t i = 0; i < elems; i++)
      out[i] = bytes[i];
  else
    for (int64_t i = 0; i < elems; i++)
      out[i] = (float)column_integer(column, s, (uint64_t)i);
}

void column_read_integers(const struct column *column, uint64_t s, enum dtype dtype, void *out) {
  int64_t elems = shape_elems(&column->sample);
  for (int64_t i = 0; i < elems; i++) {
    int64_t value = column_integer(column, s, (uint64_t)i);
    if (dtype == DTYPE_I64)
      ((int64_t *)out)[i] = value;
    else if (dtype == DTYPE_I32)
      ((int32_t *)out)[i] = (int32_t)value;
    else
      ((uint8_t *)out)[i] = (uint8_t)value;
  }
}

/* The least and the greatest value of an integer type. False: it is none. */
static bool range_of(enum dtype dtype, int64_t *least, int64_t *greatest) {
  switch (dtype) {
  case DTYPE_I64:
    *least = INT64_MIN, *greatest = INT64_MAX;
    return true;
  case DTYPE_I32:
    *least = INT32_MIN, *greatest = INT32_MAX;
    return true;
  case DTYPE_U8:
    *least = 0, *greatest = UINT8_MAX;
    return true;
  case DTYPE_BOOL:
    *least = 0, *greatest = 1;
    return true;
  default:
    return false;
  }
}

int column_check_integers(const struct column *column, const struct value *input, struct err *err) {
  int64_t least, greatest, have_least, have_greatest;
  uint64_t elems = (uint64_t)shape_elems(&column->sample);
  if (!range_of(input->dtype, &least, &greatest) || !range_of(column->dtype, &have_least, &have_greatest))
    return err_set(err, ERR_INVALID, "column '%s' is %s, the model's input '%s' wants %s", column->name,
                   dtype_name(column->dtype), input->name, dtype_name(input->dtype));
  if (have_least >= least && have_greatest <= greatest)
    return 0;
  for (uint64_t s = 0; s < column->samples; s++)
    for (uint64_t i = column_first_new(column, s); i < elems; i++) {
      int64_t value = column_integer(column, s, i);
      if (value < least || value > greatest)
        return err_set(err, ERR_INVALID,
                       "%s: sample %llu holds a number that the model's input '%s' (%s) cannot", column->name,
                       (unsigned long long)s, input->name, dtype_name(input->dtype));
    }
  return 0;
}

void column_hash(const struct column *column, struct sha256 *sha) {
  size_t elem_bytes = element_bytes(column), elems;
  sha256_update(sha, column->name, strlen(column->name) + 1);
  sha256_update(sha, &column->dtype, sizeof column->dtype);
  sha256_update(sha, column->sample.dim, (size_t)column->sample.rank * sizeof column->sample.dim[0]);
  if (column->source) {
    column->source->hash(column->state, sha);
    return;
  }
  elems = (size_t)shape_elems(&column->sample);
  if (column->stride) {
    sha256_update(sha, &column->stride, sizeof column->stride);
    elems += (size_t)((column->samples - 1) * column->stride);
  } else
    elems *= (size_t)column->samples;
  sha256_update(sha, column->data, elems * elem_bytes);
}
