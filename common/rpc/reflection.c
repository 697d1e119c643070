/* The standard gRPC reflection service, from the descriptor set that we carry. */
#include <stdlib.h>
#include <string.h>

#include "common/rpc/call.h"
#include "common/rpc/descriptors.h"
#include "grpc/reflection/v1/reflection.pb-c.h"

/* Field numbers of google/protobuf/descriptor.proto. */
enum {
  SET_FILE = 1,
  NAME = 1, /* of whatever has one */
  FILE_PACKAGE = 2,
  FILE_MESSAGE = 4,
  FILE_ENUM = 5,
  FILE_SERVICE = 6,
  MESSAGE_FIELD = 2,
  MESSAGE_NESTED = 3,
  MESSAGE_ENUM = 4,
  SERVICE_METHOD = 2
};

/* A named thing and the file that defines it; a file itself is under its name. */
struct symbol {
  const char *name;
  const uint8_t *file;
  size_t file_size;
  bool is_file;
};

struct rpc_reflection {
  const struct rpc_names *names;
  struct arena arena;
  struct symbol *symbols;
  int n_symbols, capacity;
};

/* What may lie within a thing, by its kind. */
enum kind { KIND_LEAF, KIND_MESSAGE, KIND_SERVICE, KIND_FILE, KINDS };

struct content {
  uint32_t field;
  enum kind kind;
};

static const struct content contents[KINDS][4] = {
    [KIND_FILE] = {{FILE_MESSAGE, KIND_MESSAGE}, {FILE_ENUM, KIND_LEAF}, {FILE_SERVICE, KIND_SERVICE}},
    [KIND_MESSAGE] = {{MESSAGE_NESTED, KIND_MESSAGE}, {MESSAGE_ENUM, KIND_LEAF}, {MESSAGE_FIELD, KIND_LEAF}},
    [KIND_SERVICE] = {{SERVICE_METHOD, KIND_LEAF}},
};

static const char *read_text(struct arena *arena, struct wire_field thing, uint32_t number) {
  const uint8_t *at = thing.data, *end = at + thing.size;
  struct wire_field field;
  while (wire_next(&at, end, &field))
    if (field.number == number) {
      char *text = arena_new(arena, field.size + 1);
      memcpy(text, field.data, field.size);
      return text;
    }
  return "";
}

static void add_symbol(struct rpc_reflection *reflection, struct symbol symbol) {
  array_reserve((void **)&reflection->symbols, &reflection->capacity, reflection->n_symbols,
                sizeof *reflection->symbols);
  reflection->symbols[reflection->n_symbols++] = symbol;
}

/* Adds what lies within a thing of the file, under the scope's name. */
static void add_contents(struct rpc_reflection *reflection, struct wire_field file, struct wire_field thing,
                         enum kind kind, const char *scope) {
  const uint8_t *at = thing.data, *end = at + thing.size;
  struct wire_field field;
  while (wire_next(&at, end, &field))
    for (const struct content *content = contents[kind]; content->field; content++)
      if (content->field == field.number) {
        const char *name = read_text(&reflection->arena, field, NAME);
        if (scope[0])
          name = arena_printf(&reflection->arena, "%s.%s", scope, name);
        add_symbol(reflection, (struct symbol){name, file.data, file.size, false});
        add_contents(reflection, file, field, content->kind, name);
      }
}

struct rpc_reflection *rpc_reflection_new(const struct rpc_names *names) {
  struct rpc_reflection *reflection = mem_new(sizeof *reflection);
  const uint8_t *at = rpc_descriptors, *end = at + rpc_descriptors_size;
  struct wire_field file;
  reflection->names = names;
  arena_init(&reflection->arena);
  while (wire_next(&at, end, &file)) {
    const char *name = read_text(&reflection->arena, file, NAME);
    add_symbol(reflection, (struct symbol){name, file.data, file.size, true});
    add_contents(reflection, file, file, KIND_FILE, read_text(&reflection->arena, file, FILE_PACKAGE));
  }
  return reflection;
}

void rpc_reflection_free(struct rpc_reflection *reflection) {
  arena_fini(&reflection->arena);
  free(reflection->symbols);
  free(reflection);
}

typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;

static void send_error(struct rpc_call *call, reflection_response response, enum err_code code,
                       const char *text) {
  Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
  error.error_code = err_grpc_status(code);
  error.error_message = (char *)text;
  response.message_response_case =
      GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
  response.error_response = &error;
  rpc_call_send(call, &response, NULL);
}

static void send_services(struct rpc_call *call, reflection_response response) {
  const struct rpc_names *names = ((struct rpc_reflection *)rpc_call_context(call))->names;
  Grpc__Reflection__V1__ListServiceResponse list = GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
  Grpc__Reflection__V1__ServiceResponse services[names->count];
  Grpc__Reflection__V1__ServiceResponse *rows[names->count];
  for (int i = 0; i < names->count; i++) {
    grpc__reflection__v1__service_response__init(&services[i]);
    services[i].name = names->names[i];
    rows[i] = &services[i];
  }
  list.n_service = (size_t)names->count;
  list.service = rows;
  response.message_response_case =
      GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
  response.list_services_response = &list;
  rpc_call_send(call, &response, NULL);
}

static void send_file(struct rpc_call *call, reflection_response response, const char *name, bool is_file) {
  const struct rpc_reflection *reflection = rpc_call_context(call);
  Grpc__Reflection__V1__FileDescriptorResponse files = GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
  for (int i = 0; i < reflection->n_symbols; i++) {
    const struct symbol *symbol = &reflection->symbols[i];
    ProtobufCBinaryData file = {symbol->file_size, (uint8_t *)symbol->file};
    if (symbol->is_file != is_file || strcmp(symbol->name, name) != 0)
      continue;
    files.n_file_descriptor_proto = 1;
    files.file_descriptor_proto = &file;
    response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    response.file_descriptor_response = &files;
    rpc_call_send(call, &response, NULL);
    return;
  }
  send_error(call, response, ERR_NOT_FOUND, is_file ? "no such file" : "no such symbol");
}

static void reflection_answer(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  reflection_request *request = (reflection_request *)message;
  reflection_response response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
  (void)bytes;
  response.valid_host = request->host;
  response.original_request = request;
  switch (request->message_request_case) {
  case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
    send_services(call, response);
    break;
  case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
    send_file(call, response, request->file_by_filename, true);
    break;
  case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
    send_file(call, response, request->file_containing_symbol, false);
    break;
  default:
    send_error(call, response, ERR_UNSUPPORTED, "there are no extensions here");
  }
}

/* The call's own end: half-closed, or cancelled before that. rpc finishes nothing for an owner, so the user
   pointer says that it was done. */
static void finish_once(struct rpc_call *call) {
  if (rpc_call_user(call))
    return;
  rpc_call_set_user(call, call);
  rpc_call_finish(call, NULL);
}

const struct rpc_method rpc_reflection_methods[2] = {
    {.id = RPC_REFLECTION_V1,
     .is_request_stream = true,
     .on_message = reflection_answer,
     .on_half_close = finish_once,
     .on_closed = finish_once},
    {.id = RPC_REFLECTION_V1ALPHA,
     .is_request_stream = true,
     .on_message = reflection_answer,
     .on_half_close = finish_once,
     .on_closed = finish_once},
};
