/* Choosing fields of CSV files. */
#include "client/drafts/csv_columns.h"

#include <stdlib.h>
#include <string.h>

#include "common/specs/yaml_text.h"
#include "common/base/memory.h"
#include "common/base/text.h"

static void doubt_names(struct csv_columns *columns);

/* pandas' to_csv writes its index as a first field without a name. */
static bool begins_with_index(const struct csv_header *header, int64_t n_features) {
  return header->has_names && header->n_fields == n_features + 2 && header->fields[0].length == 0;
}

void csv_columns_choose(const char *path, int64_t n_features, struct csv_columns *out) {
  const struct csv_header *header = &out->header;
  int64_t n;
  *out = (struct csv_columns){0};
  csv_header_read(path, &out->header);
  n = header->has_names ? header->n_fields : n_features < CSV_FIELDS_MAX ? n_features + 1 : CSV_FIELDS_MAX;
  out->label = header->has_names ? csv_header_label(header) : (int)n - 1;
  out->features = mem_new((size_t)n * sizeof *out->features);
  for (int f = begins_with_index(header, n_features); f < n; f++)
    if (f != out->label)
      out->features[out->n_features++] = f;
  if (begins_with_index(header, n_features))
    out->note = mem_printf("field 1 has no name, as pandas writes its index, and is left out");
  if (header->n_fields == 0 && header->text)
    out->doubt = mem_printf("it has no first line that can be read");
  else if (header->n_fields && (out->n_features != n_features || header->n_fields < n))
    out->doubt = mem_printf("it has %d fields, which should be the %lld features and a label",
                            header->n_fields, (long long)n_features);
  else
    doubt_names(out);
}

static void doubt_names(struct csv_columns *columns) {
  int unnamed = 0;
  char *features = csv_header_columns(&columns->header, columns->features, columns->n_features, &unnamed);
  char *label = features ? csv_header_columns(&columns->header, &columns->label, 1, &unnamed) : NULL;
  if (!label)
    columns->doubt = csv_header_complaint(&columns->header, unnamed);
  free(features);
  free(label);
}

/* The field of `header` that has the name of `name`; -1 behind a doubt. */
static int find_field(struct csv_columns *columns, const struct csv_field *name) {
  int field = -1, found = csv_header_find(&columns->header, name->text, name->length, &field);
  char *whole, *shown;
  if (found == 1)
    return field;
  whole = mem_printf("%.*s", (int)name->length, name->text);
  shown = text_copy_clean(whole, strlen(whole));
  columns->doubt = mem_printf(found ? "it has more than one field '%s'" : "it has no field '%s'", shown);
  free(whole);
  free(shown);
  return -1;
}

static void find_fields(const struct csv_columns *train, struct csv_columns *columns) {
  const struct csv_field *names = train->header.fields;
  columns->label = find_field(columns, &names[train->label]);
  for (int i = 0; i < train->n_features && !columns->doubt; i++) {
    int field = find_field(columns, &names[train->features[i]]);
    if (field >= 0)
      columns->features[columns->n_features++] = field;
  }
  if (!columns->doubt)
    doubt_names(columns);
}

void csv_columns_match(const char *path, const struct csv_columns *train, struct csv_columns *out) {
  const struct csv_header *header = &out->header;
  size_t size = (size_t)train->n_features * sizeof *out->features;
  *out = (struct csv_columns){0};
  csv_header_read(path, &out->header);
  out->features = mem_new(size);
  if (header->n_fields == 0)
    out->doubt = mem_printf("it has no first line that can be read");
  else if (header->has_names != train->header.has_names)
    out->doubt = mem_printf("of it and the training data only one has a header");
  else if (header->has_names)
    find_fields(train, out);
  else if (header->n_fields != train->header.n_fields)
    out->doubt = mem_printf("it has %d fields, and the training data has %d", header->n_fields,
                            train->header.n_fields);
  else {
    memcpy(out->features, train->features, size);
    out->n_features = train->n_features;
    out->label = train->label;
  }
}

void csv_columns_fini(struct csv_columns *columns) {
  csv_header_fini(&columns->header);
  free(columns->features);
  free(columns->doubt);
  free(columns->note);
  *columns = (struct csv_columns){0};
}

/* Quoted; what cannot be named is to be filled in. */
static char *fields_text(const struct csv_header *header, const int *fields, int n) {
  int unnamed;
  char *text = n ? csv_header_columns(header, fields, n, &unnamed) : NULL;
  char *quoted = yaml_in_quotes(text ? text : "FILL IN");
  free(text);
  return quoted;
}

void csv_columns_write(FILE *out, const struct csv_columns *columns, const char *input) {
  const struct csv_header *header = &columns->header;
  char *features = fields_text(header, columns->features, columns->n_features);
  char *label = fields_text(header, &columns->label, columns->label >= 0);
  if (header->delimiter != ',')
    fprintf(out, header->delimiter == '\t' ? "delimiter: \"\\t\", " : "delimiter: \"%c\", ",
            header->delimiter);
  if (!header->has_names)
    fprintf(out, "header: false, ");
  fprintf(out, "columns: {%s: %s, labels: %s}", input, features, label);
  free(features);
  free(label);
}
