/* Options of a table's rows. */
#include "common/agree/options.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/message.h"

enum { WHOLE_MAX = 1000000000 };

/* One field of the message that is settled. */
struct option {
  const struct option_table *table;
  const struct option_rule *rule;
  const ProtobufCFieldDescriptor *field;
  void *value;    /* in the message; of a list, the pointer to its elements */
  void *quantity; /* a list's length, or whether a scalar is there */
};

static const struct range_def {
  const char *text;
  double least, most;
  bool is_least_out, is_most_out;
} ranges[] = {
    [OPTION_FINITE] = {"must be finite", -INFINITY, INFINITY, false, false},
    [OPTION_AT_LEAST_0] = {"must be at least 0 and finite", 0, INFINITY, false, false},
    [OPTION_ABOVE_0] = {"must be above 0 and finite", 0, INFINITY, true, false},
    [OPTION_AT_LEAST_1] = {"must be at least 1 and finite", 1, INFINITY, false, false},
    [OPTION_FROM_0_BELOW_1] = {"must be at least 0 and below 1", 0, 1, false, true},
    [OPTION_FROM_0_TO_1] = {"must be from 0 to 1", 0, 1, false, false},
    [OPTION_ABOVE_0_TO_1] = {"must be above 0 and at most 1", 0, 1, true, false},
    [OPTION_ABOVE_0_BELOW_1] = {"must be above 0 and below 1", 0, 1, true, true},
};

static int option_settle(const struct option *option, struct err *err);

static const struct option_rule *find_rule(const struct option_table *table, const char *name) {
  for (const struct option_rule *rule = table->rules; rule && rule->name; rule++)
    if (strcmp(rule->name, name) == 0)
      return rule;
  return NULL;
}

static bool is_shared(const struct option_table *table, const char *name) {
  for (const char *const *shared = table->shared; shared && *shared; shared++)
    if (strcmp(*shared, name) == 0)
      return true;
  return false;
}

static struct option option_at(const ProtobufCFieldDescriptor *field, void *message) {
  return (struct option){.field = field,
                         .value = (char *)message + field->offset,
                         .quantity = (char *)message + field->quantifier_offset};
}

static bool option_is_given(const struct option *option) {
  if (option->field->label == PROTOBUF_C_LABEL_REPEATED)
    return *(size_t *)option->quantity > 0;
  if (option->field->type == PROTOBUF_C_TYPE_STRING || option->field->type == PROTOBUF_C_TYPE_MESSAGE)
    return *(void **)option->value && *(void **)option->value != option->field->default_value;
  return *(protobuf_c_boolean *)option->quantity;
}

static int option_refuse(const struct option *option, struct err *err) {
  const struct option_table *table = option->table;
  char has[512] = "";
  size_t length = 0;
  for (const struct option_rule *rule = table->rules; rule && rule->name; rule++)
    if (length < sizeof has)
      length += (size_t)snprintf(has + length, sizeof has - length, "%s%s", length ? ", " : "", rule->name);
  return err_set(err, ERR_INVALID, "%s.%s: is not an option of '%s' (%s%s)", table->path, option->field->name,
                 table->row, length ? "it has: " : "it has none", has);
}

int options_settle(void *message, const struct option_table *table, struct err *err) {
  const ProtobufCMessageDescriptor *type = ((ProtobufCMessage *)message)->descriptor;
  unsigned n_found = 0, n_rules = 0;
  for (unsigned i = 0; i < type->n_fields; i++) {
    const ProtobufCFieldDescriptor *field = &type->fields[i];
    struct option option = option_at(field, message);
    if (is_shared(table, field->name))
      continue;
    option.table = table;
    option.rule = find_rule(table, field->name);
    n_found += option.rule != NULL;
    if (!option.rule && option_is_given(&option))
      return option_refuse(&option, err);
    if (option.rule && option_settle(&option, err))
      return err->code;
  }
  for (const struct option_rule *rule = table->rules; rule && rule->name; rule++)
    n_rules++;
  CHECK(n_found == n_rules); /* each rule names a field */
  return 0;
}

static int option_bad(const struct option *option, const char *what, struct err *err) {
  return err_set(err, ERR_INVALID, "%s.%s: %s", option->table->path, option->field->name, what);
}

static int check_number(const struct option *option, double value, struct err *err) {
  const struct range_def *range = &ranges[option->rule->range];
  value = (float)value; /* what is computed with */
  if (!isfinite(value) || value < range->least || value > range->most ||
      (value == range->least && range->is_least_out) || (value == range->most && range->is_most_out))
    return option_bad(option, range->text, err);
  return 0;
}

static int check_whole(const struct option *option, uint64_t value, struct err *err) {
  if (value > WHOLE_MAX)
    return err_set(err, ERR_INVALID, "%s.%s: must be at most %d", option->table->path, option->field->name,
                   WHOLE_MAX);
  return check_number(option, (double)value, err);
}

