/* Protobuf messages on the wire. */
#include "common/rpc/core.h"

#include <grpc/slice.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/unpack.h"

enum { VARINT_MAX = 10 };

/* A position in a received message. */
struct cursor {
  const grpc_slice_buffer *slices;
  size_t slice, offset; /* the next byte */
  size_t left;          /* bytes to the message's end */
};

/* What protobuf-c gets to read: the message without its bytes field. */
struct rest {
  uint8_t local[512];
  uint8_t *data;
  size_t size, capacity;
};

static int bytes_separate(const struct wire_type *type, struct cursor *cursor, struct rest *rest,
                          struct rpc_bytes **bytes, struct err *err);
static int wire_unpack(const struct wire_type *type, const uint8_t *data, size_t size,
                       struct wire_message *out, struct err *err);
static void take_all(struct cursor *cursor, uint8_t *out);

int wire_read(const struct wire_type *type, const grpc_byte_buffer *wire, struct wire_message *out,
              struct err *err) {
  const grpc_slice_buffer *slices = &wire->data.raw.slice_buffer;
  struct cursor cursor = {.slices = slices, .left = slices->length};
  struct rest rest = {.data = rest.local, .capacity = sizeof rest.local};
  uint8_t *copy = NULL;
  *out = (struct wire_message){0};
  if (slices->length > type->bytes_max) {
    err_set(err, ERR_NO_MEMORY, "a %s of %zu bytes is larger than max (%zu)", type->descriptor->name,
            slices->length, type->bytes_max);
  } else if (type->bytes_field) {
    if (bytes_separate(type, &cursor, &rest, &out->bytes, err) == ERR_OK)
      wire_unpack(type, rest.data, rest.size, out, err);
  } else if (slices->count == 1) {
    wire_unpack(type, GRPC_SLICE_START_PTR(slices->slices[0]), slices->length, out, err);
  } else if ((copy = malloc(slices->length + 1))) {
    take_all(&cursor, copy);
    wire_unpack(type, copy, slices->length, out, err);
  } else {
    err_set(err, ERR_NO_MEMORY, "no memory for a %s of %zu bytes", type->descriptor->name, slices->length);
  }
  free(copy);
  if (rest.data != rest.local)
    free(rest.data);
  if (out->message)
    return ERR_OK;
  wire_message_fini(out);
  return err->code;
}

static int wire_unpack(const struct wire_type *type, const uint8_t *data, size_t size,
                       struct wire_message *out, struct err *err) {
  out->message = message_unpack(type->descriptor, data, size, err);
  return out->message ? ERR_OK : err->code;
}

/* The bytes that are left in the cursor's slice; moves on to the next slice at the end of one. */
static size_t cursor_run(struct cursor *cursor, const uint8_t **at) {
  const grpc_slice *slice = &cursor->slices->slices[cursor->slice];
  while (cursor->offset == GRPC_SLICE_LENGTH(*slice)) {
    slice = &cursor->slices->slices[++cursor->slice];
    cursor->offset = 0;
  }
  *at = GRPC_SLICE_START_PTR(*slice) + cursor->offset;
  return GRPC_SLICE_LENGTH(*slice) - cursor->offset;
}

/* size <= left. */
static void cursor_take(struct cursor *cursor, uint8_t *out, size_t size) {
  const uint8_t *at;
  while (size) {
    size_t run = cursor_run(cursor, &at);
    run = run < size ? run : size;
    memcpy(out, at, run);
    out += run;
    size -= run;
    cursor->offset += run;
    cursor->left -= run;
  }
}

static void take_all(struct cursor *cursor, uint8_t *out) {
  cursor_take(cursor, out, cursor->left);
}

static bool cursor_varint(struct cursor *cursor, uint64_t *value) {
  uint8_t byte;
  *value = 0;
  for (int i = 0; i < VARINT_MAX && cursor->left; i++) {
    cursor_take(cursor, &byte, 1);
    *value |= (uint64_t)(byte & 0x7f) << (7 * i);
    if (byte < 0x80)
      return true;
  }
  return false;
}

/* size <= left, size > 0: references to the slices, no copy. */
static struct rpc_bytes *cursor_reference(struct cursor *cursor, size_t size) {
  struct rpc_bytes *bytes = rpc_bytes_new(cursor->slices->count - cursor->slice);
  const uint8_t *at;
  while (size) {
    size_t run = cursor_run(cursor, &at);
    run = run < size ? run : size;
    rpc_bytes_append(
        bytes, grpc_slice_sub(cursor->slices->slices[cursor->slice], cursor->offset, cursor->offset + run));
    size -= run;
    cursor->offset += run;
    cursor->left -= run;
  }
  return bytes;
}

