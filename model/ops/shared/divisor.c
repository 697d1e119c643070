/* Integer divisors. */
#include "model/ops/shared/divisor.h"

#include <string.h>

int divisor_check(const struct op_call *call, struct err *err) {
  const struct tensor *b = &call->in[1];
  size_t size = dtype_size(b->dtype);
  int64_t elems = shape_elems(&b->shape), zero = 0;
  for (int64_t i = 0; i < elems; i++)
    if (memcmp((const char *)b->data + (size_t)i * size, &zero, size) == 0)
      return node_error(call->node, err, ERR_INVALID,
                        "integer division by zero (element %lld of the divisor)", (long long)i);
  return ERR_OK;
}