static int check_word(const struct option *option, const char *value, struct err *err) {
  const char *at = option->rule->words;
  size_t length = strlen(value);
  for (; *at; at += strspn(at, " ")) {
    size_t word = strcspn(at, " ");
    if (word == length && strncmp(at, value, length) == 0)
      return 0;
    at += word;
  }
  return err_set(err, ERR_INVALID, "%s.%s: '%.60s' is not known (known: %s)", option->table->path,
                 option->field->name, value, option->rule->words);
}

static int check_list(const struct option *option, struct err *err) {
  size_t n = *(size_t *)option->quantity, wanted = option->rule->list_length;
  int code = 0;
  if (wanted && n != wanted)
    return err_set(err, ERR_INVALID, "%s.%s: wants %zu numbers, not %zu", option->table->path,
                   option->field->name, wanted, n);
  for (size_t i = 0; !code && i < n; i++)
    switch (option->field->type) {
    case PROTOBUF_C_TYPE_DOUBLE:
      code = check_number(option, (*(double **)option->value)[i], err);
      break;
    case PROTOBUF_C_TYPE_UINT64:
      code = check_whole(option, (*(uint64_t **)option->value)[i], err);
      break;
    case PROTOBUF_C_TYPE_UINT32:
      code = check_whole(option, (*(uint32_t **)option->value)[i], err);
      break;
    default:
      CHECK(!"a list of a type that options do not have");
    }
  return code;
}

static int option_check(const struct option *option, struct err *err) {
  if (option->field->label == PROTOBUF_C_LABEL_REPEATED)
    return check_list(option, err);
  switch (option->field->type) {
  case PROTOBUF_C_TYPE_DOUBLE:
    return check_number(option, *(double *)option->value, err);
  case PROTOBUF_C_TYPE_UINT64:
    return check_whole(option, *(uint64_t *)option->value, err);
  case PROTOBUF_C_TYPE_UINT32:
    return check_whole(option, *(uint32_t *)option->value, err);
  case PROTOBUF_C_TYPE_STRING:
    return option->rule->words ? check_word(option, *(char **)option->value, err) : 0;
  case PROTOBUF_C_TYPE_BOOL:
    return 0;
  default:
    CHECK(!"a type that options do not have");
  }
  return 0;
}

static void option_fill_list(const struct option *option) {
  size_t n = option->rule->list_length;
  double *list = mem_new(n * sizeof *list);
  CHECK(n > 0 && option->field->type == PROTOBUF_C_TYPE_DOUBLE);
  memcpy(list, option->rule->list, n * sizeof *list);
  *(double **)option->value = list;
  *(size_t *)option->quantity = n;
}

static void option_fill(const struct option *option) {
  if (option->field->label == PROTOBUF_C_LABEL_REPEATED) {
    option_fill_list(option);
    return;
  }
  if (option->field->type == PROTOBUF_C_TYPE_STRING) {
    const char *words = option->rule->words;
    CHECK(words);
    *(char **)option->value = mem_printf("%.*s", (int)strcspn(words, " "), words);
    return;
  }
  *(protobuf_c_boolean *)option->quantity = true;
  switch (option->field->type) {
  case PROTOBUF_C_TYPE_DOUBLE:
    *(double *)option->value = option->rule->number;
    break;
  case PROTOBUF_C_TYPE_UINT64:
    *(uint64_t *)option->value = (uint64_t)option->rule->number;
    break;
  case PROTOBUF_C_TYPE_UINT32:
    *(uint32_t *)option->value = (uint32_t)option->rule->number;
    break;
  case PROTOBUF_C_TYPE_BOOL:
    *(protobuf_c_boolean *)option->value = option->rule->number != 0;
    break;
  default:
    CHECK(!"a type that options do not have");
  }
}

static int option_settle(const struct option *option, struct err *err) {
  if (option_is_given(option))
    return option_check(option, err);
  if (option->rule->absence == OPTION_REQUIRED)
    return err_set(err, ERR_INVALID, "%s.%s: '%s' needs it", option->table->path, option->field->name,
                   option->table->row);
  if (option->rule->absence == OPTION_DEFAULT)
    option_fill(option);
  return 0;
}

/* Borrows what a text or list points to. */
static void option_take(const struct option *option, void *message) {
  const ProtobufCFieldDescriptor *field = option->field;
  bool is_list = field->label == PROTOBUF_C_LABEL_REPEATED;
  memcpy((char *)message + field->offset, option->value,
         is_list ? sizeof(void *) : message_value_size(field));
  if (is_list)
    memcpy((char *)message + field->quantifier_offset, option->quantity, sizeof(size_t));
  else if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE)
    memcpy((char *)message + field->quantifier_offset, option->quantity, sizeof(protobuf_c_boolean));
}

void *options_merge(const void *base, const void *over) {
  const ProtobufCMessageDescriptor *type = ((const ProtobufCMessage *)base)->descriptor;
  void *borrowed = mem_new(type->sizeof_message), *merged;
  memcpy(borrowed, base, type->sizeof_message);
  for (unsigned i = 0; i < type->n_fields; i++) {
    struct option option = option_at(&type->fields[i], (void *)over);
    if (option_is_given(&option))
      option_take(&option, borrowed);
  }
  merged = message_copy(borrowed);
  free(borrowed);
  return merged;
}
