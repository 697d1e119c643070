/* What train.collective means for a run. */
#include "common/settle/spec_collective.h"

#include <stdbool.h>
#include <string.h>

#include "common/modes/mode.h"

/* Whether the checks of a spec let it name a collective. */
static bool may_name_one(const Weir__RunSpec *spec) {
  return mode_of(spec).def->has_groups && spec->workers->stages == 1 && !spec->train->compression;
}

const char *spec_collective(const Weir__RunSpec *spec) {
  const char *named = spec->train->collective;
  if (strcmp(named, "auto") != 0)
    return named;
  return may_name_one(spec) ? "shm" : "none";
}
