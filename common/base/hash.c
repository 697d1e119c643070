/* XXH3, in the widest variant that the processor has: all of them give the same hash. */
#include "common/base/hash.h"

#ifdef __x86_64__
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

uint64_t hash_bytes(const void *data, size_t size_bytes) {
  return XXH3_64bits(data, size_bytes);
}
