/* Copies of protobuf-c messages. */
#ifndef WEIR_COMMON_BASE_MESSAGE_H
#define WEIR_COMMON_BASE_MESSAGE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

/* A deep copy on the heap of any message that fits in memory, freed with the type's free_unpacked (or
   message_free). Takes the way over the wire's form, so it costs about as much as receiving it did. */
void *message_copy(const void *message);
void message_free(void *message); /* NULL is ignored */

/* Whether both have the same wire form. Messages of one type; either may be NULL, which is as nothing else.
 */
bool message_is_same(const void *a, const void *b);

/* Bytes of one value of the field, as it lies in its message or list. */
size_t message_value_size(const ProtobufCFieldDescriptor *field);

#endif
