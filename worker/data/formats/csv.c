/* csv: columns of numbers, each of one or more fields of every record. Where all numbers of a column are
   whole it is i64, else f32, rounded as numpy rounds text: to f64 first. */
#include "worker/data/format.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/csv/csv_reader.h"

enum { ROWS_FIRST = 1024 };

/* A column as it grows. */
struct csv_column {
  const char *name;
  int *fields; /* [n] which of a record, in this order */
  int n;
  bool *has_field; /* [n_fields] */
  bool is_float;   /* memory holds f32, else i64 */
  void *memory;
  uint64_t used, capacity; /* elements */
};

struct csv {
  const char *key; /* the source's */
  char path[PATH_MAX];
  struct csv_reader reader;
  bool has_header;
  struct csv_field *names; /* [n_fields], where there is a header */
  bool *is_wanted;         /* [n_fields] */
  struct csv_number *row;  /* [n_fields] */
  int n_fields;
  struct csv_column columns[COLUMNS_MAX];
  int n_columns;
};

/* The first record says how many fields each has, and what they are called. */
static int read_header(struct csv *csv, struct err *err) {
  struct csv_field field = {.is_last = false};
  struct csv_reader before;
  if (!csv_has_record(&csv->reader))
    return err_set(err, ERR_INVALID, "%s: has no record", csv->path);
  before = csv->reader;
  while (!field.is_last) {
    if (csv->n_fields == CSV_FIELDS_MAX)
      return err_set(err, ERR_UNSUPPORTED, "%s: has more than %d fields in a record", csv->path,
                     CSV_FIELDS_MAX);
    if (!csv_read_field(&csv->reader, &field, err))
      return err->code;
    if ((csv->n_fields & (csv->n_fields - 1)) == 0)
      csv->names = mem_resize(csv->names, 2 * (size_t)(csv->n_fields + 1) * sizeof field);
    csv->names[csv->n_fields++] = field;
  }
  if (!csv->has_header)
    csv->reader = before;
  csv->is_wanted = mem_new((size_t)csv->n_fields * sizeof *csv->is_wanted);
  csv->row = mem_new((size_t)csv->n_fields * sizeof *csv->row);
  return 0;
}

/* The first field of that name from `from` on; -1 if there is none. */
static int find_name(const struct csv *csv, int from, const char *name, size_t length) {
  for (int f = from; f < csv->n_fields; f++)
    if (csv->names[f].length == length && memcmp(csv->names[f].text, name, length) == 0)
      return f;
  return -1;
}

/* The field of that name, or without a header of that number; -1 if there is none, or more than one. */
static int find_field(const struct csv *csv, const char *name, size_t length) {
  long number = 0;
  if (csv->has_header) {
    int found = find_name(csv, 0, name, length);
    return found >= 0 && find_name(csv, found + 1, name, length) >= 0 ? -1 : found;
  }
  if (length == 0 || length > 6)
    return -1;
  for (size_t i = 0; i < length; i++) {
    if (name[i] < '0' || name[i] > '9')
      return -1;
    number = number * 10 + (name[i] - '0');
  }
  return number >= 1 && number <= csv->n_fields ? (int)number - 1 : -1;
}

static int fail_field(const struct csv *csv, const char *name, size_t length, struct err *err) {
  if (!csv->has_header)
    return err_set(err, ERR_INVALID, "%s: has no field '%.*s'; it has 1 to %d", csv->path, (int)length, name,
                   csv->n_fields);
  if (find_name(csv, 0, name, length) >= 0)
    return err_set(err, ERR_INVALID, "%s: has more than one field '%.*s'", csv->path,
                   length > 100 ? 100 : (int)length, name);
  return err_set(err, ERR_INVALID, "%s: none of the %d fields of its header is '%.*s'", csv->path,
                 csv->n_fields, length > 100 ? 100 : (int)length, name);
}

