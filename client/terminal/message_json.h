/* Messages as JSON. */
#ifndef WEIR_CLIENT_TERMINAL_MESSAGE_JSON_H
#define WEIR_CLIENT_TERMINAL_MESSAGE_JSON_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

/* The names of fields are the keys. A message is an object, a repeated field an array, a map an object, and
   so are metrics, by their names. Enums are lower-case names, bytes hexadecimal digits, NaN and infinity
   null; so is text that is not UTF-8, and what is nested deeper than 64 messages. A field is left out where
   it is not set and its schema tells: an optional one, a message, the members of a oneof but one. The
   caller's. */
json_t *message_json(const ProtobufCMessage *message);

#endif
