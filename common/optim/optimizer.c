/* The table of optimizers. */
#include "common/optim/optimizer.h"

#include <string.h>

#include "common/agree/param_groups.h"
#include "common/base/def_table.h"
#include "common/base/message.h"

#define OPTIMIZER(name) extern const struct optimizer_def optimizer_##name;
#include "common/optim/optimizer.def"
#undef OPTIMIZER

static const struct optimizer_def *const defs[] = {
#define OPTIMIZER(name) &optimizer_##name,
#include "common/optim/optimizer.def"
#undef OPTIMIZER
};
static const struct def_table optimizers = DEF_TABLE(defs);

const struct optimizer_def *optimizer_find(const char *name) {
  return def_find(&optimizers, name);
}

const struct optimizer_def *optimizer_at(int index) {
  return def_at(&optimizers, index);
}

int optimizer_settle_at(Weir__OptimizerSpec *spec, const char *path, struct err *err) {
  static const char *const shared[] = {"name", "lr", "params", "frozen", "groups", NULL};
  const struct optimizer_def *optimizer = optimizer_find(spec->name);
  char known[DEF_NAMES_SIZE];
  struct option_table table = {.path = path, .row = spec->name, .shared = shared};
  if (!optimizer)
    return err_set(err, ERR_INVALID, "%s.name: unknown optimizer '%.60s'; known: %s", path, spec->name,
                   def_names(&optimizers, ", ", known));
  table.rules = optimizer->options;
  if (options_settle(spec, &table, err))
    return err->code;
  return optimizer->check ? optimizer->check(spec, path, err) : 0;
}

int optimizer_settle(Weir__OptimizerSpec *spec, struct err *err) {
  Weir__OptimizerSpec base;
  if (optimizer_settle_at(spec, "train.optimizer", err))
    return err->code;
  base = *spec;
  base.n_groups = 0; /* a group takes over the options alone */
  for (uint32_t g = 0; g < spec->n_groups; g++) {
    Weir__OptimizerSpec *group = options_merge(&base, spec->groups[g]);
    char path[PARAM_GROUP_PATH_SIZE];
    message_free(spec->groups[g]);
    spec->groups[g] = group;
    if (optimizer_settle_at(group, param_group_path(g, path), err))
      return err->code;
  }
  return 0;
}

bool optimizer_slots_are_alike(const Weir__OptimizerSpec *a, const Weir__OptimizerSpec *b) {
  const struct optimizer_def *optimizer = optimizer_find(a->name);
  if (strcmp(a->name, b->name) != 0 || a->n_groups != b->n_groups)
    return false;
  for (uint32_t g = 0; g <= a->n_groups; g++) {
    const Weir__OptimizerSpec *left = optimizer_group(a, g), *right = optimizer_group(b, g);
    if (optimizer->slots(left) != optimizer->slots(right) ||
        (optimizer->slots_kind && optimizer->slots_kind(left) != optimizer->slots_kind(right)))
      return false;
  }
  return true;
}

const Weir__OptimizerSpec *optimizer_group(const Weir__OptimizerSpec *spec, uint32_t group) {
  return group ? spec->groups[group - 1] : spec;
}
