/* What rides down with a boundary gradient from worker to worker besides it: what stages above have of things
   that a stage below hands over as a whole. That is the row of statistics, which the first stage pushes, and
   pieces of gradients of blocks that a cut goes through, which the lowest stage pushes that has one. Stages
   between hand on what comes to them.

   Pure: all workers of a team find the same. */
#ifndef WEIR_WORKER_TRAIN_EXECUTOR_RIDERS_H
#define WEIR_WORKER_TRAIN_EXECUTOR_RIDERS_H

#include "model/stages/cuts.h"
#include "worker/train/block/block_map.h"

/* Adjoining elements: of the row, or of a parameter's gradient. */
struct rider {
  int param;      /* -1: of the row */
  uint32_t block; /* of a gradient */
  uint64_t begin; /* in the row, or in the block */
  size_t elems;
  size_t at; /* of its first one among all that ride */
};

struct riders {
  struct rider *list;
  int n;
  size_t elems; /* of all */
};

/* What rides from stage `from`, which is above another, to that. */
void riders_find(const struct model *model, const struct block_map *map, const struct model_cuts *cuts,
                 int from, struct riders *out);
void riders_fini(struct riders *riders); /* safe on a zeroed one */

/* owners[n_blocks]: the stage that pushes the block. */
void riders_find_owners(const struct model *model, const struct block_map *map, const struct model_cuts *cuts,
                        int *owners);

#endif
