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
  struct mode mode = {def_find(&modes, spec->train->mode), spec->train};
  CHECK(mode.def);
  return mode;
}

uint64_t mode_version(const struct mode *mode, uint64_t step) {
  return mode->def->version(mode->train, step);
}

enum mode_arrival mode_arrive(const struct mode *mode, const struct mode_part *part) {
  return mode->def->arrive(mode->train, part);
}

uint64_t mode_answer(const struct mode *mode, uint64_t wanted, uint64_t newest) {
  return mode->def->answer(mode->train, wanted, newest);
}

uint64_t mode_oldest(const struct mode *mode, uint64_t complete) {
  return mode->def->oldest(mode->train, complete);
}

uint64_t mode_boundary(const struct mode *mode, uint64_t version) {
  return mode->def->boundary(mode->train, version);
}

struct mode_bounds mode_bounds(const struct mode *mode) {
  return mode->def->bounds(mode->train);
}

uint64_t mode_reply(const struct mode *mode, uint64_t step) {
  return mode_version(mode, step + 1);
}

bool mode_brings_version(const struct mode *mode, uint64_t step) {
  return mode_reply(mode, step) > mode_version(mode, step);
}

const struct mode_def *mode_at(int index) {
  return def_at(&modes, index);
}
