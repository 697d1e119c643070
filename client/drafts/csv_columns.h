/* Which fields of a CSV file are a model's features, and which is the label. */
#ifndef WEIR_CLIENT_DRAFTS_CSV_COLUMNS_H
#define WEIR_CLIENT_DRAFTS_CSV_COLUMNS_H

#include <stdio.h>

#include "client/drafts/csv_header.h"

struct csv_columns {
  struct csv_header header;
  int *features;         /* [n_features] */
  int n_features, label; /* label -1: there is none */
  char *doubt;           /* what does not fit, behind the file's name; NULL: nothing */
  char *note;            /* what else is to be known of it, likewise */
};

/* Of a file of training data. Without a header the features come first, and without a file as well. Released
   with csv_columns_fini. */
void csv_columns_choose(const char *path, int64_t n_features, struct csv_columns *out);

/* The fields of the same names in another file, or without a header of the same numbers; *doubt says why they
   are not there, as "it has no field 'x'". Released with csv_columns_fini. */
void csv_columns_match(const char *path, const struct csv_columns *train, struct csv_columns *out);

void csv_columns_fini(struct csv_columns *columns);

/* The keys of a source, from `delimiter` to `columns`. input: the features' column, as YAML. */
void csv_columns_write(FILE *out, const struct csv_columns *columns, const char *input);

#endif
