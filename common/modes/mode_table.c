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

/* Whether it is given. */
static bool has_option(const Weir__TrainSpec *train, const char *name) {
  const ProtobufCFieldDescriptor *field =
      protobuf_c_message_descriptor_get_field_by_name(&weir__train_spec__descriptor, name);
  const char *at = (const char *)train;
  CHECK(field);
  if (field->type == PROTOBUF_C_TYPE_MESSAGE)
    return *(void *const *)(at + field->offset) != NULL;
  return *(const protobuf_c_boolean *)(at + field->quantifier_offset) != 0;
}

static int check_options(const struct mode_def *mode, const Weir__TrainSpec *train, struct err *err) {
  const struct mode_def *other;
  for (int i = 0; (other = mode_at(i)); i++)
    if (other != mode && other->option && has_option(train, other->option))
      return err_set(err, ERR_INVALID, "train.%s: is an option of train.mode %s, and train.mode is %s",
                     other->option, other->name, mode->name);
  return 0;
}

int mode_check(const Weir__RunSpec *spec, struct err *err) {
  const struct mode_def *mode = def_find(&modes, spec->train->mode);
  char known[DEF_NAMES_SIZE];
  if (!mode)
    return err_set(err, ERR_INVALID, "train.mode: unknown mode '%.60s'; known: %s", spec->train->mode,
                   def_names(&modes, ", ", known));
  if (check_options(mode, spec->train, err))
    return err->code;
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
