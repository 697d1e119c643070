/* Where the tensors of a model lie in its blocks. */
#include "worker/train/block_map.h"

#include <stdlib.h>

#include "common/memory.h"

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
  uint32_t from = 0; /* tensors come in order */
  map->params = mem_new((size_t)model->n_params * sizeof *map->params);
  map->statistics = mem_new((size_t)model->n_statistics * sizeof *map->statistics);
  map->block_params = mem_new(model->n_param_blocks * sizeof *map->block_params);
  for (int p = 0; p < model->n_params; p++) {
    const struct param *param = &model->params[p];
    map->params[p] = block_range_find(model, from, model->n_param_blocks, param->begin, param->elems);
    from = map->params[p].begin;
    for (uint32_t b = map->params[p].begin; b < map->params[p].end; b++)
      map->block_params[b]++;
  }
  for (int s = 0; s < model->n_statistics; s++)
    map->statistics[s] = block_range_find(model, model->n_param_blocks, model->n_blocks,
                                          model->statistics[s].begin, model->statistics[s].elems);
}

void block_map_fini(struct block_map *map) {
  free(map->params);
  free(map->statistics);
  free(map->block_params);
  *map = (struct block_map){0};
}
