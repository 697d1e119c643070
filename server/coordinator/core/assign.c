/* Who computes what. */
#include "server/coordinator/core/assign.h"

#include "common/base/err.h"

static uint64_t executors_weight(uint32_t executors) {
  return executors ? executors : 1;
}

/* Worker i ends where a share of all work would end that is proportional to the executors up to it. */
void assign_ranges(const uint32_t *executors, int n, uint32_t items, struct range *ranges) {
  unsigned __int128 total = 0, before = 0;
  uint32_t begin = 0;
  CHECK(n > 0);
  for (int i = 0; i < n; i++)
    total += executors_weight(executors[i]);
  for (int i = 0; i < n; i++) {
    before += executors_weight(executors[i]);
    ranges[i] = (struct range){begin, (uint32_t)(before * items / total)};
    begin = ranges[i].end;
  }
}
