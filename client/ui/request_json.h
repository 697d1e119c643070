/* Messages of JSON and of the query of a URL: what a page asks. */
#ifndef WEIR_CLIENT_UI_REQUEST_JSON_H
#define WEIR_CLIENT_UI_REQUEST_JSON_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#include "common/base/err.h"
#include "common/base/memory.h"

/* A message of the type with the fields of the object, in the arena. A field is a text, a number, true or
   false, an object where it is a message, or a list where it is repeated; a number may be written as text.
   Errors: INVALID, naming the field: one that the type has not, or that has no such value. */
int request_from_json(const ProtobufCMessageDescriptor *type, const json_t *object, struct arena *arena,
                      ProtobufCMessage **out, struct err *err);

#endif
