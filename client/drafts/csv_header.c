/* Reading a CSV file's names of fields. */
#include "client/drafts/csv_header.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/memory.h"
#include "common/base/text.h"

enum { HEAD_MAX_BYTES = 1 << 24, SHOWN_MAX_BYTES = 60 };

static struct csv_field *first_record(const char *text, size_t size, char delimiter, int *n);
static bool are_numbers(const struct csv_field *fields, int n);
static void sort_names(struct csv_header *header);

void csv_header_read(const char *path, struct csv_header *out) {
  static const char delimiters[] = ",;\t|";
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is not waited for */
  FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
  size_t size;
  *out = (struct csv_header){.delimiter = ','};
  if (!file)
    return;
  out->text = mem_new(HEAD_MAX_BYTES);
  size = fread(out->text, 1, HEAD_MAX_BYTES, file);
  fclose(file);
  for (const char *delimiter = delimiters; *delimiter; delimiter++) {
    int n;
    struct csv_field *fields = first_record(out->text, size, *delimiter, &n);
    if (n > out->n_fields) {
      free(out->fields);
      out->fields = fields;
      out->n_fields = n;
      out->delimiter = *delimiter;
    } else
      free(fields);
  }
  out->has_names = !are_numbers(out->fields, out->n_fields);
  sort_names(out);
}

void csv_header_fini(struct csv_header *header) {
  free(header->text);
  free(header->fields);
  free(header->by_name);
  *header = (struct csv_header){0};
}

/* *n is 0 where there is none, or where it goes on behind the text. */
static struct csv_field *first_record(const char *text, size_t size, char delimiter, int *n) {
  struct csv_field *fields = NULL;
  struct csv_reader reader;
  struct err unused = ERR_NONE;
  int capacity = 0;
  *n = 0;
  csv_begin(&reader, "", text, size, delimiter);
  if (!csv_has_record(&reader))
    return NULL;
  do {
    array_reserve((void **)&fields, &capacity, *n, sizeof *fields);
    if (*n == CSV_FIELDS_MAX || !csv_read_field(&reader, &fields[*n], &unused)) {
      *n = 0;
      break;
    }
  } while (!fields[(*n)++].is_last);
  if (size == HEAD_MAX_BYTES && reader.at == reader.end)
    *n = 0;
  return fields;
}

static bool are_numbers(const struct csv_field *fields, int n) {
  struct csv_number number;
  for (int f = 0; f < n; f++)
    if (!csv_read_number(&fields[f], &number))
      return false;
  return true;
}

static int compare_name(const struct csv_field *field, const char *name, size_t length) {
  if (field->length != length)
    return field->length < length ? -1 : 1;
  return memcmp(field->text, name, length);
}

static int compare_fields(const void *a, const void *b, void *fields) {
  const int *left = a, *right = b;
  const struct csv_field *other = (const struct csv_field *)fields + *right;
  int order = compare_name((const struct csv_field *)fields + *left, other->text, other->length);
  return order ? order : *left - *right;
}

static void sort_names(struct csv_header *header) {
  header->by_name = mem_new((size_t)header->n_fields * sizeof *header->by_name + 1);
  for (int f = 0; f < header->n_fields; f++)
    header->by_name[f] = f;
  qsort_r(header->by_name, (size_t)header->n_fields, sizeof *header->by_name, compare_fields, header->fields);
}

