/* The table of transforms, and lists of them. */
#include "worker/data/transform.h"

#include <string.h>

#include "common/agree/random.h"

/* Of samples with more channels, bytes become f32 before the first transform of single elements. */
enum { TABLE_CHANNELS_MAX = 4 };

#define TRANSFORM(name) extern const struct transform_def transform_##name;
#include "worker/data/transform.def"
#undef TRANSFORM

static const struct transform_def *const transform_defs[] = {
#define TRANSFORM(name) &transform_##name,
#include "worker/data/transform.def"
#undef TRANSFORM
};

const struct transform_def *transform_of(const Weir__Transform *transform) {
  const ProtobufCMessageDescriptor *descriptor = transform->base.descriptor;
  for (size_t i = 0; i < sizeof transform_defs / sizeof *transform_defs; i++) {
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(descriptor, transform_defs[i]->name);
    const char *at = (const char *)transform;
    CHECK(field);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE ? *(void *const *)(at + field->offset) != NULL
                                               : *(const protobuf_c_boolean *)(at + field->quantifier_offset))
      return transform_defs[i];
  }
  return NULL;
}

int transforms_check(const struct transforms *transforms, struct image_shape *shape, struct err *err) {
  const char *key = transforms->is_for_evaluation ? "data.eval_transforms" : "data.transforms";
  if (transforms->n > TRANSFORMS_MAX)
    return err_set(err, ERR_INVALID, "%s: at most %d are applied", key, TRANSFORMS_MAX);
  for (size_t t = 0; t < transforms->n; t++) {
    const struct transform_def *def = transform_of(transforms->list[t]);
    if (def->check && def->check(transforms->list[t], transforms->is_training, shape, err))
      return err_prefix(err, "%s[%zu].%s", key, t, def->name);
  }
  return 0;
}

/* tables[t]: each channel's byte values after transforms 0 .. t, of those of single elements. */
static void fill_tables(const struct transforms_run *run, int64_t channels, float *tables) {
  size_t table_elems = (size_t)channels * BYTE_VALUES;
  float *before = NULL;
  for (size_t t = 0; t < run->transforms->n; t++, before = tables, tables += table_elems) {
    if (before)
      memcpy(tables, before, table_elems * sizeof *tables);
    else
      for (size_t i = 0; i < table_elems; i++)
        tables[i] = (float)(i % BYTE_VALUES);
    for (int64_t c = 0; run->defs[t]->pointwise && c < channels; c++)
      run->defs[t]->pointwise(run->transforms->list[t], c, tables + c * BYTE_VALUES, BYTE_VALUES);
  }
}

int transforms_begin(const struct transforms *transforms, struct sample_kind kind, struct scratch *scratch,
                     struct transforms_run *run, struct err *err) {
  float *tables;
  run->transforms = transforms;
  run->tables = NULL;
  for (size_t t = 0; t < transforms->n; t++)
    run->defs[t] = transform_of(transforms->list[t]);
  if (kind.dtype != DTYPE_U8 || kind.channels > TABLE_CHANNELS_MAX || transforms->n == 0)
    return 0;
  tables = scratch_get(scratch, SCRATCH_TABLES,
                       transforms->n * (size_t)kind.channels * BYTE_VALUES * sizeof *tables);
  if (!tables)
    return err_set(err, ERR_NO_MEMORY, "no memory for the tables of %zu transforms", transforms->n);
  fill_tables(run, kind.channels, tables);
  run->tables = tables;
  return 0;
}

static int apply_pointwise(const struct transforms_run *run, size_t t, struct sample *sample,
                           struct err *err) {
  const Weir__Transform *transform = run->transforms->list[t];
  int64_t plane = sample->shape.height * sample->shape.width;
  float *x;
  if (sample->dtype == DTYPE_U8 && run->tables) {
    sample->values = run->tables + t * (size_t)sample->shape.channels * BYTE_VALUES;
    return 0;
  }
  x = sample_floats(sample);
  if (!x)
    return err_set(err, ERR_NO_MEMORY, "no memory to transform a sample");
  for (int64_t c = 0; c < sample->shape.channels; c++)
    run->defs[t]->pointwise(transform, c, x + c * plane, plane);
  return 0;
}

int transforms_apply(const struct transforms_run *run, uint64_t key, struct sample *sample, struct err *err) {
  const struct transforms *transforms = run->transforms;
  for (size_t t = 0; t < transforms->n; t++) {
    const struct transform_def *def = run->defs[t];
    struct transform_context context = {transforms->is_training, random_bits(key, t)};
    if (def->pointwise && apply_pointwise(run, t, sample, err))
      return err->code;
    if (def->apply && def->apply(transforms->list[t], &context, sample, err))
      return err_prefix(err, "%s", def->name);
  }
  return 0;
}
