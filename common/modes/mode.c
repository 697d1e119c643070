/* The table of consistency modes. */
#include "common/modes/mode.h"

#include <stddef.h>
#include <string.h>

#define MODE(name) extern const struct mode_def mode_##name;
#include "common/modes/mode.def"
#undef MODE

static const struct mode_def *const modes[] = {
#define MODE(name) &mode_##name,
#include "common/modes/mode.def"
#undef MODE
};

const struct mode_def *mode_find(const char *name) {
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
    if (strcmp(modes[i]->name, name) == 0)
      return modes[i];
  return NULL;
}

int mode_check(const Weir__RunSpec *spec, struct err *err) {
  static const char known[] = ""
#define MODE(name) ", " #name
#include "common/modes/mode.def"
#undef MODE
      ;
  const struct mode_def *mode = mode_find(spec->train->mode);
  if (!mode)
    return err_set(err, ERR_INVALID, "train.mode: unknown mode '%.60s'; known: %s", spec->train->mode,
                   known + 2);
  return mode->check ? mode->check(spec, err) : 0;
}
