/* Received bytes: read where gRPC put them. */
#include <grpc/slice.h>
#include <stdlib.h>
#include <string.h>

#include "common/rpc/intake.h"
#include "common/rpc/wire.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "f32 on the wire is little-endian, and read in place");

struct rpc_bytes {
  size_t size;
  struct rpc_intake *intake; /* NULL: not charged to one */
  size_t n_slices, max_slices;
  grpc_slice slices[];
};

/* A received slice begins anywhere. */
typedef float f32_unaligned __attribute__((aligned(1), may_alias));
typedef uint32_t u32_unaligned __attribute__((aligned(1), may_alias));

struct rpc_bytes *rpc_bytes_new(size_t max_slices) {
  struct rpc_bytes *bytes = mem_new(sizeof *bytes + max_slices * sizeof *bytes->slices);
  bytes->max_slices = max_slices;
  return bytes;
}

void rpc_bytes_append(struct rpc_bytes *bytes, grpc_slice slice) {
  CHECK(bytes->n_slices < bytes->max_slices);
  bytes->size += GRPC_SLICE_LENGTH(slice);
  bytes->slices[bytes->n_slices++] = slice;
}

void rpc_bytes_charge(struct rpc_bytes *bytes, struct rpc_intake *intake) {
  bytes->intake = intake;
}

size_t rpc_bytes_size(const struct rpc_bytes *bytes) {
  return bytes ? bytes->size : 0;
}

void rpc_bytes_copy(const struct rpc_bytes *bytes, void *out) {
  unsigned char *at = out;
  for (size_t i = 0; bytes && i < bytes->n_slices; i++) {
    size_t size = GRPC_SLICE_LENGTH(bytes->slices[i]);
    memcpy(at, GRPC_SLICE_START_PTR(bytes->slices[i]), size);
    at += size;
  }
}

/* out f32[count] += in f32[count]; not 0 if an element of in is not finite: its exponent has all bits set. */
static uint32_t add_floats(const unsigned char *restrict in, float *restrict out, size_t count) {
  const f32_unaligned *values = (const void *)in;
  const u32_unaligned *bits = (const void *)in;
  uint32_t not_finite = 0;
  for (size_t i = 0; i < count; i++) {
    out[i] = values[i] + out[i];
    not_finite |= (bits[i] & 0x7f800000u) == 0x7f800000u;
  }
  return not_finite;
}

bool rpc_bytes_add_f32(const struct rpc_bytes *bytes, float *out) {
  unsigned char cut[4]; /* the part of a float that the slice before ended with */
  size_t n_cut = 0;
  uint32_t not_finite = 0;
  for (size_t i = 0; bytes && i < bytes->n_slices; i++) {
    const unsigned char *at = GRPC_SLICE_START_PTR(bytes->slices[i]);
    size_t left = GRPC_SLICE_LENGTH(bytes->slices[i]);
    for (; n_cut && left; left--) {
      cut[n_cut++] = *at++;
      if (n_cut < sizeof cut)
        continue;
      not_finite |= add_floats(cut, out++, 1);
      n_cut = 0;
    }
    not_finite |= add_floats(at, out, left / 4);
    out += left / 4;
    at += left & ~(size_t)3;
    for (left &= 3; left; left--)
      cut[n_cut++] = *at++;
  }
  return !not_finite;
}

void rpc_bytes_free(struct rpc_bytes *bytes) {
  if (!bytes)
    return;
  for (size_t i = 0; i < bytes->n_slices; i++)
    grpc_slice_unref(bytes->slices[i]);
  if (bytes->intake)
    rpc_intake_release(bytes->intake, bytes->size);
  free(bytes);
}
