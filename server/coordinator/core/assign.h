/* Who computes what: contiguous ranges of work, proportional to executors. */
#ifndef WEIR_SERVER_COORDINATOR_CORE_ASSIGN_H
#define WEIR_SERVER_COORDINATOR_CORE_ASSIGN_H

#include <stdint.h>

struct range {
  uint32_t begin, end; /* [begin, end); empty when equal */
};

/* Cuts [0, items) into one range for each of n > 0 workers, in their order, proportional to executors[n] (0
   counts as 1). Every item is in exactly one range, and no worker gets more than a fair share rounded up, so
   that the slowest needs no more rounds than it must. A worker may get an empty range. */
void assign_ranges(const uint32_t *executors, int n, uint32_t items, struct range *ranges);

#endif
