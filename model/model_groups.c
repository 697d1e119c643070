/* Parameter groups: which initializers the spec's optimizer treats on their own. */
#include <fnmatch.h>

#include "model/model_parts.h"

static bool group_names(const Weir__OptimizerSpec *group, const char *name) {
  for (size_t p = 0; p < group->n_params; p++)
    if (fnmatch(group->params[p], name, 0) == 0)
      return true;
  return false;
}

void model_assign_groups(struct model_builder *builder) {
  const Weir__OptimizerSpec *optimizer = builder->optimizer;
  for (int i = 0; optimizer && i < builder->model->n_initializers; i++) {
    struct initializer_note *note = &builder->notes[i];
    for (uint32_t g = 0; g < optimizer->n_groups && note->group == 0; g++)
      if (group_names(optimizer->groups[g], builder->model->initializers[i].name))
        note->group = g + 1;
    if (note->group && optimizer->groups[note->group - 1]->frozen)
      note->is_frozen = true;
  }
}

/* What a frozen group may name is what model.frozen may: any initializer. */
static bool pattern_is_used(const struct model_builder *builder, const Weir__OptimizerSpec *group,
                            const char *pattern) {
  const struct model *model = builder->model;
  for (int i = 0; i < model->n_initializers; i++)
    if ((group->frozen || model->initializers[i].param >= 0) &&
        fnmatch(pattern, model->initializers[i].name, 0) == 0)
      return true;
  return false;
}

static bool group_is_empty(const struct model_builder *builder, uint32_t group) {
  const struct model *model = builder->model;
  bool is_frozen = builder->optimizer->groups[group - 1]->frozen;
  for (int i = 0; i < model->n_initializers; i++)
    if (builder->notes[i].group == group && (is_frozen || model->initializers[i].param >= 0))
      return false;
  return true;
}

int model_check_groups(const struct model_builder *builder, struct err *err) {
  for (uint32_t g = 0; builder->optimizer && g < builder->optimizer->n_groups; g++) {
    const Weir__OptimizerSpec *group = builder->optimizer->groups[g];
    for (size_t p = 0; p < group->n_params; p++)
      if (!pattern_is_used(builder, group, group->params[p]))
        return err_set(err, ERR_INVALID, "train.optimizer.groups[%u].params: '%.100s' matches no %s", g,
                       group->params[p],
                       group->frozen ? "initializer of the model" : "tensor that is trained");
    if (group_is_empty(builder, g + 1))
      return err_set(err, ERR_INVALID,
                     "train.optimizer.groups[%u].params: all that they match is in groups before it", g);
  }
  return 0;
}
