/* Pieces of tensors. */
#include "common/optim/piece.h"

/* The parameter that holds element `at` of the flat vector. */
static int first_param(const struct model *model, uint64_t at) {
  int low = 0, high = model->n_params - 1;
  while (low < high) {
    int middle = low + (high - low + 1) / 2;
    if (model->params[middle].begin <= at)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

struct piece *pieces_of(const struct model *model, const struct block *block, struct arena *arena,
                        uint32_t *n) {
  uint64_t end = block->begin + block->elems;
  int first = first_param(model, block->begin), last = first_param(model, end - 1);
  struct piece *pieces = arena_new(arena, (size_t)(last - first + 1) * sizeof *pieces);
  *n = 0;
  for (int p = first; p <= last; p++) {
    const struct param *param = &model->params[p];
    uint64_t from = param->begin > block->begin ? param->begin : block->begin;
    uint64_t to = param->begin + param->elems < end ? param->begin + param->elems : end;
    if (from >= to) /* a tensor without elements */
      continue;
    pieces[(*n)++] = (struct piece){.shape = param->shape,
                                    .tensor = (uint32_t)p,
                                    .tensor_elems = param->elems,
                                    .offset = from - param->begin,
                                    .begin = (uint32_t)(from - block->begin),
                                    .elems = (uint32_t)(to - from)};
  }
  return pieces;
}
