/* Protobuf messages on the wire: between gRPC's slices and protobuf-c, with the bytes field kept apart. */
#ifndef WEIR_COMMON_RPC_WIRE_H
#define WEIR_COMMON_RPC_WIRE_H

#include <grpc/byte_buffer.h>

#include "common/base/limits.h"
#include "common/base/wire_field.h"
#include "common/rpc/rpc.h"

enum {
  WIRE_MESSAGE_BYTES_MAX = LIMIT_MESSAGE_BYTES,
  WIRE_REST_BYTES_MAX = 64 * 1024 /* of a message beside its bytes field */
};

/* How one message type travels. */
struct wire_type {
  const ProtobufCMessageDescriptor *descriptor;
  uint32_t bytes_field; /* 0: none; all of the message goes through protobuf-c */
  size_t bytes_max;     /* of the whole message */
};

struct wire_message {
  ProtobufCMessage *message;
  struct rpc_bytes *bytes; /* NULL if the field is absent or empty */
};

/* Parses a received message; wire stays the caller's, the bytes hold references of their own. Fields may come
   in any order; of a field given twice the last counts. Errors: INVALID for what does not parse, NO_MEMORY
   above a limit; out is empty then. */
int wire_read(const struct wire_type *type, const grpc_byte_buffer *wire, struct wire_message *out,
              struct err *err);
void wire_message_fini(struct wire_message *message);

/* The message followed by its bytes field, whose memory is not copied. The caller destroys the result. */
grpc_byte_buffer *wire_write(const struct wire_type *type, const void *message,
                             const struct rpc_payload *payload);

/* Received bytes under construction: room for max_slices. */
struct rpc_bytes *rpc_bytes_new(size_t max_slices);
void rpc_bytes_append(struct rpc_bytes *bytes, grpc_slice slice); /* takes the slice's reference */

/* From now on they take their size of the intake, which is told when they are freed. Once. */
struct rpc_intake;
void rpc_bytes_charge(struct rpc_bytes *bytes, struct rpc_intake *intake);

#endif