static int add_fields(struct csv *csv, struct csv_column *column, int first, int last, struct err *err) {
  for (int f = first; f <= last; f++) {
    if (column->has_field[f])
      return err_set(err, ERR_INVALID, "%s.columns.%s: has field %d twice", csv->key, column->name, f + 1);
    column->fields[column->n++] = f;
    column->has_field[f] = csv->is_wanted[f] = true;
  }
  return 0;
}

/* "x1", or "x1:x9", which is all from the one to the other as they lie in the file. */
static int add_entry(struct csv *csv, struct csv_column *column, const char *text, size_t length,
                     struct err *err) {
  int first = find_field(csv, text, length), last;
  const char *colon = memchr(text, ':', length);
  size_t first_length;
  if (first >= 0)
    return add_fields(csv, column, first, first, err);
  if (!colon)
    return fail_field(csv, text, length, err);
  first_length = (size_t)(colon - text);
  first = find_field(csv, text, first_length);
  if (first < 0)
    return fail_field(csv, text, first_length, err);
  last = find_field(csv, colon + 1, length - first_length - 1);
  if (last < 0)
    return fail_field(csv, colon + 1, length - first_length - 1, err);
  if (last < first)
    return err_set(err, ERR_INVALID, "%s.columns.%s: '%.*s' goes backwards", csv->key, column->name,
                   (int)length, text);
  return add_fields(csv, column, first, last, err);
}

/* list: what the spec says of the column: "x1, x2, x5:x9". */
static int resolve_fields(struct csv *csv, struct csv_column *column, const char *list, struct err *err) {
  column->fields = mem_new((size_t)csv->n_fields * sizeof *column->fields);
  column->has_field = mem_new((size_t)csv->n_fields * sizeof *column->has_field);
  for (;;) {
    size_t length;
    list += strspn(list, " \t");
    length = strcspn(list, ",");
    while (length > 0 && (list[length - 1] == ' ' || list[length - 1] == '\t'))
      length--;
    if (add_entry(csv, column, list, length, err))
      return err->code;
    list += length;
    list += strspn(list, " \t");
    if (!*list)
      return 0;
    list++;
  }
}

static void become_float(struct csv_column *column) {
  const int64_t *wide = column->memory;
  float *narrow = column->memory; /* the same place: each element lies at or before where it was */
  for (uint64_t i = 0; i < column->used; i++)
    narrow[i] = (float)(double)wide[i];
  column->is_float = true;
}

static int add_row(const struct csv *csv, struct csv_column *column, struct err *err) {
  if (column->used + (uint64_t)column->n > column->capacity) {
    uint64_t capacity = column->capacity ? column->capacity * 2 : (uint64_t)column->n * ROWS_FIRST;
    if (format_resize(csv->path, column->capacity * sizeof(int64_t), capacity * sizeof(int64_t),
                      &column->memory, err))
      return err->code;
    column->capacity = capacity;
  }
  for (int i = 0; i < column->n && !column->is_float; i++)
    if (!csv->row[column->fields[i]].is_whole)
      become_float(column);
  for (int i = 0; i < column->n; i++)
    if (column->is_float)
      ((float *)column->memory)[column->used++] = (float)csv->row[column->fields[i]].value;
    else
      ((int64_t *)column->memory)[column->used++] = csv->row[column->fields[i]].whole;
  return 0;
}

static int fail_number(const struct csv *csv, const struct csv_field *field, int f, struct err *err) {
  return err_set(err, ERR_INVALID, "%s:%llu:%llu: field %d %s", csv->path, (unsigned long long)field->line,
                 (unsigned long long)field->column, f + 1,
                 field->length == 0 ? "is empty" : "is not a number that f32 holds");
}

