/* The weights that a worker computes with. */
#include "worker/train/block/weights.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "worker/backend/memory.h"
#include "worker/train/block/reducer.h"

enum block_state { BLOCK_EMPTY, BLOCK_CLAIMED, BLOCK_LANDED, BLOCK_FILLED };

static bool set_init(struct weights_set *set, const struct model *model) {
  set->params = backend_pages_new(model->param_elems * sizeof(float));
  set->state = backend_pages_new(model->row_elems * sizeof(float));
  if (model->kept_elems)
    set->kept = backend_pages_new(model->kept_elems * sizeof(float));
  if (!set->params || !set->state || (model->kept_elems && !set->kept))
    return false;
  set->train_values = mem_new((size_t)model->train->n_values * sizeof *set->train_values);
  set->eval_values = mem_new((size_t)model->eval->n_values * sizeof *set->eval_values);
  set->blocks = mem_new(model->n_blocks);
  for (int s = 0; s < model->n_statistics; s++)
    if (model->statistics[s].eval_value >= 0)
      set->eval_values[model->statistics[s].eval_value] = set->state + model->statistics[s].begin;
  return true;
}

/* Where executions read the parameters. */
static void set_point(struct weights_set *set, const struct model *model) {
  const float *params = set->is_on_device ? set->device_params : set->params;
  for (int p = 0; p < model->n_params; p++) {
    const struct param *param = &model->params[p];
    set->train_values[param->train_value] = params + param->begin;
    if (param->eval_value >= 0)
      set->eval_values[param->eval_value] = params + param->begin;
  }
}

int weights_new(const struct model *model, uint32_t n_sets, struct weights **out, struct err *err) {
  struct weights *weights = mem_new(sizeof *weights);
  bool is_well = true;
  weights->model = model;
  weights->n_held = model->n_blocks;
  weights->sets = mem_new(n_sets * sizeof *weights->sets);
  weights->n_sets = weights->n_turning = n_sets;
  weights->current = &weights->sets[0];
  weights->next = &weights->sets[1];
  for (uint32_t i = 0; i < n_sets && is_well; i++)
    is_well = set_init(&weights->sets[i], model);
  if (!is_well) {
    weights_free(weights);
    return err_set(err, ERR_NO_MEMORY, "%u versions of the weights need %llu bytes", n_sets,
                   (unsigned long long)((model->param_elems + model->kept_elems + model->row_elems) * n_sets *
                                        sizeof(float)));
  }
  *out = weights;
  return 0;
}

static void weights_unpin(struct weights *weights) {
  for (uint32_t i = 0; i < weights->n_sets && weights->pinned_by; i++) {
    for (int r = 0; r < weights->n_pinned; r++)
      weights->pinned_by->unpin((char *)weights->sets[i].params + weights->pinned[r].begin);
    weights->pinned_by->unpin(weights->sets[i].state);
  }
  free(weights->pinned);
}

void weights_free(struct weights *weights) {
  if (!weights)
    return;
  weights_unpin(weights);
  for (uint32_t i = 0; i < weights->n_sets; i++) {
    if (weights->device_memory)
      weights->device_memory->free(weights->device, weights->sets[i].device_params);
    free(weights->sets[i].params);
    free(weights->sets[i].state);
    free(weights->sets[i].kept);
    free(weights->sets[i].train_values);
    free(weights->sets[i].eval_values);
    free(weights->sets[i].blocks);
  }
  free(weights->sets);
  free(weights);
}

void weights_hold(struct weights *weights, const uint8_t *roles) {
  weights->roles = roles;
  weights->n_held = 0;
  for (uint32_t b = 0; b < weights->model->n_blocks; b++)
    weights->n_held += roles[b] != BLOCK_ABSENT;
}

/* The blocks that are held, by whole pages: none can be pinned twice, so ranges whose pages meet are one.
   What lies side by side is one, too: a device reads it in one copy. */
static void find_pinned(struct weights *weights) {
  enum { PAGE = 4096 };
  const struct model *model = weights->model;
  int capacity = 0;
  for (uint32_t b = 0; b < model->n_param_blocks; b++) {
    const struct block *block = &model->blocks[b];
    size_t begin = block->begin * sizeof(float) / PAGE * PAGE;
    size_t end = (block->begin + block->elems) * sizeof(float);
    struct weights_range *last = weights->n_pinned ? &weights->pinned[weights->n_pinned - 1] : NULL;
    end = (end + PAGE - 1) / PAGE * PAGE;
    if (weights->roles && weights->roles[b] == BLOCK_ABSENT)
      continue;
    if (last && begin <= last->begin + last->size_bytes) {
      last->size_bytes = end - last->begin;
      continue;
    }
    array_reserve((void **)&weights->pinned, &capacity, weights->n_pinned, sizeof *last);
    weights->pinned[weights->n_pinned++] = (struct weights_range){begin, end - begin};
  }
}

void weights_pin(struct weights *weights, const struct backend_def *backend) {
  if (!backend->pin)
    return;
  find_pinned(weights);
  for (uint32_t i = 0; i < weights->n_sets; i++) {
    for (int r = 0; r < weights->n_pinned; r++)
      backend->pin((char *)weights->sets[i].params + weights->pinned[r].begin, weights->pinned[r].size_bytes);
    backend->pin(weights->sets[i].state, weights->model->row_elems * sizeof(float));
  }
  weights->pinned_by = backend;
}

