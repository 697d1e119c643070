/* train.local of a spec. */
#include "common/agree/spec_local.h"

#include <math.h>
#include <string.h>

#include "common/base/memory.h"

enum { INNER_STEPS_MAX = 10000 };

/* What DiLoCo's authors found best, with Nesterov's momentum. */
#define OUTER_LR 0.7
#define OUTER_MOMENTUM 0.9

static int check_outer(const Weir__OptimizerSpec *outer, struct err *err) {
  if (outer->has_lr && (!(outer->lr > 0) || !isfinite((float)outer->lr)))
    return err_set(err, ERR_INVALID, "train.local.outer.lr: must be above 0 and finite");
  if (outer->n_params || outer->n_groups || outer->frozen)
    return err_set(err, ERR_INVALID,
                   "train.local.outer: has no groups: those of train.optimizer are of inner steps");
  return 0;
}

int spec_local_check(const Weir__TrainSpec *train, struct err *err) {
  const Weir__LocalSpec *local = train->local;
  if (strcmp(train->mode, "local") != 0)
    return err_set(err, ERR_INVALID, "train.local: is of train.mode local, which is '%.60s' here",
                   train->mode);
  if (local->replicas == 0 || local->replicas > train->microbatches)
    return err_set(err, ERR_INVALID, "train.local.replicas: must be given, from 1 to train.microbatches, %u",
                   train->microbatches);
  if (local->inner_steps == 0 || local->inner_steps > INNER_STEPS_MAX)
    return err_set(err, ERR_INVALID, "train.local.inner_steps: must be given, from 1 to %d", INNER_STEPS_MAX);
  return local->outer ? check_outer(local->outer, err) : 0;
}

void spec_local_add_outer(Weir__LocalSpec *local) {
  Weir__OptimizerSpec *outer = local->outer;
  if (!outer) {
    outer = local->outer = mem_new(sizeof *outer);
    weir__optimizer_spec__init(outer);
  }
  if (!outer->has_lr) {
    outer->has_lr = true;
    outer->lr = OUTER_LR;
  }
  if (strcmp(outer->name, "sgd") == 0 && !outer->has_momentum && !outer->has_nesterov) {
    outer->has_momentum = outer->has_nesterov = outer->nesterov = true;
    outer->momentum = OUTER_MOMENTUM;
  }
}
