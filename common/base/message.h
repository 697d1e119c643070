/* Copies of protobuf-c messages. */
#ifndef WEIR_COMMON_BASE_MESSAGE_H
#define WEIR_COMMON_BASE_MESSAGE_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

/* A deep copy on the heap of any message that fits in memory, freed with the type's free_unpacked (or
   message_free). Takes the way over the wire's form, so it costs about as much as receiving it did. */
void *message_copy(const void *message);
void message_free(void *message); /* NULL is ignored */

/* Bytes of one value of the field, as it lies in its message or list. */
size_t message_value_size(const ProtobufCFieldDescriptor *field);

#endif
