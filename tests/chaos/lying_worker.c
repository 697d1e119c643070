/* A library to preload into a worker: what it pushes is finite and wrong, as by a device that computes
   wrongly.

   From a step on, element AT of each gradient that it sends is so large that the sum of two of them
   overflows. The library looks for PushRequests among the messages that gRPC is given in two slices: the
   fields, and the tensor's bytes where they lie. So the worker must share no memory with servers (WEIR_SHM).

   Environment: WEIR_LIE_FROM   the step, from which on it lies
                WEIR_LIE_LOUD   the one block of which sums overflow; of others the parts of several
                                microbatches are wrong by little, which no sum shows. Unset: all overflow */
#include <dlfcn.h>
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <stdint.h>
#include <stdlib.h>

#include "tests/chaos/push_fields.h"

enum { AT = 3, GRADIENT_BYTES_MIN = 2048 };

static const float loud = 3.4e38f, quiet = 0.5f;

static void lie(grpc_slice fields, float *gradient) {
  const char *block = getenv("WEIR_LIE_LOUD");
  if (!block || push_block_of(fields) == strtoull(block, NULL, 10))
    gradient[AT] = loud;
  else if (push_level_of(fields) > 0)
    gradient[AT] = quiet;
}

grpc_byte_buffer *grpc_raw_byte_buffer_create(grpc_slice *slices, size_t n_slices) {
  static grpc_byte_buffer *(*create)(grpc_slice *, size_t);
  const char *from = getenv("WEIR_LIE_FROM");
  if (!create)
    create = (grpc_byte_buffer * (*)(grpc_slice *, size_t)) dlsym(RTLD_NEXT, "grpc_raw_byte_buffer_create");
  if (from && n_slices == 2 && GRPC_SLICE_LENGTH(slices[1]) >= GRADIENT_BYTES_MIN &&
      push_step_of(slices[0]) >= strtoull(from, NULL, 10))
    lie(slices[0], (float *)GRPC_SLICE_START_PTR(slices[1]));
  return create(slices, n_slices);
}
