/* The table of transforms. */
#include "worker/data/transform.h"

#include <stddef.h>

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
