/* Tables of rows that have names. */
#include "common/base/def_table.h"

#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/nearest.h"

enum { ROWS_MAX = 64 };

static const char *row_name(const struct def_table *table, int index) {
  const char *name;
  memcpy(&name, (const char *)table->rows[index] + table->name_offset, sizeof name);
  return name;
}

const void *def_find(const struct def_table *table, const char *name) {
  for (int i = 0; i < table->n; i++)
    if (strcmp(row_name(table, i), name) == 0)
      return table->rows[i];
  return NULL;
}

const void *def_at(const struct def_table *table, int index) {
  return index >= 0 && index < table->n ? table->rows[index] : NULL;
}

const char *def_nearest(const struct def_table *table, const char *name) {
  const char *names[ROWS_MAX];
  CHECK(table->n <= ROWS_MAX);
  for (int i = 0; i < table->n; i++)
    names[i] = row_name(table, i);
  return nearest_word(name, names, table->n);
}

const char *def_names(const struct def_table *table, const char *separator, char out[DEF_NAMES_SIZE]) {
  size_t length = 0;
  *out = 0;
  for (int i = 0; i < table->n && length < DEF_NAMES_SIZE; i++)
    length += (size_t)snprintf(out + length, DEF_NAMES_SIZE - length, "%s%s", i ? separator : "",
                               row_name(table, i));
  return out;
}
