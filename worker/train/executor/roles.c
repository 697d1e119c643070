/* Which blocks and inputs a worker has to do with: all of them, unless other workers have some of the model's
   stages. */
#include <stdlib.h>

#include "worker/train/executor/executor.h"
#include "worker/train/executor/riders.h"

/* Whether a program of any executor here reads the parameter. */
static bool is_read(const struct run *run, const struct param *param) {
  const struct backend_def *backend = run->options.backend;
  for (int i = 0; i < run->n_executors; i++) {
    const struct executor *executor = &run->executors[i];
    if (backend->reads(executor->train, param->train_value) ||
        (executor->eval && param->eval_value >= 0 && backend->reads(executor->eval, param->eval_value)))
      return true;
  }
  return false;
}

/* The first statistics block says when a version is evaluated, so all hold these blocks. */
void executors_share_blocks(struct run *run) {
  const struct model *model = run->loaded.model;
  const struct stage_part *part = &run->part;
  int *owners = mem_new(model->n_blocks * sizeof *owners);
  bool is_whole = stage_part_is_whole(part);
  riders_find_owners(model, &run->map, &run->cuts, owners);
  for (uint32_t b = 0; b < model->n_blocks; b++)
    run->roles[b] = is_whole || (owners[b] >= part->first && owners[b] <= part->last) ? BLOCK_OWNED
                    : b >= model->n_summed_blocks                                     ? BLOCK_HELD
                                                                                      : BLOCK_ABSENT;
  for (int p = 0; p < model->n_params && !is_whole; p++) {
    struct block_range range = run->map.params[p];
    bool is_held = is_read(run, &model->params[p]);
    for (uint32_t b = range.begin; b < range.end && is_held; b++)
      if (run->roles[b] == BLOCK_ABSENT)
        run->roles[b] = BLOCK_HELD;
  }
  free(owners);
  weights_hold(run->weights, run->roles);
}

void executors_share_inputs(struct run *run) {
  const struct backend_def *backend = run->options.backend;
  const struct model *model = run->loaded.model;
  bool wanted[MODEL_INPUTS_MAX] = {false};
  if (stage_part_is_whole(&run->part))
    return;
  for (int i = 0; i < run->n_executors; i++) {
    const struct executor *executor = &run->executors[i];
    for (int in = 0; in < model->n_columns + model->has_labels; in++)
      wanted[in] |= backend->reads(executor->train, model->train->inputs[in]) ||
                    (executor->eval && backend->reads(executor->eval, model->eval->inputs[in]));
  }
  loader_want(run->loaded.loader, wanted);
}
