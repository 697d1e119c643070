/* RPC over the gRPC C core with protobuf-c messages: what servers and clients share. The only folder that
   includes gRPC's headers.

   A tensor travels as the bytes field of a message, but not inside the protobuf-c struct: it is sent as a
   slice over our own buffer without a copy, and read straight from the received slices, which gRPC owns and
   which may cut a float in two. On the wire it is plain protobuf; any client may put its fields in any order.
 */
#ifndef WEIR_COMMON_RPC_RPC_H
#define WEIR_COMMON_RPC_RPC_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/memory.h"

enum rpc_method_id {
#define METHOD(id, path, request, reply, request_bytes, reply_bytes, callers) RPC_##id,
#include "common/rpc/methods.def"
#undef METHOD
  RPC_METHODS
};

/* Messages above this are refused (RESOURCE_EXHAUSTED), except in methods without a bytes field, which may
   reach 4 MiB, gRPC's default. */
enum { RPC_BLOCK_MESSAGE_BYTES_MAX = 256 * 1024 + 4096, RPC_CHUNK_BYTES = 1024 * 1024 };

/* Bytes to send beside a message: [offset, offset + size) of a buffer. gRPC holds a reference of its own
   while it needs the bytes; the caller keeps its own. */
struct rpc_payload {
  struct buffer *buffer;
  size_t offset, size_bytes;
};

/* Received bytes: slices owned by gRPC. They belong to the function that they were handed to. */
struct rpc_bytes;

size_t rpc_bytes_size(const struct rpc_bytes *bytes);          /* 0 for NULL */
void rpc_bytes_copy(const struct rpc_bytes *bytes, void *out); /* all of them */
/* out[i] = in[i] + out[i] for f32[size/4]. False (out undefined) if an element is not finite. */
bool rpc_bytes_add_f32(const struct rpc_bytes *bytes, float *out);
void rpc_bytes_free(struct rpc_bytes *bytes); /* NULL is ignored */

/* Process-wide gRPC start and end; counted. The last end waits until no thread of gRPC's is at work. */
void rpc_init(void);
void rpc_fini(void);

const char *rpc_library_version(void); /* gRPC's, as linked */

#endif
