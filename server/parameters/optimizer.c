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

int optimizer_check(const Weir__OptimizerSpec *spec, struct err *err) {
  static const char known[] = ""
#define OPTIMIZER(name) ", " #name
#include "server/parameters/optimizer.def"
#undef OPTIMIZER
      ;
  const struct optimizer_def *optimizer = optimizer_find(spec->name);
  if (!optimizer)
    return err_set(err, ERR_INVALID, "train.optimizer.name: unknown optimizer '%.60s'; known: %s", spec->name,
                   known + 2);
  return optimizer->check(spec, err);
}
