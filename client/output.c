/* What commands print. */
#include "client/output.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/memory.h"
#include "common/metrics/metric.h"

static json_t *json_message(const ProtobufCMessage *message);
static json_t *json_metrics(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
static json_t *json_field(const ProtobufCFieldDescriptor *field, const void *value);
static void json_print(FILE *file, json_t *json);

void table_init(struct table *table, const char *const *headings) {
  *table = (struct table){0};
  while (headings[table->n_columns])
    table->n_columns++;
  CHECK(table->n_columns <= TABLE_COLUMNS_MAX);
  table_row(table, headings);
}

void table_row(struct table *table, const char *const *cells) {
  for (int i = 0; i < table->n_columns; i++) {
    array_reserve((void **)&table->cells, &table->capacity, table->n_cells, sizeof *table->cells);
    table->cells[table->n_cells++] = mem_strdup(cells[i]);
  }
}

void table_print(const struct table *table, FILE *file) {
  int widths[TABLE_COLUMNS_MAX] = {0};
  for (int i = 0; i < table->n_cells; i++) {
    int column = i % table->n_columns;
    int width = (int)strlen(table->cells[i]) - (i < table->n_columns && table->cells[i][0] == '>');
    if (width > widths[column])
      widths[column] = width;
  }
  for (int i = 0, blanks = 0; i < table->n_cells; i++) {
    int column = i % table->n_columns;
    bool is_right = table->cells[column][0] == '>', is_last = column == table->n_columns - 1;
    const char *cell = table->cells[i] + (i < table->n_columns && is_right);
    int fill = widths[column] - (int)strlen(cell);
    if (cell[0] == '\0') { /* blanks are owed until something follows them: no line ends in any */
      blanks += fill + 2;
    } else {
      fprintf(file, "%*s%s", blanks + (is_right ? fill : 0), "", cell);
      blanks = (is_right ? 0 : fill) + 2;
    }
    if (is_last) {
      fputc('\n', file);
      blanks = 0;
    }
  }
}

void table_fini(struct table *table) {
  for (int i = 0; i < table->n_cells; i++)
    free(table->cells[i]);
  free(table->cells);
  *table = (struct table){0};
}

void output_json(FILE *file, const ProtobufCMessage *message) {
  json_print(file, json_message(message));
}

void output_json_list(FILE *file, ProtobufCMessage *const *messages, size_t n) {
  json_t *list = json_array();
  for (size_t i = 0; i < n; i++)
    json_array_append_new(list, json_message(messages[i]));
  json_print(file, list);
}

static void json_print(FILE *file, json_t *json) {
  json_dumpf(json, file, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
  fputc('\n', file);
  json_decref(json);
}

static json_t *json_message(const ProtobufCMessage *message) {
  const ProtobufCMessageDescriptor *type = message->descriptor;
  json_t *object = json_object();
  for (unsigned i = 0; i < type->n_fields; i++) {
    const ProtobufCFieldDescriptor *field = &type->fields[i];
    const void *value = (const char *)message + field->offset;
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
      json_object_set_new(object, field->name, json_metrics(message, field));
    else if (field->type != PROTOBUF_C_TYPE_MESSAGE)
      json_object_set_new(object, field->name, json_field(field, value));
  }
  return object;
}

/* By their names: nothing else is repeated in what is shown. */
static json_t *json_metrics(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field) {
  size_t n = *(const size_t *)((const char *)message + field->quantifier_offset);
  Weir__MetricValue *const *metrics =
      *(Weir__MetricValue *const *const *)((const char *)message + field->offset);
  json_t *object = json_object();
  CHECK(field->descriptor == &weir__metric_value__descriptor);
  for (size_t m = 0; m < n; m++)
    json_object_set_new(object, metrics[m]->name,
                        isfinite(metrics[m]->value) ? json_real(metrics[m]->value) : json_null());
  return object;
}

static json_t *json_field(const ProtobufCFieldDescriptor *field, const void *value) {
  switch (field->type) {
  case PROTOBUF_C_TYPE_UINT64:
    return json_integer((json_int_t) * (const uint64_t *)value);
  case PROTOBUF_C_TYPE_INT64:
    return json_integer(*(const int64_t *)value);
  case PROTOBUF_C_TYPE_UINT32:
    return json_integer(*(const uint32_t *)value);
  case PROTOBUF_C_TYPE_BOOL:
    return json_boolean(*(const protobuf_c_boolean *)value);
  case PROTOBUF_C_TYPE_DOUBLE:
    return isfinite(*(const double *)value) ? json_real(*(const double *)value) : json_null();
  case PROTOBUF_C_TYPE_STRING: {
    json_t *text = json_string(*(const char *const *)value);
    return text ? text : json_null(); /* not UTF-8 */
  }
  case PROTOBUF_C_TYPE_ENUM: {
    const ProtobufCEnumValue *name =
        protobuf_c_enum_descriptor_get_value(field->descriptor, *(const int *)value);
    char lower[64] = "unknown";
    for (size_t i = 0; name && i < sizeof lower && (i == 0 || lower[i - 1]); i++)
      lower[i] = (char)tolower((unsigned char)name->name[i]);
    return json_string(lower);
  }
  default:
    CHECK(!"a field type that the client's messages do not have");
  }
}

void output_run_line(FILE *file, Weir__RunInfo *info) {
  char state[OUTPUT_TEXT_MAX];
  output_clean(info->message);
  fprintf(file, "%s: %s at step %" PRIu64 "%s%s\n", info->run, output_state(info->state, state), info->step,
          info->message[0] ? ": " : "", info->message);
  fflush(file);
}

const char *output_count(double value, char text[OUTPUT_TEXT_MAX]) {
  char digits[32];
  size_t length, out = 0;
  if (!isfinite(value) || fabs(value) >= 1e18)
    return strcpy(text, "-");
  length = (size_t)snprintf(digits, sizeof digits, "%.0f", value);
  for (size_t i = 0; i < length; i++) {
    text[out++] = digits[i];
    if ((length - 1 - i) % 3 == 0 && i + 1 < length && isdigit((unsigned char)digits[i]))
      text[out++] = ',';
  }
  text[out] = '\0';
  return text;
}

const char *output_bytes(uint64_t bytes, char text[OUTPUT_TEXT_MAX]) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = (double)bytes;
  int unit = 0;
  for (; value >= 1024 && unit < 4; unit++)
    value /= 1024;
  snprintf(text, OUTPUT_TEXT_MAX, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

const char *output_duration(double seconds, char text[OUTPUT_TEXT_MAX]) {
  uint64_t whole;
  if (!isfinite(seconds) || seconds < 0 || seconds >= 1e10)
    return strcpy(text, "-");
  whole = (uint64_t)(seconds + 0.5);
  if (whole < 3600)
    snprintf(text, OUTPUT_TEXT_MAX, "%" PRIu64 ":%02" PRIu64, whole / 60, whole % 60);
  else
    snprintf(text, OUTPUT_TEXT_MAX, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, whole / 3600, whole / 60 % 60,
             whole % 60);
  return text;
}

const char *output_age(int64_t ms, char text[OUTPUT_TEXT_MAX]) {
  int64_t seconds = ms > 0 ? ms / 1000 : 0;
  if (seconds < 60)
    snprintf(text, OUTPUT_TEXT_MAX, "%" PRId64 " s", seconds);
  else if (seconds < 2 * 86400)
    output_duration((double)seconds, text);
  else
    snprintf(text, OUTPUT_TEXT_MAX, "%" PRId64 " days", seconds / 86400);
  return text;
}

const char *output_loss(double loss, char text[OUTPUT_TEXT_MAX]) {
  if (isnan(loss))
    return strcpy(text, "-");
  snprintf(text, OUTPUT_TEXT_MAX, fabs(loss) >= 1000 ? "%.4g" : "%.4f", loss);
  return text;
}

const char *output_percent(double fraction, char text[OUTPUT_TEXT_MAX]) {
  if (isnan(fraction))
    return strcpy(text, "-");
  snprintf(text, OUTPUT_TEXT_MAX, "%.2f %%", fraction * 100);
  return text;
}

bool output_metric(const Weir__MetricValue *metric, char text[OUTPUT_TEXT_MAX]) {
  const struct metric_def *def = metric_find(metric->name);
  if (def && def->is_fraction)
    output_percent(metric->value, text);
  else
    output_loss(metric->value, text);
  return def != NULL;
}

const char *output_state(Weir__RunState state, char text[OUTPUT_TEXT_MAX]) {
  const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(&weir__run_state__descriptor, state);
  snprintf(text, OUTPUT_TEXT_MAX, "%s", value ? value->name : "unknown");
  for (char *c = text; *c; c++)
    *c = (char)tolower((unsigned char)*c);
  return text;
}

void output_lost(FILE *file, const char *prefix, const struct graph *graph) {
  if (graph->n_lost)
    fprintf(file,
            "%sparameters of the PyTorch module that are not in the file: %s. It does not use them, or its "
            "exporter tied, merged or folded them; with optimize=False only those that the module ties.\n",
            prefix, graph->lost);
}

void output_clean(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < ' ' || *text == 127)
      *text = ' ';
}
