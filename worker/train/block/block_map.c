/* Where the tensors of a model lie in its blocks. */
#include "worker/train/block/block_map.h"

#include <stdlib.h>

#include "common/base/memory.h"

/* Blocks first..end of one kind, in order, that overlap [begin, begin + elems). */
static struct block_range block_range_find(const struct model *model, uint32_t first, uint32_t end,
                                           uint64_t begin, uint64_t elems) {
  struct block_range range = {first, first};
  while (range.begin < end && model->blocks[range.begin].begin + model->blocks[range.begin].elems <= begin)
    range.begin++;
  range.end = range.begin;
  while (range.end < end && model->blocks[range.end].begin < begin + elems)
    range.end++;
  return range;
}

void block_map_init(struct block_map *map, const struct model *model) {
  uint32_t from = 0; /* parameters come in order */
  map->params = mem_new((size_t)model->n_params * sizeof *map->params);
  map->train_values = mem_new((size_t)model->train->n_values * sizeof *map->train_values);
  map->eval_values = mem_new((size_t)model->eval->n_values * sizeof *map->eval_values);
  map->block_params = mem_new(model->n_param_blocks * sizeof *map->block_params);
  for (int p = 0; p < model->n_params; p++) {
    const struct param *param = &model->params[p];
    struct block_range range =
        block_range_find(model, from, model->n_param_blocks, param->begin, param->elems);
    map->params[p] = map->train_values[param->train_value] = range;
    if (param->eval_value >= 0)
      map->eval_values[param->eval_value] = range;
    for (uint32_t b = range.begin; b < range.end; b++)
      map->block_params[b]++;
    from = range.begin;
  }
  for (int s = 0; s < model->n_statistics; s++) {
    const struct statistic *statistic = &model->statistics[s];
    if (statistic->eval_value >= 0)
      map->eval_values[statistic->eval_value] = block_range_find(
          model, model->n_summed_blocks, model->n_blocks, statistic->begin, statistic->elems);
  }
}

void block_map_fini(struct block_map *map) {
  free(map->params);
  free(map->train_values);
  free(map->eval_values);
  free(map->block_params);
  *map = (struct block_map){0};
}
