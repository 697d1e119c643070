/* Ranges of a block that updates leave as they are: the rows of model.frozen_rows. */
#ifndef WEIR_COMMON_OPTIM_FROZEN_RANGES_H
#define WEIR_COMMON_OPTIM_FROZEN_RANGES_H

#include "model/model.h"

struct frozen_ranges {
  struct frozen_range {
    uint32_t begin, elems; /* in the block */
  } * items;
  uint32_t n;
};

/* Of a parameter block. */
void frozen_ranges_init(struct frozen_ranges *ranges, const struct model *model, const struct block *block);
void frozen_ranges_fini(struct frozen_ranges *ranges);

/* Their gradient is 0: neither a norm nor an optimizer's sum counts it. grad: f32 of the block. */
void frozen_ranges_clear(const struct frozen_ranges *ranges, float *grad);
/* Whatever an optimizer did to their weights, decay included, is undone. weights, next: f32 of the block. */
void frozen_ranges_keep(const struct frozen_ranges *ranges, const float *weights, float *next);

#endif
