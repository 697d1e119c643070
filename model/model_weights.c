/* Initial weights and the hash of all weights. */
#include <string.h>

#include "common/base/sha256.h"
#include "model/model_parts.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "weights are hashed and sent as they lie in memory");

/* Copies what of a tensor at [begin, begin + elems) of its vector lies in the block. */
static void copy_overlap(const struct block *block, uint64_t begin, uint64_t elems, const float *data,
                         float *out) {
  uint64_t end = block->begin + block->elems;
  uint64_t from = begin > block->begin ? begin : block->begin;
  uint64_t to = begin + elems < end ? begin + elems : end;
  if (from < to)
    memcpy(out + (from - block->begin), data + (from - begin), (to - from) * sizeof *out);
}

void model_initial_block(const struct model *model, uint32_t block, float *out) {
  const struct block *b = &model->blocks[block];
  CHECK(block < model->n_blocks);
  memset(out, 0, b->elems * sizeof *out);
  for (int p = 0; b->kind == BLOCK_PARAMETERS && p < model->n_params; p++)
    copy_overlap(b, model->params[p].begin, model->params[p].elems,
                 model->train->values[model->params[p].train_value].data, out);
  for (int s = 0; b->kind == BLOCK_STATISTICS && s < model->n_statistics; s++)
    copy_overlap(b, model->statistics[s].begin, model->statistics[s].elems, model->statistics[s].initial,
                 out);
}

void model_initial_sha256(const struct model *model, char hex[65]) {
  struct sha256 *sha = sha256_new();
  for (int i = 0; i < model->n_initializers; i++) {
    const struct initializer *initializer = &model->initializers[i];
    if (initializer->param >= 0) {
      const struct param *param = &model->params[initializer->param];
      sha256_update(sha, model->train->values[param->train_value].data, param->elems * sizeof(float));
    } else if (initializer->statistic >= 0) {
      const struct statistic *statistic = &model->statistics[initializer->statistic];
      sha256_update(sha, statistic->initial, statistic->elems * sizeof(float));
    }
  }
  sha256_finish(sha, hex);
}

void model_weights_sha256(const struct model *model, const float *params, const float *state, char hex[65]) {
  struct sha256 *sha = sha256_new();
  for (int i = 0; i < model->n_initializers; i++) {
    const struct initializer *initializer = &model->initializers[i];
    if (initializer->param >= 0) {
      const struct param *param = &model->params[initializer->param];
      sha256_update(sha, params + param->begin, param->elems * sizeof *params);
    } else if (initializer->statistic >= 0) {
      const struct statistic *statistic = &model->statistics[initializer->statistic];
      sha256_update(sha, state + statistic->begin, statistic->elems * sizeof *state);
    }
  }
  sha256_finish(sha, hex);
}
