/* The table of modes, as servers see it. */
#include "server/parameters/block/hosted_mode.h"

#include "common/base/def_table.h"

#define MODE(name) extern const struct hosted_mode_def hosted_mode_##name;
#include "common/modes/mode.def"
#undef MODE

static const struct hosted_mode_def *const defs[] = {
#define MODE(name) &hosted_mode_##name,
#include "common/modes/mode.def"
#undef MODE
};
static const struct def_table hosted_modes = DEF_TABLE(defs);

const struct hosted_mode_def *hosted_mode_find(const char *name) {
  return def_find(&hosted_modes, name);
}