int weights_use_device(struct weights *weights, const struct device_memory *memory, int device,
                       struct err *err) {
  size_t size_bytes = weights->model->param_elems * sizeof(float);
  uint32_t n = 0;
  void *params;
  if (weights->device_memory)
    return ERR_OK;
  while (n < weights->n_sets && memory->new (device, size_bytes, &params, err) == 0)
    weights->sets[n++].device_params = params;
  if (n < weights->n_sets) {
    while (n-- > 0) {
      memory->free(device, weights->sets[n].device_params);
      weights->sets[n].device_params = NULL;
    }
    return err->code;
  }
  weights->device_memory = memory;
  weights->device = device;
  return ERR_OK;
}

struct weights_set *weights_lend(struct weights *weights) {
  CHECK(weights->openings == 0);
  set_point(weights->next, weights->model);
  return weights->next;
}

struct weights_set *weights_set_apart(struct weights *weights) {
  struct weights_set *set = &weights->sets[--weights->n_turning];
  CHECK(weights->openings == 0 && weights->n_turning >= 2);
  set_point(set, weights->model);
  memset(set->blocks, BLOCK_FILLED, weights->model->n_blocks);
  return set;
}

void weights_open_next(struct weights *weights, uint64_t version, bool is_on_device) {
  struct weights_set *set = weights->next;
  CHECK(set->readers == 0 && (!is_on_device || set->device_params));
  set->is_open = true;
  set->is_on_device = is_on_device;
  set_point(set, weights->model);
  set->version = version;
  set->opening = ++weights->openings;
  set->n_filled = 0;
  memset(set->blocks, BLOCK_EMPTY, weights->model->n_blocks);
}

struct weights_set *weights_find(struct weights *weights, uint64_t version) {
  for (uint32_t i = 0; i < weights->n_sets; i++)
    if (weights->sets[i].is_open && weights->sets[i].version == version)
      return &weights->sets[i];
  return NULL;
}

float *weights_landing(const struct weights *weights, const struct weights_set *set, uint32_t block) {
  const struct block *range = &weights->model->blocks[block];
  float *const vectors[] = {
      [BLOCK_PARAMETERS] = set->params, [BLOCK_KEPT] = set->kept, [BLOCK_STATISTICS] = set->state};
  return vectors[range->kind] + range->begin;
}

/* Whether it is read elsewhere than where it lands. */
static bool is_moved(const struct weights *weights, const struct weights_set *set, uint32_t block) {
  return set->is_on_device && weights->model->blocks[block].kind == BLOCK_PARAMETERS;
}

float *weights_place(const struct weights *weights, const struct weights_set *set, uint32_t block) {
  return is_moved(weights, set, block) ? set->device_params + weights->model->blocks[block].begin
                                       : weights_landing(weights, set, block);
}

bool weights_has_landed(const struct weights_set *set, uint32_t block) {
  return set->blocks[block] == BLOCK_LANDED || (!set->is_on_device && set->blocks[block] == BLOCK_FILLED);
}

float *weights_claim(struct weights *weights, uint64_t version, uint32_t block) {
  struct weights_set *set = weights->next;
  if (!set->is_open || set->version != version || set->blocks[block] != BLOCK_EMPTY ||
      (weights->roles && weights->roles[block] == BLOCK_ABSENT))
    return NULL;
  set->blocks[block] = BLOCK_CLAIMED;
  return weights_landing(weights, set, block);
}

void weights_unclaim(struct weights *weights, uint32_t block) {
  CHECK(weights->next->blocks[block] == BLOCK_CLAIMED);
  weights->next->blocks[block] = BLOCK_EMPTY;
}

void weights_land(struct weights *weights, uint32_t block) {
  CHECK(weights->next->blocks[block] == BLOCK_CLAIMED);
  weights->next->blocks[block] = BLOCK_LANDED;
  if (!is_moved(weights, weights->next, block))
    weights_fill(weights, block);
}

void weights_fill(struct weights *weights, uint32_t block) {
  CHECK(weights->next->blocks[block] == BLOCK_CLAIMED || weights->next->blocks[block] == BLOCK_LANDED);
  weights->next->blocks[block] = BLOCK_FILLED;
  weights->next->n_filled++;
}

bool weights_next_is_complete(const struct weights *weights) {
  return weights->next->is_open && weights->next->n_filled == weights->n_held;
}

/* The set behind the next one in turn. */
static struct weights_set *oldest_set(const struct weights *weights) {
  return &weights->sets[(uint32_t)(weights->next - weights->sets + 1) % weights->n_turning];
}

bool weights_may_advance(const struct weights *weights) {
  return weights_next_is_complete(weights) && oldest_set(weights)->readers == 0;
}

void weights_advance(struct weights *weights) {
  struct weights_set *oldest = oldest_set(weights);
  CHECK(weights_may_advance(weights));
  weights->current = weights->next;
  weights->next = oldest;
  oldest->is_open = false;
}

bool weights_are_read(const struct weights *weights) {
  for (uint32_t i = 0; i < weights->n_sets; i++)
    if (weights->sets[i].readers > 0)
      return true;
  return false;
}

void weights_clear(struct weights *weights) {
  CHECK(!weights_are_read(weights));
  for (uint32_t i = 0; i < weights->n_sets; i++)
    weights->sets[i].is_open = false;
}

bool weights_is_ready(const struct weights_set *set, struct block_range range) {
  for (uint32_t b = range.begin; b < range.end; b++)
    if (set->blocks[b] != BLOCK_FILLED)
      return false;
  return true;
}
