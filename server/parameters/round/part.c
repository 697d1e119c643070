/* Parts as they arrive. */
#include "server/parameters/round/part.h"

#include <string.h>

#include "common/agree/sum.h"

int part_read(const struct part *part, size_t size_bytes, void *out, struct err *err) {
  if (part->shared)
    return shared_bytes_copy(part->shared, out, err);
  if (part->bytes)
    rpc_bytes_copy(part->bytes, out);
  else
    memcpy(out, part->values, size_bytes);
  return 0;
}

int part_check(const float *values, uint32_t elems, struct err *err) {
  uint32_t bad = (uint32_t)sum_first_not_finite(values, elems);
  if (bad == elems)
    return 0;
  return err_set(err, ERR_INVALID, "element %u is %g, not a finite number", bad, (double)values[bad]);
}
