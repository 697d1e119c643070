/* Rows of trained tensors that training leaves alone: the spec's model.frozen_rows. */
#include <stdlib.h>
#include <string.h>

#include "common/base/nearest.h"
#include "model/model_parts.h"

static int unknown_tensor(const struct model *model, const char *name, struct err *err) {
  const char **names = mem_new((size_t)model->n_params * sizeof *names), *near;
  bool is_there = false;
  for (int p = 0; p < model->n_params; p++)
    names[p] = model->params[p].name;
  for (int i = 0; i < model->n_initializers; i++)
    is_there |= strcmp(model->initializers[i].name, name) == 0;
  near = nearest_word(name, names, model->n_params);
  free(names);
  if (is_there)
    return err_set(err, ERR_INVALID,
                   "model.frozen_rows: '%.100s' is not trained, so all its rows stay as they are", name);
  if (near)
    return err_set(err, ERR_INVALID,
                   "model.frozen_rows: the model has no initializer '%.100s': did you mean '%.100s'?", name,
                   near);
  return err_set(err, ERR_INVALID, "model.frozen_rows: the model has no initializer '%.100s'", name);
}

static struct param *find_param(const struct model *model, const char *name) {
  for (int p = 0; p < model->n_params; p++)
    if (strcmp(model->params[p].name, name) == 0)
      return &model->params[p];
  return NULL;
}

static int compare_rows(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static int freeze_rows(struct arena *arena, struct param *param, const Weir__Rows *rows, struct err *err) {
  size_t n = rows ? rows->n_rows : 0;
  int64_t *sorted;
  if (param->frozen_rows)
    return err_set(err, ERR_INVALID, "model.frozen_rows: '%.100s' is named twice", param->name);
  if (param->shape.rank < 2)
    return err_set(err, ERR_INVALID, "model.frozen_rows: '%.100s' has %d dimension%s and so no rows",
                   param->name, param->shape.rank, param->shape.rank == 1 ? "" : "s");
  if (n == 0)
    return err_set(err, ERR_INVALID, "model.frozen_rows: no row of '%.100s' is given, as in [0]",
                   param->name);
  for (size_t i = 0; i < n; i++)
    if (rows->rows[i] < 0 || rows->rows[i] >= param->shape.dim[0])
      return err_set(err, ERR_INVALID, "model.frozen_rows: '%.100s' has no row %lld, only 0 to %lld",
                     param->name, (long long)rows->rows[i], (long long)param->shape.dim[0] - 1);
  sorted = arena_copy(arena, rows->rows, n * sizeof *sorted);
  qsort(sorted, n, sizeof *sorted, compare_rows);
  for (size_t i = 1; i < n; i++)
    if (sorted[i] == sorted[i - 1])
      return err_set(err, ERR_INVALID, "model.frozen_rows: row %lld of '%.100s' is named twice",
                     (long long)sorted[i], param->name);
  param->frozen_rows = sorted;
  param->n_frozen_rows = (uint32_t)n;
  return 0;
}

int model_freeze_rows(struct model_builder *builder, struct err *err) {
  struct model *model = builder->model;
  for (size_t e = 0; builder->spec && e < builder->spec->n_frozen_rows; e++) {
    const Weir__ModelSpec__FrozenRowsEntry *entry = builder->spec->frozen_rows[e];
    const char *name = entry->key ? entry->key : "";
    struct param *param = find_param(model, name);
    if (!param)
      return unknown_tensor(model, name, err);
    if (freeze_rows(&model->train->arena, param, entry->value, err))
      return err->code;
  }
  return 0;
}
