/* Reading a CSV file's names of fields. */
#include "client/drafts/csv_header.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/memory.h"

enum { LINE_MAX_BYTES = 1 << 16 };

/* Without the byte order mark that spreadsheets begin it with. */
static char *first_line(const char *path) {
  static const char mark[] = "\xef\xbb\xbf";
  FILE *file = fopen(path, "r");
  char *line = NULL;
  if (!file)
    return NULL;
  line = mem_new(LINE_MAX_BYTES);
  if (!fgets(line, LINE_MAX_BYTES, file))
    *line = '\0';
  line[strcspn(line, "\r\n")] = '\0';
  fclose(file);
  if (strncmp(line, mark, strlen(mark)) == 0)
    memmove(line, line + strlen(mark), strlen(line) - strlen(mark) + 1);
  return line;
}

/* Without the blanks around it, and the quotes. */
static char *bare(char *field) {
  size_t length;
  field += strspn(field, " \t");
  length = strlen(field);
  while (length > 0 && (field[length - 1] == ' ' || field[length - 1] == '\t'))
    length--;
  if (length >= 2 && field[0] == '"' && field[length - 1] == '"') {
    field++;
    length -= 2;
  }
  field[length] = '\0';
  return field;
}

static char find_delimiter(const char *line) {
  static const char candidates[] = ",;\t|";
  int most = 0;
  char found = ',';
  for (const char *candidate = candidates; *candidate; candidate++) {
    int count = 0;
    for (const char *at = line; (at = strchr(at, *candidate)); at++)
      count++;
    if (count > most) {
      most = count;
      found = *candidate;
    }
  }
  return found;
}

static bool is_number(const char *text) {
  char *end;
  strtod(text, &end);
  return end != text && !*end;
}

static bool is_label(const char *field) {
  static const char *const names[] = {"label", "labels", "target", "class", "y", NULL};
  for (int i = 0; names[i]; i++)
    if (strcasecmp(field, names[i]) == 0)
      return true;
  return false;
}

static char *range(char *const *fields, int64_t begin, int64_t end) {
  if (begin >= end)
    return mem_strdup("");
  return end - begin == 1 ? mem_strdup(fields[begin]) : mem_printf("%s:%s", fields[begin], fields[end - 1]);
}

void csv_header_read(const char *path, struct csv_header *out) {
  char *line = first_line(path), **fields = NULL, *rest = line, *before, *after;
  int64_t label = -1;
  int capacity = 0;
  *out = (struct csv_header){0};
  if (!line || !*line)
    goto out;
  out->delimiter = find_delimiter(line);
  for (char *field; (field = strsep(&rest, (char[]){out->delimiter, '\0'}));) {
    array_reserve((void **)&fields, &capacity, (int)out->n_fields, sizeof *fields);
    fields[out->n_fields++] = bare(field);
  }
  if (out->n_fields < 2)
    goto out;
  for (int64_t f = 0; f < out->n_fields; f++) {
    if (!*fields[f] || is_number(fields[f]) || strpbrk(fields[f], "\":\\,"))
      goto out;
    if (is_label(fields[f]))
      label = f;
  }
  label = label < 0 ? out->n_fields - 1 : label;
  before = range(fields, 0, label);
  after = range(fields, label + 1, out->n_fields);
  out->features = mem_printf("%s%s%s", before, *before && *after ? "," : "", after);
  out->label = mem_strdup(fields[label]);
  free(before);
  free(after);
out:
  free(fields);
  free(line);
}

void csv_header_fini(struct csv_header *header) {
  free(header->features);
  free(header->label);
  *header = (struct csv_header){0};
}
