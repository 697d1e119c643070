/* Conversions between types that C leaves undefined where the value does not fit. */
#ifndef WEIR_MODEL_OPS_SHARED_CONVERT_H
#define WEIR_MODEL_OPS_SHARED_CONVERT_H

#include <stdint.h>

/* Cut towards zero; the nearest that the type can hold where x is beyond it, and 0 for what is not a number.
 */
static inline int64_t convert_i64(double x) {
  if (x != x)
    return 0;
  if (x >= 0x1p63)
    return INT64_MAX;
  return x < -0x1p63 ? INT64_MIN : (int64_t)x;
}

static inline int32_t convert_i32(double x) {
  if (x != x)
    return 0;
  if (x >= 0x1p31)
    return INT32_MAX;
  return x < -0x1p31 ? INT32_MIN : (int32_t)x;
}

static inline uint8_t convert_u8(double x) {
  if (!(x > 0.0))
    return 0;
  return x > 255.0 ? 255 : (uint8_t)x;
}

#endif
