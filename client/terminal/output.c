/* What commands print. */
#include "client/terminal/output.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/terminal/message_json.h"
#include "common/base/err.h"
#include "common/base/memory.h"
#include "model/metrics/metric.h"

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
    int width = output_columns(table->cells[i]) - (i < table->n_columns && table->cells[i][0] == '>');
    if (width > widths[column])
      widths[column] = width;
  }
  for (int i = 0, blanks = 0; i < table->n_cells; i++) {
    int column = i % table->n_columns;
    bool is_right = table->cells[column][0] == '>', is_last = column == table->n_columns - 1;
    const char *cell = table->cells[i] + (i < table->n_columns && is_right);
    int fill = widths[column] - output_columns(cell);
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

static void json_print(FILE *file, json_t *json) {
  json_dumpf(json, file, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
  fputc('\n', file);
  json_decref(json);
}

void output_json(FILE *file, const ProtobufCMessage *message) {
  json_print(file, message_json(message));
}

void output_json_list(FILE *file, ProtobufCMessage *const *messages, size_t n) {
  json_t *list = json_array();
  for (size_t i = 0; i < n; i++)
    json_array_append_new(list, message_json(messages[i]));
  json_print(file, list);
}

void output_run_line(FILE *file, Weir__RunInfo *info) {
  char state[OUTPUT_TEXT_MAX];
  output_clean(info->message);
  if (info->state == WEIR__RUN_STATE__HELD)
    fprintf(file, "%s: %s", info->run, output_held(info->step, info->steps, state));
  else
    fprintf(file, "%s: %s at step %" PRIu64, info->run, output_state(info->state, state), info->step);
  fprintf(file, "%s%s\n", info->message[0] ? ": " : "", info->message);
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

const char *output_held(uint64_t step, uint64_t steps, char text[OUTPUT_TEXT_MAX]) {
  snprintf(text, OUTPUT_TEXT_MAX, "held at step %" PRIu64 " of %" PRIu64, step, steps);
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

int output_columns(const char *text) {
  int columns = 0;
  for (; *text; text++) {
    if (text[0] == '\033' && text[1] == '[') {
      while (*text && *text != 'm')
        text++;
      if (!*text)
        break;
    } else if (((unsigned char)*text & 0xc0) != 0x80) {
      columns++;
    }
  }
  return columns;
}
