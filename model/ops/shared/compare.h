/* The order of a tensor's elements, for ops that look for the greatest or the least. */
#ifndef WEIR_MODEL_OPS_SHARED_COMPARE_H
#define WEIR_MODEL_OPS_SHARED_COMPARE_H

#include <math.h>

#include "model/graph/op.h"

/* Below, at or above 0 as element i is less than, equal to or greater than element j. NaN is the greatest. */
static inline int compare_elements(const struct tensor *x, int64_t i, int64_t j) {
  switch (x->dtype) {
  case DTYPE_F32: {
    float a = ((const float *)x->data)[i], b = ((const float *)x->data)[j];
    return isnan(a) || isnan(b) ? !!isnan(a) - !!isnan(b) : (a > b) - (a < b);
  }
  case DTYPE_I32: {
    int32_t a = ((const int32_t *)x->data)[i], b = ((const int32_t *)x->data)[j];
    return (a > b) - (a < b);
  }
  case DTYPE_I64: {
    int64_t a = ((const int64_t *)x->data)[i], b = ((const int64_t *)x->data)[j];
    return (a > b) - (a < b);
  }
  default:
    return ((const uint8_t *)x->data)[i] - ((const uint8_t *)x->data)[j];
  }
}

#endif
