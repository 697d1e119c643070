/* A model as a run trains it. */
#include "common/optim/trained_model.h"

#include <string.h>

#include "common/base/message.h"
#include "common/optim/update_rule.h"

static uint32_t count_kept(const struct model *model, const Weir__TrainSpec *train) {
  uint32_t n = 0;
  for (uint32_t b = 0; b < model->n_param_blocks; b++)
    n += update_rule_kept(train, model->blocks[b].group);
  return n;
}

/* Of a parameter block one after another: f32[values, elems]. */
static void cut_kept(struct model *model, const Weir__TrainSpec *train, struct block *out) {
  for (uint32_t b = 0; b < model->n_param_blocks; b++) {
    const struct block *of = &model->blocks[b];
    uint32_t n = update_rule_kept(train, of->group);
    for (uint32_t i = 0; i < n; i++, model->kept_elems += of->elems)
      *out++ = (struct block){.kind = BLOCK_KEPT,
                              .begin = model->kept_elems,
                              .elems = of->elems,
                              .group = of->group,
                              .kept_of = b,
                              .kept_n = i};
  }
}

static void add_kept(struct model *model, const Weir__TrainSpec *train) {
  uint32_t n_kept = count_kept(model, train), n_params = model->n_param_blocks;
  struct block *blocks = arena_new(&model->train->arena, (model->n_blocks + n_kept) * sizeof *blocks);
  memcpy(blocks, model->blocks, n_params * sizeof *blocks);
  cut_kept(model, train, blocks + n_params);
  memcpy(blocks + n_params + n_kept, model->blocks + n_params, (model->n_blocks - n_params) * sizeof *blocks);
  model->blocks = blocks;
  model->n_summed_blocks += n_kept;
  model->n_blocks += n_kept;
}

int trained_model_open(const struct model_source *source, struct model **out, struct err *err) {
  const Weir__TrainSpec *train = source->spec ? source->spec->train : NULL;
  Weir__TrainSpec *settled;
  int code = model_open(source, out, err);
  if (code || !train || !train->local)
    return code;
  settled = message_copy(train);
  code = update_rules_settle(settled, err);
  if (!code)
    add_kept(*out, settled);
  else {
    model_close(*out);
    *out = NULL;
  }
  message_free(settled);
  return code;
}
