/* The table of losses, and what its rows share. */
#include "model/losses/loss.h"

#include <string.h>

#include "model/graph/listing.h"

#define LOSS(name) extern const struct loss_def loss_##name;
#include "model/losses/loss.def"
#undef LOSS

static const struct loss_def *const defs[] = {
#define LOSS(name) &loss_##name,
#include "model/losses/loss.def"
#undef LOSS
};
static const struct def_table losses = DEF_TABLE(defs);

const struct loss_def *loss_find(const char *name) {
  return def_find(&losses, name);
}

const struct loss_def *loss_at(int index) {
  return def_at(&losses, index);
}

const char *loss_names(char out[DEF_NAMES_SIZE]) {
  return def_names(&losses, ", ", out);
}

bool loss_has_option(const struct loss_def *loss, const char *option) {
  for (int i = 0; loss->options[i]; i++)
    if (strcmp(loss->options[i], option) == 0)
      return true;
  return false;
}

/* True if the field of this message was given: has_FIELD or the length of a list is not 0, a text is not the
   default. */
static bool is_given(const Weir__LossOptions *options, const ProtobufCFieldDescriptor *field) {
  const char *message = (const char *)options;
  if (field->label == PROTOBUF_C_LABEL_REPEATED)
    return *(const size_t *)(message + field->quantifier_offset) > 0;
  if (field->type == PROTOBUF_C_TYPE_STRING)
    return *(const char *const *)(message + field->offset) != field->default_value;
  return *(const protobuf_c_boolean *)(message + field->quantifier_offset);
}

int loss_check_options(const struct loss_def *loss, const Weir__LossOptions *options, struct err *err) {
  struct listing known = {0};
  for (unsigned i = 0; i < weir__loss_options__descriptor.n_fields; i++) {
    const ProtobufCFieldDescriptor *field = &weir__loss_options__descriptor.fields[i];
    if (!is_given(options, field) || loss_has_option(loss, field->name))
      continue;
    for (int o = 0; loss->options[o]; o++)
      listing_add(&known, "%s", loss->options[o]);
    return err_set(err, ERR_INVALID, "model.loss_options.%s: the loss '%s' has no such option; it has %s",
                   field->name, loss->name, known.count ? listing_text(&known) : "none");
  }
  return 0;
}

int loss_check_output(const struct loss_site *site, int rank_least, struct err *err) {
  const struct value *output = &site->graph->values[site->output];
  char shape[256];
  if (output->dtype == DTYPE_F32 && output->shape.rank >= rank_least && shape_elems(&output->shape) > 0)
    return 0;
  return err_set(err, ERR_INVALID,
                 "loss '%s' takes an output f32[samples%s...], but the model's output '%s' is %s%s",
                 site->loss->name, rank_least > 1 ? ",classes," : ",", output->name,
                 dtype_name(output->dtype), shape_text(&output->shape, shape, sizeof shape));
}

int loss_class_axis(const struct loss_site *site, int *axis, struct err *err) {
  int rank = site->graph->values[site->output].shape.rank;
  int64_t wanted = site->options->class_axis;
  if (!site->options->has_class_axis)
    wanted = rank == 3 ? 2 : 1;
  else if (wanted < 0)
    wanted += rank;
  if (wanted < 1 || wanted >= rank)
    return err_set(err, ERR_INVALID,
                   "model.loss_options.class_axis: %lld is none of the dimensions behind the first of %d",
                   (long long)site->options->class_axis, rank);
  *axis = (int)wanted;
  return 0;
}

void loss_add_labels(struct loss_site *site, enum dtype dtype, const struct shape *shape) {
  site->labels = graph_add_input(site->graph, "weir.labels", dtype, shape);
}
