/* ONNX tensors and attributes. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "common/base/half.h"
#include "model/onnx/onnx_parts.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw_data is little-endian and copied as it is");

/* TensorProto.DataType. The 16-bit floats and f64 are computed with as f32. */
static const struct {
  const char *name;
  enum dtype dtype;
} onnx_dtypes[] = {
    [0] = {"no type", DTYPE_NONE},     [1] = {"f32", DTYPE_F32},   [2] = {"u8", DTYPE_U8},
    [3] = {"i8", DTYPE_NONE},          [4] = {"u16", DTYPE_NONE},  [5] = {"i16", DTYPE_NONE},
    [6] = {"i32", DTYPE_I32},          [7] = {"i64", DTYPE_I64},   [8] = {"string", DTYPE_NONE},
    [9] = {"bool", DTYPE_BOOL},        [10] = {"f16", DTYPE_F32},  [11] = {"f64", DTYPE_F32},
    [12] = {"u32", DTYPE_NONE},        [13] = {"u64", DTYPE_NONE}, [14] = {"complex64", DTYPE_NONE},
    [15] = {"complex128", DTYPE_NONE}, [16] = {"bf16", DTYPE_F32},
};

enum dtype onnx_dtype(int data_type, const char **name) {
  bool is_listed = data_type >= 0 && data_type < (int)(sizeof onnx_dtypes / sizeof *onnx_dtypes);
  *name = is_listed ? onnx_dtypes[data_type].name : "an unknown type";
  return is_listed ? onnx_dtypes[data_type].dtype : DTYPE_NONE;
}

int onnx_shape_read(const Onnx__TensorProto *proto, const char *what, struct shape *shape, struct err *err) {
  if (proto->n_dims > RANK_MAX)
    return err_set(err, ERR_INVALID, "%s has %zu dimensions, at most %d are possible", what, proto->n_dims,
                   RANK_MAX);
  *shape = (struct shape){.rank = (int)proto->n_dims};
  for (int i = 0; i < shape->rank; i++) {
    shape->dim[i] = proto->dims[i];
    if (shape->dim[i] < 0)
      return err_set(err, ERR_INVALID, "%s has a dimension of %lld", what, (long long)shape->dim[i]);
  }
  if (shape_elems(shape) < 0)
    return err_set(err, ERR_INVALID, "%s is larger than any tensor may be", what);
  return 0;
}

static int wrong_count(const char *what, const struct shape *shape, const char *unit, size_t has,
                       struct err *err) {
  char text[256];
  return err_set(err, ERR_INVALID, "%s of shape %s holds %zu %s", what, shape_text(shape, text, sizeof text),
                 has, unit);
}

/* i32, u8 and bool may all be in int32_data. */
static int copy_int32_data(const Onnx__TensorProto *proto, const char *what, struct onnx_tensor *out,
                           struct err *err) {
  for (size_t i = 0; i < proto->n_int32_data; i++) {
    int32_t value = proto->int32_data[i];
    if (out->dtype == DTYPE_I32)
      ((int32_t *)out->data)[i] = value;
    else if (value >= 0 && value <= 255)
      ((uint8_t *)out->data)[i] = (uint8_t)value;
    else
      return err_set(err, ERR_INVALID, "%s: element %zu is %d, not a %s", what, i, value,
                     dtype_name(out->dtype));
  }
  return 0;
}

static bool is_half(int data_type) {
  return data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16 ||
         data_type == ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16;
}

/* f16 and bf16 lie in raw_data, or one in each int32_data. */
static int copy_half(struct arena *arena, const Onnx__TensorProto *proto, const char *what,
                     struct onnx_tensor *out, struct err *err) {
  bool is_f16 = proto->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16;
  size_t elems = (size_t)shape_elems(&out->shape), bytes = proto->raw_data.len;
  float *to;
  if (proto->has_raw_data && (bytes % sizeof(uint16_t) || bytes / sizeof(uint16_t) != elems))
    return wrong_count(what, &out->shape, "bytes of raw data", bytes, err);
  if (!proto->has_raw_data && proto->n_int32_data != elems)
    return wrong_count(what, &out->shape, "elements", proto->n_int32_data, err);
  out->data = to = arena_new(arena, elems * sizeof *to);
  for (size_t i = 0; i < elems; i++) {
    uint16_t bits;
    if (proto->has_raw_data)
      memcpy(&bits, proto->raw_data.data + i * sizeof bits, sizeof bits);
    else
      bits = (uint16_t)proto->int32_data[i];
    to[i] = is_f16 ? f32_of_f16(bits) : f32_of_bf16(bits);
  }
  return 0;
}

