/* Blocks: how the flat parameter vector and the statistics row are cut. */
#include "model/model_parts.h"

struct cutter {
  struct block *blocks; /* NULL: only counted */
  uint32_t n;
  struct block open; /* small neighbours so far; elems 0: none */
};

static void block_emit(struct cutter *cutter, const struct block *block) {
  if (cutter->blocks)
    cutter->blocks[cutter->n] = *block;
  cutter->n++;
}

static void close_open(struct cutter *cutter) {
  if (cutter->open.elems)
    block_emit(cutter, &cutter->open);
  cutter->open.elems = 0;
}

/* The next tensor of the vector. */
static void cut_tensor(struct cutter *cutter, enum block_kind kind, uint32_t group, uint64_t begin,
                       uint64_t elems) {
  struct block block = {.kind = kind, .begin = begin, .group = group};
  if (elems > BLOCK_ELEMS_MAX) {
    close_open(cutter);
    for (uint64_t left = elems; left > 0; left -= block.elems, block.begin += block.elems) {
      block.elems = (uint32_t)(left < BLOCK_ELEMS_MAX ? left : BLOCK_ELEMS_MAX);
      block_emit(cutter, &block);
    }
    return;
  }
  if (cutter->open.elems + elems > BLOCK_ELEMS_MAX || cutter->open.group != group)
    close_open(cutter);
  if (cutter->open.elems == 0)
    cutter->open = block;
  cutter->open.elems += (uint32_t)elems;
}

static void cut_model(struct model *model, struct cutter *cutter) {
  for (int p = 0; p < model->n_params; p++)
    cut_tensor(cutter, BLOCK_PARAMETERS, model->params[p].group, model->params[p].begin,
               model->params[p].elems);
  close_open(cutter);
  model->n_param_blocks = model->n_summed_blocks = cutter->n;
  cut_tensor(cutter, BLOCK_STATISTICS, 0, 0, METRICS);
  for (int s = 0; s < model->n_statistics; s++)
    cut_tensor(cutter, BLOCK_STATISTICS, 0, model->statistics[s].begin, model->statistics[s].elems);
  close_open(cutter);
  model->n_blocks = cutter->n;
}

void model_cut_blocks(struct model *model) {
  struct cutter count = {0}, cut = {0};
  cut_model(model, &count);
  cut.blocks = model->blocks = arena_new(&model->train->arena, count.n * sizeof *model->blocks);
  cut_model(model, &cut);
}

uint32_t block_part_elems(const struct block *block, uint32_t inner_steps) {
  bool has_metrics = block->kind == BLOCK_STATISTICS && block->begin == 0;
  return block->elems + (has_metrics ? inner_steps * METRICS : 0);
}
