/* Parts as they arrive. */
#include "server/parameters/part.h"

#include <string.h>

#include "server/parameters/vector.h"

int part_copy(const struct part *part, uint32_t elems, float *out, struct err *err) {
  uint32_t bad;
  if (part->bytes)
    rpc_bytes_copy(part->bytes, out);
  else
    memcpy(out, part->values, elems * sizeof *out);
  bad = vector_first_not_finite(out, elems);
  if (bad < elems)
    return err_set(err, ERR_INVALID, "element %u is %g, not a finite number", bad, (double)out[bad]);
  return 0;
}
