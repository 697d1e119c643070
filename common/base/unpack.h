/* Unpacking messages that may be hostile. */
#ifndef WEIR_COMMON_BASE_UNPACK_H
#define WEIR_COMMON_BASE_UNPACK_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "common/base/err.h"

enum { UNPACK_DEPTH_MAX = 64 };

/* protobuf_c_message_unpack for untrusted bytes: protobuf-c recurses once per level of nesting and overflows
   the stack on messages nested some 20,000 deep, so the depth is checked first. Returns the message, freed
   with protobuf_c_message_free_unpacked. Errors (NULL): INVALID, "not a NAME: ...". */
void *message_unpack(const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t size,
                     struct err *err);

#endif
