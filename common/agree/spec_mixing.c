/* Transforms that mix whole microbatches, as a spec says them. */
#include "common/agree/spec.h"

const Weir__Mixing *spec_mixing(const Weir__Transform *transform, const char **name) {
  const ProtobufCMessageDescriptor *descriptor = transform->base.descriptor;
  for (unsigned i = 0; i < descriptor->n_fields; i++) {
    const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
    Weir__Mixing *const *at = (const void *)((const char *)transform + field->offset);
    if (field->descriptor != &weir__mixing__descriptor || !*at)
      continue;
    *name = field->name;
    return *at;
  }
  return NULL;
}
