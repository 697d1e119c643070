/* A table of rows that have names: optimizers, losses, backends and others. The rows of X.def are an array of
   pointers to const structs with a member `name`. */
#ifndef WEIR_COMMON_BASE_DEF_TABLE_H
#define WEIR_COMMON_BASE_DEF_TABLE_H

#include <stddef.h>

struct def_table {
  const void *const *rows;
  int n;
  size_t name_offset; /* of the name in a row */
};

/* The table of an array of pointers to rows. */
#define DEF_TABLE(array)                                                                                     \
  {                                                                                                          \
    .rows = (const void *const *)(array), .n = sizeof(array) / sizeof *(array),                              \
    .name_offset = offsetof(__typeof__(**(array)), name)                                                     \
  }

const void *def_find(const struct def_table *table, const char *name); /* NULL if there is no such row */
const void *def_at(const struct def_table *table, int index);          /* NULL past the last row */

/* Of all rows' names the one that is nearest to a mistyped one (common/base/nearest.h), or NULL. */
const char *def_nearest(const struct def_table *table, const char *name);

/* Writes the names of all rows for a message, and returns them: "sgd, adam" for the separator ", ". */
enum { DEF_NAMES_SIZE = 512 };
const char *def_names(const struct def_table *table, const char *separator, char out[DEF_NAMES_SIZE]);

#endif