int csv_header_find(const struct csv_header *header, const char *name, size_t length, int *first) {
  int low = 0, high = header->n_fields, found = 0;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (compare_name(&header->fields[header->by_name[middle]], name, length) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  while (found < 2 && low + found < header->n_fields &&
         compare_name(&header->fields[header->by_name[low + found]], name, length) == 0)
    found++;
  if (found)
    *first = header->by_name[low];
  return found;
}

int csv_header_label(const struct csv_header *header) {
  static const char *const names[] = {"label", "labels", "target", "class", "y", NULL};
  for (int i = 0; names[i]; i++)
    for (int f = 0; f < header->n_fields; f++)
      if (header->fields[f].length == strlen(names[i]) &&
          strncasecmp(header->fields[f].text, names[i], strlen(names[i])) == 0)
        return f;
  return header->n_fields - 1;
}

static bool is_clean(const struct csv_field *name) {
  char *copy = mem_printf("%.*s", (int)name->length, name->text);
  bool is_whole = strlen(copy) == name->length && text_is_clean(copy);
  free(copy);
  return is_whole;
}

static bool is_single(const struct csv_header *header, const struct csv_field *name) {
  int first;
  return csv_header_find(header, name->text, name->length, &first) == 1;
}

/* A list is cut at its commas, and the blanks around its entries are none of theirs. */
static bool can_be_named(const struct csv_header *header, int field) {
  const struct csv_field *name;
  if (!header->has_names)
    return true;
  name = &header->fields[field];
  return name->length > 0 && is_clean(name) && !memchr(name->text, ',', name->length) && *name->text != ' ' &&
         name->text[name->length - 1] != ' ' && is_single(header, name);
}

static char *name_of(const struct csv_header *header, int field) {
  return header->has_names ? mem_printf("%.*s", (int)header->fields[field].length, header->fields[field].text)
                           : mem_printf("%d", field + 1);
}

/* A range ends at its first colon. */
static bool can_begin_range(const struct csv_header *header, int field) {
  const struct csv_field *name = &header->fields[field];
  return !header->has_names || !memchr(name->text, ':', name->length);
}

/* A text that is a field's name is no range. NULL: it cannot be said. */
static char *range_text(const struct csv_header *header, int first, int last) {
  char *from, *to, *text;
  int unused;
  if (!can_be_named(header, last))
    return NULL;
  from = name_of(header, first);
  to = name_of(header, last);
  text = mem_printf("%s:%s", from, to);
  if (header->has_names && csv_header_find(header, text, strlen(text), &unused)) {
    free(text);
    text = NULL;
  }
  free(from);
  free(to);
  return text;
}

/* The most of fields[0 .. n) that one entry can say; *taken: how many these are. */
static char *entry_text(const struct csv_header *header, const int *fields, int n, int *taken) {
  char *text = NULL;
  *taken = 1;
  if (!can_be_named(header, fields[0]))
    return NULL;
  while (can_begin_range(header, fields[0]) && *taken < n && fields[*taken] == fields[*taken - 1] + 1)
    ++*taken;
  for (; *taken > 1; --*taken)
    if ((text = range_text(header, fields[0], fields[*taken - 1])))
      return text;
  return name_of(header, fields[0]);
}

char *csv_header_columns(const struct csv_header *header, const int *fields, int n, int *unnamed) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  bool is_named = true;
  CHECK(out);
  for (int at = 0, taken; at < n && is_named; at += taken) {
    char *entry = entry_text(header, fields + at, n - at, &taken);
    is_named = entry != NULL;
    if (is_named)
      fprintf(out, "%s%s", at ? "," : "", entry);
    else
      *unnamed = fields[at];
    free(entry);
  }
  fclose(out);
  if (is_named)
    return text;
  free(text);
  return NULL;
}

char *csv_header_complaint(const struct csv_header *header, int field) {
  const struct csv_field *name = &header->fields[field];
  char *whole = name_of(header, field), *shown, *text;
  shown = text_copy_clean(whole, SHOWN_MAX_BYTES);
  if (name->length == 0)
    text = mem_printf("field %d has no name: give it one in the first line", field + 1);
  else if (!is_clean(name))
    text = mem_printf("the name of field %d, '%s', is not UTF-8: save the file as UTF-8", field + 1, shown);
  else if (!is_single(header, name))
    text = mem_printf("more than one field is called '%s': rename all but one", shown);
  else
    text = mem_printf("the name of field %d, '%s', has a comma, or blanks at its ends: rename it", field + 1,
                      shown);
  free(whole);
  free(shown);
  return text;
}
