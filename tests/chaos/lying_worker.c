/* A library to preload into a worker: what it pushes is finite and wrong, as by a device that computes
   wrongly.

   From a step on, element AT of each gradient that it sends is so large that the sum of two of them
   overflows. The library looks for PushRequests among the messages that gRPC is given in two slices: the
   fields, and the tensor's bytes where they lie.

   Environment: WEIR_LIE_FROM  the step, from which on it lies */
#include <dlfcn.h>
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <stdint.h>
#include <stdlib.h>

enum { AT = 3, GRADIENT_BYTES_MIN = 2048, FIELD_STEP = 3, WIRE_VARINT = 0, WIRE_LENGTH = 2 };

static const float lie = 3.4e38f;

static uint64_t read_varint(const uint8_t **at, const uint8_t *end) {
  uint64_t value = 0;
  for (int shift = 0; *at < end && shift < 64; shift += 7) {
    uint8_t byte = *(*at)++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80))
      break;
  }
  return value;
}

/* The step that the fields name; 0 is not on the wire. */
static uint64_t step_of(grpc_slice fields) {
  const uint8_t *at = GRPC_SLICE_START_PTR(fields), *end = GRPC_SLICE_END_PTR(fields);
  while (at < end) {
    uint64_t tag = read_varint(&at, end), value = read_varint(&at, end);
    if (tag == (FIELD_STEP << 3 | WIRE_VARINT))
      return value;
    if ((tag & 7) == WIRE_LENGTH)
      at = value < (uint64_t)(end - at) ? at + value : end;
  }
  return 0;
}

grpc_byte_buffer *grpc_raw_byte_buffer_create(grpc_slice *slices, size_t n_slices) {
  static grpc_byte_buffer *(*create)(grpc_slice *, size_t);
  const char *from = getenv("WEIR_LIE_FROM");
  if (!create)
    create = (grpc_byte_buffer * (*)(grpc_slice *, size_t)) dlsym(RTLD_NEXT, "grpc_raw_byte_buffer_create");
  if (from && n_slices == 2 && GRPC_SLICE_LENGTH(slices[1]) >= GRADIENT_BYTES_MIN &&
      step_of(slices[0]) >= strtoull(from, NULL, 10))
    ((float *)GRPC_SLICE_START_PTR(slices[1]))[AT] = lie;
  return create(slices, n_slices);
}