static int read_record(struct csv *csv, struct err *err) {
  struct csv_field field = {.is_last = false};
  for (int f = 0; f < csv->n_fields; f++) {
    if (field.is_last)
      return err_set(err, ERR_INVALID, "%s:%llu: has %d fields, where the first record has %d", csv->path,
                     (unsigned long long)field.line, f, csv->n_fields);
    if (!csv_read_field(&csv->reader, &field, err))
      return err->code;
    if (csv->is_wanted[f] && (!csv_read_number(&field, &csv->row[f]) || !isfinite((float)csv->row[f].value)))
      return fail_number(csv, &field, f, err);
  }
  if (!field.is_last)
    return err_set(err, ERR_INVALID, "%s:%llu: has more than the %d fields of the first record", csv->path,
                   (unsigned long long)field.line, csv->n_fields);
  for (int c = 0; c < csv->n_columns; c++)
    if (add_row(csv, &csv->columns[c], err))
      return err->code;
  return 0;
}

static int read_all(struct csv *csv, const Weir__DataSource *spec, struct err *err) {
  uint64_t rows = 0;
  if (read_header(csv, err))
    return err->code;
  for (size_t c = 0; c < spec->n_columns; c++) {
    struct csv_column *column = &csv->columns[csv->n_columns++];
    column->name = spec->columns[c]->key;
    if (resolve_fields(csv, column, spec->columns[c]->value, err))
      return err->code;
  }
  for (; csv_has_record(&csv->reader); rows++)
    if (read_record(csv, err))
      return err->code;
  return rows ? 0 : err_set(err, ERR_INVALID, "%s: has no record but its header", csv->path);
}

/* Hands the memory over. */
static void finish_column(struct csv_column *from, struct column *to) {
  size_t bytes = (size_t)from->used * (from->is_float ? sizeof(float) : sizeof(int64_t));
  void *memory = realloc(from->memory, bytes);
  if (memory)
    from->memory = memory;
  *to = (struct column){.name = from->name,
                        .dtype = from->is_float ? DTYPE_F32 : DTYPE_I64,
                        .sample = {from->n > 1, {from->n}},
                        .samples = from->used / (uint64_t)from->n,
                        .memory = from->memory};
  to->data = to->memory;
  from->memory = NULL;
}

static int read_delimiter(const struct format_source *source, char *out, struct err *err) {
  const Weir__DataSource *spec = source->spec;
  *out = spec->delimiter ? spec->delimiter[0] : ',';
  if (!spec->delimiter || (strlen(spec->delimiter) == 1 && !strchr("\"\r\n.+-eE0123456789", *out)))
    return 0;
  return err_set(err, ERR_INVALID, "%s.delimiter: '%.20s' is not one character that numbers have not",
                 source->key, spec->delimiter);
}

static int csv_open(const struct format_source *source, struct column *columns, int *n, struct err *err) {
  struct csv *csv = mem_new(sizeof *csv);
  struct mapping *mapping = NULL;
  char delimiter;
  csv->key = source->key;
  csv->has_header = source->spec->header;
  if (read_delimiter(source, &delimiter, err) ||
      format_map(source, source->spec->file, csv->path, &mapping, err))
    goto out;
  csv_begin(&csv->reader, csv->path, mapping_data(mapping), mapping_size(mapping), delimiter);
  if (read_all(csv, source->spec, err) || mapping_check(mapping, err))
    goto out;
  for (; *n < csv->n_columns; (*n)++)
    finish_column(&csv->columns[*n], &columns[*n]);
out:
  for (int c = 0; c < csv->n_columns; c++) {
    free(csv->columns[c].fields);
    free(csv->columns[c].has_field);
    free(csv->columns[c].memory);
  }
  free(csv->names);
  free(csv->is_wanted);
  free(csv->row);
  free(csv);
  mapping_close(mapping);
  return err->code;
}

const struct format_def format_csv = {
    .name = "csv",
    .required = (const char *const[]){"file", "columns", NULL},
    .optional = (const char *const[]){"header", "delimiter", NULL},
    .open = csv_open,
};
