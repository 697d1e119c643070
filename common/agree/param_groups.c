/* Parameter groups of an optimizer's spec. */
#include "common/agree/param_groups.h"

#include <math.h>
#include <stdio.h>

#include "common/agree/patterns.h"

enum { GROUPS_MAX = 100 };

const char *param_group_path(uint32_t index, char path[PARAM_GROUP_PATH_SIZE]) {
  snprintf(path, PARAM_GROUP_PATH_SIZE, "train.optimizer.groups[%u]", index);
  return path;
}

static bool is_name_given(const Weir__OptimizerSpec *spec) {
  static const Weir__OptimizerSpec none = WEIR__OPTIMIZER_SPEC__INIT;
  return spec->name && spec->name != none.name;
}

static int check_group(const Weir__OptimizerSpec *group, const char *path, struct err *err) {
  char key[PARAM_GROUP_PATH_SIZE + 8];
  if (group->n_params == 0)
    return err_set(err, ERR_INVALID, "%s.params: is missing: patterns of its tensors, as in [\"*.bias\"]",
                   path);
  snprintf(key, sizeof key, "%s.params", path);
  if (patterns_check(group->params, group->n_params, key, err))
    return err->code;
  if (group->has_lr && (!(group->lr > 0) || !isfinite((float)group->lr)))
    return err_set(err, ERR_INVALID, "%s.lr: must be above 0 and finite", path);
  if (is_name_given(group))
    return err_set(err, ERR_INVALID, "%s.name: all groups have the optimizer of train.optimizer.name", path);
  if (group->n_groups)
    return err_set(err, ERR_INVALID, "%s.groups: a group has no groups of its own", path);
  return 0;
}

int param_groups_check(const Weir__OptimizerSpec *optimizer, struct err *err) {
  size_t n_patterns = 0;
  if (optimizer->n_params || optimizer->has_frozen)
    return err_set(err, ERR_INVALID, "train.optimizer.%s: is for an entry of train.optimizer.groups",
                   optimizer->n_params ? "params" : "frozen");
  if (optimizer->n_groups > GROUPS_MAX)
    return err_set(err, ERR_INVALID, "train.optimizer.groups: %zu of them, at most %d are taken",
                   optimizer->n_groups, GROUPS_MAX);
  for (uint32_t g = 0; g < optimizer->n_groups; g++) {
    char path[PARAM_GROUP_PATH_SIZE];
    if (check_group(optimizer->groups[g], param_group_path(g, path), err))
      return err->code;
    n_patterns += optimizer->groups[g]->n_params;
  }
  if (n_patterns > PATTERNS_MAX)
    return err_set(err, ERR_INVALID, "train.optimizer.groups: %zu patterns, at most %d are taken", n_patterns,
                   PATTERNS_MAX);
  return 0;
}
