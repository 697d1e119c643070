/* Numbers of a spec that have a word. */
#include <string.h>

#include "common/agree/spec.h"

static const struct {
  const ProtobufCMessageDescriptor *message;
  const char *field;
  struct spec_word is;
} words[] = {{&weir__workers_spec__descriptor, "stages", {"auto", SPEC_STAGES_AUTO}}};

const struct spec_word *spec_word_of(const ProtobufCFieldDescriptor *field) {
  for (size_t w = 0; w < sizeof words / sizeof words[0]; w++)
    if (protobuf_c_message_descriptor_get_field_by_name(words[w].message, words[w].field) == field)
      return &words[w].is;
  return NULL;
}
