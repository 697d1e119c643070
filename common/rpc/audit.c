/* Who changed what. */
#include "common/rpc/callers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

static bool is_audited(enum rpc_callers callers) {
  return callers == CALLERS_SUBMITTERS || callers == CALLERS_OPERATORS;
}

/* The text as it may stand between quotes of a log's line. */
static void write_escaped(FILE *out, const char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < ' ' || *text == 0x7f)
      fprintf(out, "\\x%02x", (unsigned char)*text);
    else
      fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
}

static bool is_subject(const ProtobufCFieldDescriptor *field) {
  static const char *const names[] = {"run", "runs", "sweep", "worker", "server"};
  if (field->type != PROTOBUF_C_TYPE_STRING || (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
    return false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(field->name, names[i]) == 0)
      return true;
  return false;
}

static void write_names(FILE *out, const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field) {
  const char *value = (const char *)message + field->offset;
  bool is_list = field->label == PROTOBUF_C_LABEL_REPEATED;
  size_t n = is_list ? *(const size_t *)((const char *)message + field->quantifier_offset) : 1;
  char *const *texts = is_list ? *(char *const *const *)value : (char *const *)value;
  for (size_t i = 0; i < n; i++)
    if (texts[i] && *texts[i]) {
      if (ftell(out) > 0)
        fputc(',', out);
      write_escaped(out, texts[i]);
    }
}

static char *names_of(const ProtobufCMessage *message) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (!out)
    return NULL;
  for (unsigned f = 0; f < message->descriptor->n_fields; f++)
    if (is_subject(&message->descriptor->fields[f]))
      write_names(out, message, &message->descriptor->fields[f]);
  fclose(out);
  return text;
}

void rpc_audit_request(struct rpc_audit *audit, enum rpc_callers callers, const ProtobufCMessage *message) {
  if (is_audited(callers) && !audit->of)
    audit->of = names_of(message);
}

void rpc_audit_reply(struct rpc_audit *audit, enum rpc_callers callers, const ProtobufCMessage *message) {
  if (is_audited(callers) && !audit->reply)
    audit->reply = names_of(message);
}

void rpc_audit_log(const struct rpc_audit *audit, const char *method, const char *peer,
                   const struct cert_holder *holder, const struct err *err) {
  char who[CERT_TEXT_SIZE] = "-";
  bool has_reply = audit->reply && strcmp(audit->of, audit->reply) != 0;
  if (holder)
    cert_holder_uri(holder, who);
  log_event(LOG_INFO, "audit", err && err->code ? "refused" : "done",
            "who=%s method=%s of=\"%s\" reply=\"%s\" peer=%s code=%s", who, method, audit->of,
            has_reply ? audit->reply : "", peer, err_name(err ? err->code : ERR_OK));
}

void rpc_audit_fini(struct rpc_audit *audit) {
  free(audit->of);
  free(audit->reply);
}
