/* The table of modes, as servers see it. */
#include "server/parameters/block/hosted_mode.h"

#include <stddef.h>
#include <string.h>

#define MODE(name) extern const struct hosted_mode_def hosted_mode_##name;
#include "common/modes/mode.def"
#undef MODE

static const struct hosted_mode_def *const hosted_modes[] = {
#define MODE(name) &hosted_mode_##name,
#include "common/modes/mode.def"
#undef MODE
};

const struct hosted_mode_def *hosted_mode_find(const char *name) {
  for (size_t i = 0; i < sizeof hosted_modes / sizeof *hosted_modes; i++)
    if (strcmp(hosted_modes[i]->mode->name, name) == 0)
      return hosted_modes[i];
  return NULL;
}
