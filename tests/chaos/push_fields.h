/* What libraries that are preloaded into workers read of a PushRequest's fields, as they lie on the wire. */
#ifndef WEIR_TESTS_CHAOS_PUSH_FIELDS_H
#define WEIR_TESTS_CHAOS_PUSH_FIELDS_H

#include <grpc/slice.h>
#include <stdint.h>

enum {
  FIELD_STEP = 3,
  FIELD_BLOCK = 4,
  FIELD_LEVEL = 6,
  FIELD_SHARE = 11,
  FIELD_SHARED = 12,
  WIRE_VARINT = 0,
  WIRE_LENGTH = 2
};

static inline uint64_t push_read_varint(const uint8_t **at, const uint8_t *end) {
  uint64_t value = 0;
  for (int shift = 0; *at < end && shift < 64; shift += 7) {
    uint8_t byte = *(*at)++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80))
      break;
  }
  return value;
}

/* The value of the field with this tag, of bytes their length; 0 is not on the wire. */
static inline uint64_t push_field(grpc_slice fields, uint64_t wanted) {
  const uint8_t *at = GRPC_SLICE_START_PTR(fields), *end = GRPC_SLICE_END_PTR(fields);
  while (at < end) {
    uint64_t tag = push_read_varint(&at, end), value = push_read_varint(&at, end);
    if (tag == wanted)
      return value;
    if ((tag & 7) == WIRE_LENGTH)
      at = value < (uint64_t)(end - at) ? at + value : end;
  }
  return 0;
}

/* The step that the fields name. */
static inline uint64_t push_step_of(grpc_slice fields) {
  return push_field(fields, FIELD_STEP << 3 | WIRE_VARINT);
}

/* The block that they name: of several the first. */
static inline uint64_t push_block_of(grpc_slice fields) {
  return push_field(fields, FIELD_BLOCK << 3 | WIRE_VARINT);
}

/* The level of the part's node: 0 of a single microbatch. */
static inline uint64_t push_level_of(grpc_slice fields) {
  return push_field(fields, FIELD_LEVEL << 3 | WIRE_VARINT);
}

/* Whether the fields name the tensor's bytes, as those of no other message that a worker sends. */
static inline int push_names_bytes(grpc_slice fields) {
  return push_field(fields, FIELD_SHARE << 3 | WIRE_VARINT) &&
         push_field(fields, FIELD_SHARED << 3 | WIRE_LENGTH);
}

#endif
