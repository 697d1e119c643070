/* Where the tensors of a model lie in its blocks. */
#ifndef WEIR_WORKER_TRAIN_BLOCK_BLOCK_MAP_H
#define WEIR_WORKER_TRAIN_BLOCK_BLOCK_MAP_H

#include "model/model.h"

struct block_range {
  uint32_t begin, end; /* blocks that hold the tensor's elements */
};

struct block_map {
  struct block_range *params;       /* [n_params] */
  struct block_range *train_values; /* by value of the train graph; empty if it is in no block */
  struct block_range *eval_values;  /* of the eval graph */
  uint32_t *block_params;           /* [n_param_blocks]: how many parameters lie in the block */
};

void block_map_init(struct block_map *map, const struct model *model);
void block_map_fini(struct block_map *map); /* safe on a zeroed map */

#endif