static bool rest_reserve(struct rest *rest, size_t size) {
  size_t capacity = rest->capacity;
  uint8_t *data;
  if (size > WIRE_REST_BYTES_MAX - rest->size)
    return false;
  while (capacity < rest->size + size)
    capacity *= 2;
  if (capacity == rest->capacity)
    return true;
  data = mem_resize(rest->data == rest->local ? NULL : rest->data, capacity);
  if (rest->data == rest->local)
    memcpy(data, rest->local, rest->size);
  rest->data = data;
  rest->capacity = capacity;
  return true;
}

static size_t varint_put(uint8_t *out, uint64_t value) {
  size_t size = 0;
  for (; value >= 0x80; value >>= 7)
    out[size++] = (uint8_t)(value | 0x80);
  out[size++] = (uint8_t)value;
  return size;
}

static bool rest_varint(struct rest *rest, uint64_t value) {
  if (!rest_reserve(rest, VARINT_MAX))
    return false;
  rest->size += varint_put(rest->data + rest->size, value);
  return true;
}

/* Copies a field, whose tag was read, to the rest. False if it is malformed or too much. */
static bool rest_field(struct rest *rest, struct cursor *cursor, uint64_t tag, uint64_t length) {
  uint64_t value, size;
  if (!rest_varint(rest, tag))
    return false;
  switch (tag & 7) {
  case WIRE_VARINT:
    return cursor_varint(cursor, &value) && rest_varint(rest, value);
  case WIRE_LENGTH:
    size = length;
    if (!rest_varint(rest, length))
      return false;
    break;
  case WIRE_FIXED64:
    size = 8;
    break;
  case WIRE_FIXED32:
    size = 4;
    break;
  default:
    return false;
  }
  if (size > cursor->left || !rest_reserve(rest, size))
    return false;
  cursor_take(cursor, rest->data + rest->size, size);
  rest->size += size;
  return true;
}

/* The only copy of tensor bytes is not made here: they are referenced, all else goes to the rest. */
static int bytes_separate(const struct wire_type *type, struct cursor *cursor, struct rest *rest,
                          struct rpc_bytes **bytes, struct err *err) {
  uint64_t tag, length = 0;
  while (cursor->left) {
    bool is_good = cursor_varint(cursor, &tag) && tag <= UINT32_MAX && tag >> 3;
    if (is_good && (tag & 7) == WIRE_LENGTH)
      is_good = cursor_varint(cursor, &length) && length <= cursor->left;
    if (is_good && tag == ((uint64_t)type->bytes_field << 3 | WIRE_LENGTH)) {
      rpc_bytes_free(*bytes);
      *bytes = length ? cursor_reference(cursor, length) : NULL;
    } else if (!is_good || !rest_field(rest, cursor, tag, length)) {
      return err_set(err, ERR_INVALID, "not a %s: malformed, or more than %d bytes beside its bytes field",
                     type->descriptor->name, WIRE_REST_BYTES_MAX);
    }
  }
  return ERR_OK;
}

void wire_message_fini(struct wire_message *message) {
  if (message->message)
    protobuf_c_message_free_unpacked(message->message, NULL);
  rpc_bytes_free(message->bytes);
  *message = (struct wire_message){0};
}

static void put_buffer(void *buffer) {
  RPC_TAKE_OVER(buffer);
  buffer_put(buffer);
}

grpc_byte_buffer *wire_write(const struct wire_type *type, const void *message,
                             const struct rpc_payload *payload) {
  size_t packed = protobuf_c_message_get_packed_size(message);
  grpc_slice slices[2] = {grpc_slice_malloc(packed + 2 * VARINT_MAX)};
  uint8_t *at = GRPC_SLICE_START_PTR(slices[0]);
  size_t size = protobuf_c_message_pack(message, at);
  size_t n_slices = 1;
  grpc_byte_buffer *wire;
  CHECK(size == packed && (!payload || type->bytes_field));
  if (payload && payload->size_bytes) {
    RPC_HAND_OVER(payload->buffer);
    size += varint_put(at + size, (uint64_t)type->bytes_field << 3 | WIRE_LENGTH);
    size += varint_put(at + size, payload->size_bytes);
    slices[n_slices++] =
        grpc_slice_new_with_user_data((uint8_t *)payload->buffer->data + payload->offset, payload->size_bytes,
                                      put_buffer, buffer_get(payload->buffer));
  }
  GRPC_SLICE_SET_LENGTH(slices[0], size);
  wire = grpc_raw_byte_buffer_create(slices, n_slices);
  for (size_t i = 0; i < n_slices; i++)
    grpc_slice_unref(slices[i]);
  return wire;
}
