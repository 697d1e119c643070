/* What rides with a boundary gradient. */
#include "worker/train/executor/riders.h"

#include <stdlib.h>

#include "common/base/memory.h"
#include "worker/train/executor/executor.h"

static void riders_add(struct riders *riders, int *capacity, const struct rider *rider) {
  array_reserve((void **)&riders->list, capacity, riders->n, sizeof *riders->list);
  riders->list[riders->n] = *rider;
  riders->list[riders->n++].at = riders->elems;
  riders->elems += rider->elems;
}

void riders_find_owners(const struct model *model, const struct block_map *map, const struct model_cuts *cuts,
                        int *owners) {
  for (uint32_t b = 0; b < model->n_blocks; b++)
    owners[b] = b < model->n_param_blocks ? cuts->n_stages : 0;
  for (int p = 0; p < model->n_params; p++) {
    int stage = model_cuts_stage(cuts, model->train, model->params[p].grad);
    for (uint32_t b = map->params[p].begin; b < map->params[p].end; b++)
      owners[b] = stage < owners[b] ? stage : owners[b];
  }
}

void riders_find(const struct model *model, const struct block_map *map, const struct model_cuts *cuts,
                 int from, struct riders *out) {
  const int metrics[] = {model->train_loss.loss_sum, model->train_loss.correct, model->train_loss.scored,
                         model->train_loss.denominator};
  const int places[] = {METRIC_LOSS_SUM, METRIC_CORRECT, METRIC_SCORED, METRIC_DENOMINATOR};
  int *owners = mem_new(model->n_blocks * sizeof *owners), capacity = 0;
  *out = (struct riders){0};
  riders_find_owners(model, map, cuts, owners);
  for (size_t m = 0; m < sizeof metrics / sizeof metrics[0]; m++)
    if (metrics[m] >= 0 && model_cuts_stage(cuts, model->train, metrics[m]) >= from)
      riders_add(out, &capacity, &(struct rider){.param = -1, .begin = (uint64_t)places[m], .elems = 1});
  for (int s = 0; s < model->n_statistics; s++) {
    const struct statistic *of = &model->statistics[s];
    if (model_cuts_stage(cuts, model->train, of->batch_value) >= from)
      riders_add(out, &capacity, &(struct rider){.param = -1, .begin = of->begin, .elems = of->elems});
  }
  for (int p = 0; p < model->n_params; p++) {
    const struct param *param = &model->params[p];
    bool is_above = model_cuts_stage(cuts, model->train, param->grad) >= from;
    for (uint32_t b = map->params[p].begin; is_above && b < map->params[p].end; b++) {
      struct overlap overlap = overlap_of(model, b, param);
      if (owners[b] < from)
        riders_add(
            out, &capacity,
            &(struct rider){.param = p, .block = b, .begin = overlap.in_block, .elems = overlap.elems});
    }
  }
  free(owners);
}

void riders_fini(struct riders *riders) {
  free(riders->list);
  *riders = (struct riders){0};
}
