/* Placement of blocks on servers. */
#include "common/agree/placement.h"

#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/memory.h"

struct sized_block {
  uint32_t elems, index;
};

static int compare_falling(const void *a, const void *b) {
  const struct sized_block *x = a, *y = b;
  if (x->elems != y->elems)
    return x->elems < y->elems ? 1 : -1;
  return x->index < y->index ? -1 : x->index > y->index;
}

void placement_compute(const uint32_t *block_elems, uint32_t blocks, uint32_t servers, uint32_t *owner) {
  struct sized_block *order = mem_new(blocks * sizeof *order);
  uint64_t *load = mem_new(servers * sizeof *load);
  CHECK(servers > 0);
  for (uint32_t b = 0; b < blocks; b++)
    order[b] = (struct sized_block){block_elems[b], b};
  qsort(order, blocks, sizeof *order, compare_falling);
  for (uint32_t b = 0; b < blocks; b++) {
    uint32_t least = 0;
    for (uint32_t s = 1; s < servers; s++)
      if (load[s] < load[least])
        least = s;
    owner[order[b].index] = least;
    load[least] += order[b].elems;
  }
  free(order);
  free(load);
}
