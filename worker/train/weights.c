/* The weights that a worker computes with. */
#include "worker/train/weights.h"

#include <stdlib.h>
#include <string.h>

#include "common/memory.h"
#include "worker/backend/memory.h"

enum block_state { BLOCK_EMPTY, BLOCK_CLAIMED, BLOCK_FILLED };

static bool set_init(struct weights_set *set, const struct model *model) {
  set->params = backend_pages_new(model->param_elems * sizeof(float));
  set->state = backend_pages_new(model->row_elems * sizeof(float));
  if (!set->params || !set->state)
    return false;
  set->train_values = mem_new((size_t)model->train->n_values * sizeof *set->train_values);
  set->eval_values = mem_new((size_t)model->eval->n_values * sizeof *set->eval_values);
  set->blocks = mem_new(model->n_blocks);
  for (int p = 0; p < model->n_params; p++) {
    const struct param *param = &model->params[p];
    set->train_values[param->train_value] = set->params + param->begin;
    if (param->eval_value >= 0)
      set->eval_values[param->eval_value] = set->params + param->begin;
  }
  for (int s = 0; s < model->n_statistics; s++)
    if (model->statistics[s].eval_value >= 0)
      set->eval_values[model->statistics[s].eval_value] = set->state + model->statistics[s].begin;
  return true;
}

int weights_new(const struct model *model, struct weights **out, struct err *err) {
  struct weights *weights = mem_new(sizeof *weights);
  weights->model = model;
  weights->current = &weights->sets[0];
  weights->next = &weights->sets[1];
  if (!set_init(&weights->sets[0], model) || !set_init(&weights->sets[1], model)) {
    weights_free(weights);
    return err_set(err, ERR_NO_MEMORY, "two versions of the weights need %llu bytes",
                   (unsigned long long)((model->param_elems + model->row_elems) * 2 * sizeof(float)));
  }
  *out = weights;
  return 0;
}

void weights_free(struct weights *weights) {
  if (!weights)
    return;
  for (int i = 0; i < 2; i++) {
    if (weights->pinned_by) {
      weights->pinned_by->unpin(weights->sets[i].params);
      weights->pinned_by->unpin(weights->sets[i].state);
    }
    free(weights->sets[i].params);
    free(weights->sets[i].state);
    free(weights->sets[i].train_values);
    free(weights->sets[i].eval_values);
    free(weights->sets[i].blocks);
  }
  free(weights);
}

void weights_pin(struct weights *weights, const struct backend_def *backend) {
  const struct model *model = weights->model;
  if (!backend->pin)
    return;
  for (int i = 0; i < 2; i++) {
    backend->pin(weights->sets[i].params, model->param_elems * sizeof(float));
    backend->pin(weights->sets[i].state, model->row_elems * sizeof(float));
  }
  weights->pinned_by = backend;
}

void weights_open_next(struct weights *weights, uint64_t version) {
  struct weights_set *set = weights->next;
  CHECK(set->readers == 0);
  set->is_open = true;
  set->version = version;
  set->opening = ++weights->openings;
  set->n_filled = 0;
  memset(set->blocks, BLOCK_EMPTY, weights->model->n_blocks);
}

struct weights_set *weights_find(struct weights *weights, uint64_t version) {
  for (int i = 0; i < 2; i++)
    if (weights->sets[i].is_open && weights->sets[i].version == version)
      return &weights->sets[i];
  return NULL;
}

float *weights_place(const struct weights *weights, struct weights_set *set, uint32_t block) {
  const struct block *range = &weights->model->blocks[block];
  return (range->kind == BLOCK_PARAMETERS ? set->params : set->state) + range->begin;
}

float *weights_claim(struct weights *weights, uint64_t version, uint32_t block) {
  struct weights_set *set = weights->next;
  if (!set->is_open || set->version != version || set->blocks[block] != BLOCK_EMPTY)
    return NULL;
  set->blocks[block] = BLOCK_CLAIMED;
  return weights_place(weights, set, block);
}

void weights_fill(struct weights *weights, uint32_t block) {
  CHECK(weights->next->blocks[block] == BLOCK_CLAIMED);
  weights->next->blocks[block] = BLOCK_FILLED;
  weights->next->n_filled++;
}

bool weights_next_is_complete(const struct weights *weights) {
  return weights->next->is_open && weights->next->n_filled == weights->model->n_blocks;
}

void weights_advance(struct weights *weights) {
  struct weights_set *old = weights->current;
  CHECK(weights_next_is_complete(weights) && old->readers == 0);
  weights->current = weights->next;
  weights->next = old;
  old->is_open = false;
}

void weights_clear(struct weights *weights) {
  CHECK(weights->current->readers == 0 && weights->next->readers == 0);
  weights->current->is_open = false;
  weights->next->is_open = false;
}

bool weights_is_ready(const struct weights_set *set, struct block_range range) {
  for (uint32_t b = range.begin; b < range.end; b++)
    if (set->blocks[b] != BLOCK_FILLED)
      return false;
  return true;
}
