/* From HTTP to a message, to the coordinator, and back. */
#include "client/ui/call.h"

#include <stdlib.h>
#include <string.h>

#include "client/terminal/message_json.h"
#include "client/ui/request_json.h"
#include "common/base/text.h"
#include "training.pb-c.h"

/* Of a number in an answer: what a chart shows, in fewer bytes than all digits of a double. */
enum { ANSWER_DIGITS = 9 };

/* Of a fork the coordinator looks at the model, and writes to the store. */
enum { READ_DEADLINE_MS = 10000, WRITE_DEADLINE_MS = 60000 };

enum call_kind { READS, WRITES };

struct call_def {
  const char *name;
  enum rpc_method_id method;
  const ProtobufCMessageDescriptor *request;
  enum call_kind kind;
};

static const struct call_def calls[] = {
#define CALL(name, method, request, kind) {#name, RPC_##method, &request##__descriptor, kind},
#include "client/ui/call.def"
#undef CALL
};

static int read_request(const struct call_def *call, const struct http_request *request,
                        ProtobufCMessage **message, struct err *err);
static json_t *query_fields(const struct call_def *call, const struct http_request *request);
static void drop_empty(json_t *json);
static void answer_json(const struct http_request *request, struct http_answer *answer, json_t *json);
static int status_of(enum err_code code);

int call_line_open(struct call_line *line, const char *coordinator, const struct rpc_security *security,
                   struct err *err) {
  pthread_mutex_init(&line->lock, NULL);
  return connection_open(&line->connection, coordinator, security, err);
}

void call_line_close(struct call_line *line) {
  connection_close(&line->connection);
}

const struct call_def *call_find(const char *name) {
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    if (strcmp(calls[i].name, name) == 0)
      return &calls[i];
  return NULL;
}

bool call_is_write(const struct call_def *call) {
  return call->kind == WRITES;
}

void call_answer(struct call_line *line, const struct call_def *call, const struct http_request *request,
                 struct http_answer *answer) {
  ProtobufCMessage *message = NULL, *reply = NULL;
  struct err err = ERR_NONE;
  json_t *json;
  if (read_request(call, request, &message, &err) == 0) {
    struct rpc_question question = {call->method, message,
                                    call->kind == WRITES ? WRITE_DEADLINE_MS : READ_DEADLINE_MS};
    pthread_mutex_lock(&line->lock);
    connection_ask(&line->connection, &question, (void **)&reply, &err);
    pthread_mutex_unlock(&line->lock);
  }
  if (err.code) {
    char *text = text_copy_clean(err.text, sizeof err.text);
    answer->status = status_of(err.code);
    json = json_pack("{s:s}", "error", text);
    free(text);
  } else {
    json = message_json(reply);
    drop_empty(json);
    protobuf_c_message_free_unpacked(reply, NULL);
  }
  answer_json(request, answer, json);
}

static int read_request(const struct call_def *call, const struct http_request *request,
                        ProtobufCMessage **message, struct err *err) {
  json_error_t where;
  json_t *fields = call->kind == WRITES
                       ? json_loadb(request->body, request->body_bytes, JSON_REJECT_DUPLICATES, &where)
                       : query_fields(call, request);
  if (!fields)
    return err_set(err, ERR_INVALID, "the body is no JSON: line %d: %s", where.line, where.text);
  request_from_json(call->request, fields, request->arena, message, err);
  json_decref(fields);
  return err->code;
}

/* Those of the message's fields that the query has; a list has one element there. */
static json_t *query_fields(const struct call_def *call, const struct http_request *request) {
  json_t *fields = json_object();
  for (unsigned i = 0; i < call->request->n_fields; i++) {
    const ProtobufCFieldDescriptor *field = &call->request->fields[i];
    const char *text = http_query(request, field->name);
    json_t *value = text ? json_string(text) : NULL;
    if (text && !value) /* not UTF-8, which no field is */
      value = json_null();
    if (value && field->label == PROTOBUF_C_LABEL_REPEATED)
      value = json_pack("[o]", value);
    if (value)
      json_object_set_new(fields, field->name, value);
  }
  return fields;
}

static bool is_empty(const json_t *value) {
  return json_is_false(value) || (json_is_integer(value) && json_integer_value(value) == 0) ||
         (json_is_string(value) && json_string_length(value) == 0) ||
         (json_is_array(value) && json_array_size(value) == 0);
}

/* In a spec 0 and false are not what is not given. */
static bool is_spec(const char *name) {
  return strcmp(name, "spec") == 0 || strcmp(name, "run_spec") == 0;
}

/* A number that is not known is null, and stays. */
static void drop_empty(json_t *json) {
  const char *name;
  json_t *value;
  void *next;
  size_t i;
  json_array_foreach(json, i, value) {
    drop_empty(value);
  }
  json_object_foreach_safe(json, next, name, value) {
    if (!is_spec(name))
      drop_empty(value);
    if (is_empty(value))
      json_object_del(json, name);
  }
}

/* Takes the reference to json. */
static void answer_json(const struct http_request *request, struct http_answer *answer, json_t *json) {
  char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(ANSWER_DIGITS));
  answer->type = "application/json";
  answer->body = text ? arena_strdup(request->arena, text) : "{}";
  answer->body_bytes = strlen(answer->body);
  free(text);
  json_decref(json);
}

static int status_of(enum err_code code) {
  switch (code) {
  case ERR_INVALID:
    return 400;
  case ERR_DENIED:
    return 403;
  case ERR_NOT_FOUND:
    return 404;
  case ERR_UNAVAILABLE:
  case ERR_TIMEOUT:
    return 503;
  case ERR_INTERNAL:
  case ERR_IO:
    return 502;
  default:
    return 409;
  }
}