/* A number beyond those of f32 becomes the nearest one: what a mask adds to hide a score is the lowest f64.
 */
static float f32_of_f64(double number) {
  if (isfinite(number) && fabs(number) > FLT_MAX)
    return copysignf(FLT_MAX, (float)number);
  return (float)number;
}

static int copy_f64(struct arena *arena, const Onnx__TensorProto *proto, const char *what,
                    struct onnx_tensor *out, struct err *err) {
  size_t elems = (size_t)shape_elems(&out->shape), bytes = proto->raw_data.len;
  float *to;
  if (proto->has_raw_data && (bytes % sizeof(double) || bytes / sizeof(double) != elems))
    return wrong_count(what, &out->shape, "bytes of raw data", bytes, err);
  if (!proto->has_raw_data && proto->n_double_data != elems)
    return wrong_count(what, &out->shape, "elements", proto->n_double_data, err);
  out->data = to = arena_new(arena, elems * sizeof *to);
  for (size_t i = 0; i < elems; i++) {
    double number;
    memcpy(&number,
           proto->has_raw_data ? (const void *)(proto->raw_data.data + i * sizeof number)
                               : &proto->double_data[i],
           sizeof number);
    to[i] = f32_of_f64(number);
  }
  return 0;
}

static int copy_data(struct arena *arena, const Onnx__TensorProto *proto, const char *what,
                     struct onnx_tensor *out, struct err *err) {
  size_t elems = (size_t)shape_elems(&out->shape), size, count;
  const void *from = NULL;
  if (is_half(proto->data_type))
    return copy_half(arena, proto, what, out, err);
  if (proto->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE)
    return copy_f64(arena, proto, what, out, err);
  if (__builtin_mul_overflow(elems, dtype_size(out->dtype), &size))
    return err_set(err, ERR_INVALID, "%s is larger than any tensor may be", what);
  if (proto->has_raw_data) {
    if (proto->raw_data.len != size)
      return wrong_count(what, &out->shape, "bytes of raw data", proto->raw_data.len, err);
    out->data = arena_copy(arena, proto->raw_data.data, size);
    return 0;
  }
  count = out->dtype == DTYPE_F32   ? proto->n_float_data
          : out->dtype == DTYPE_I64 ? proto->n_int64_data
                                    : proto->n_int32_data;
  if (count != elems)
    return wrong_count(what, &out->shape, "elements", count, err);
  if (out->dtype == DTYPE_F32)
    from = proto->float_data;
  else if (out->dtype == DTYPE_I64)
    from = proto->int64_data;
  if (from) {
    out->data = arena_copy(arena, from, size);
    return 0;
  }
  out->data = arena_new(arena, size);
  return elems ? copy_int32_data(proto, what, out, err) : 0;
}

int onnx_tensor_read(struct onnx_reader *reader, const Onnx__TensorProto *proto, const char *what,
                     struct onnx_tensor *out, struct err *err) {
  const char *dtype_text;
  *out = (struct onnx_tensor){.dtype = onnx_dtype(proto->data_type, &dtype_text)};
  if (out->dtype == DTYPE_NONE) {
    listing_add(&reader->unsupported_tensors, "%s (%s)", what, dtype_text);
    return 0;
  }
  if (proto->has_data_location && proto->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__DEFAULT)
    return err_set(err, ERR_INVALID,
                   "%s keeps its data in another file, which is not here: the client puts such data into "
                   "the model when it uploads it",
                   what);
  if (onnx_shape_read(proto, what, &out->shape, err) ||
      copy_data(&reader->graph->arena, proto, what, out, err))
    return err->code;
  for (int64_t i = 0; out->dtype == DTYPE_BOOL && i < shape_elems(&out->shape); i++)
    ((uint8_t *)out->data)[i] = ((uint8_t *)out->data)[i] != 0;
  return 0;
}
