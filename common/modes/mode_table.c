/* The table of consistency modes. */
#include "common/modes/mode.h"

#include "common/base/def_table.h"

#define MODE(name) extern const struct mode_def mode_##name;
#include "common/modes/mode.def"
#undef MODE

static const struct mode_def *const defs[] = {
#define MODE(name) &mode_##name,
#include "common/modes/mode.def"
#undef MODE
};
static const struct def_table modes = DEF_TABLE(defs);

int mode_check(const Weir__RunSpec *spec, struct err *err) {
  const struct mode_def *mode = def_find(&modes, spec->train->mode);
  char known[DEF_NAMES_SIZE];
  if (!mode)
    return err_set(err, ERR_INVALID, "train.mode: unknown mode '%.60s'; known: %s", spec->train->mode,
                   def_names(&modes, ", ", known));
  return mode->check ? mode->check(spec, err) : 0;
}

struct mode mode_of(const Weir__RunSpec *spec) {
  struct mode mode = {.def = def_find(&modes, spec->train->mode), .train = spec->train};
  CHECK(mode.def);
  return mode;
}

const struct mode_def *mode_at(int index) {
  return def_at(&modes, index);
}
