/* Ranges of a block that its updates leave alone. */
#include "common/optim/frozen_ranges.h"

#include <stdlib.h>
#include <string.h>

/* Adds what of a tensor's range [from, to) of the flat vector lies in the block; without items it is counted.
 */
static void add_range(struct frozen_ranges *ranges, const struct block *block, uint64_t from, uint64_t to) {
  uint64_t end = block->begin + block->elems;
  if (from < block->begin)
    from = block->begin;
  if (to > end)
    to = end;
  if (from >= to)
    return;
  if (ranges->items)
    ranges->items[ranges->n] = (struct frozen_range){(uint32_t)(from - block->begin), (uint32_t)(to - from)};
  ranges->n++;
}

static void add_ranges(struct frozen_ranges *ranges, const struct model *model, const struct block *block) {
  ranges->n = 0;
  for (int p = 0; p < model->n_params; p++) {
    const struct param *param = &model->params[p];
    for (uint32_t r = 0; r < param->n_frozen_rows; r++) {
      uint64_t row_elems = param->elems / (uint64_t)param->shape.dim[0];
      uint64_t from = param->begin + (uint64_t)param->frozen_rows[r] * row_elems;
      add_range(ranges, block, from, from + row_elems);
    }
  }
}

void frozen_ranges_init(struct frozen_ranges *ranges, const struct model *model, const struct block *block) {
  *ranges = (struct frozen_ranges){0};
  add_ranges(ranges, model, block);
  if (ranges->n == 0)
    return;
  ranges->items = mem_new(ranges->n * sizeof *ranges->items);
  add_ranges(ranges, model, block);
}

void frozen_ranges_fini(struct frozen_ranges *ranges) {
  free(ranges->items);
}

void frozen_ranges_clear(const struct frozen_ranges *ranges, float *grad) {
  for (uint32_t i = 0; i < ranges->n; i++)
    memset(grad + ranges->items[i].begin, 0, ranges->items[i].elems * sizeof *grad);
}

void frozen_ranges_keep(const struct frozen_ranges *ranges, const float *weights, float *next) {
  for (uint32_t i = 0; i < ranges->n; i++) {
    const struct frozen_range *range = &ranges->items[i];
    memcpy(next + range->begin, weights + range->begin, range->elems * sizeof *next);
  }
}
