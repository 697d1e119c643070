/* Protobuf messages in contiguous memory, field by field. */
#ifndef WEIR_COMMON_BASE_WIRE_FIELD_H
#define WEIR_COMMON_BASE_WIRE_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum wire_kind { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_LENGTH = 2, WIRE_FIXED32 = 5 };

struct wire_field {
  uint32_t number;
  uint32_t kind;       /* WIRE_VARINT... */
  const uint8_t *data; /* WIRE_LENGTH: its content */
  size_t size;
};

/* The next field from *at on. False at the end and, leaving *at before it, at what is not a field. */
bool wire_next(const uint8_t **at, const uint8_t *end, struct wire_field *field);

#endif
