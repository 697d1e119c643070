/* The table of optimizers. */
#include "server/parameters/optimizer.h"

#include <stddef.h>
#include <string.h>

#define OPTIMIZER(name) extern const struct optimizer_def optimizer_##name;
#include "server/parameters/optimizer.def"
#undef OPTIMIZER

static const struct optimizer_def *const optimizers[] = {
#define OPTIMIZER(name) &optimizer_##name,
#include "server/parameters/optimizer.def"
#undef OPTIMIZER
};

const struct optimizer_def *optimizer_find(const char *name) {
  for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
    if (strcmp(optimizers[i]->name, name) == 0)
      return optimizers[i];
  return NULL;
}

const struct optimizer_def *const *optimizer_table(size_t *n) {
  *n = sizeof optimizers / sizeof *optimizers;
  return optimizers;
}

int optimizer_settle(Weir__OptimizerSpec *spec, const char *path, struct err *err) {
  static const char known[] = ""
#define OPTIMIZER(name) ", " #name
#include "server/parameters/optimizer.def"
#undef OPTIMIZER
      ;
  static const char *const shared[] = {"name", "lr", NULL};
  const struct optimizer_def *optimizer = optimizer_find(spec->name);
  struct option_table table = {.path = path, .row = spec->name, .shared = shared};
  if (!optimizer)
    return err_set(err, ERR_INVALID, "%s.name: unknown optimizer '%.60s'; known: %s", path, spec->name,
                   known + 2);
  table.rules = optimizer->options;
  if (options_settle(spec, &table, err))
    return err->code;
  return optimizer->check ? optimizer->check(spec, path, err) : 0;
}
