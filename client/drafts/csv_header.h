/* The first record of a CSV file, as a worker reads it, and how a spec names its fields. */
#ifndef WEIR_CLIENT_DRAFTS_CSV_HEADER_H
#define WEIR_CLIENT_DRAFTS_CSV_HEADER_H

#include "common/csv/csv_reader.h"

struct csv_header {
  char *text;               /* that the fields lie in */
  struct csv_field *fields; /* [n_fields] */
  int n_fields;             /* 0: there is no file, or no record in it that can be read */
  int *by_name;             /* [n_fields]: sorted, fields of one name by their numbers */
  char delimiter;           /* of , ; | and tab the one that gives the record most fields */
  bool has_names;           /* not all fields are numbers */
};

/* Released with csv_header_fini. */
void csv_header_read(const char *path, struct csv_header *out);
void csv_header_fini(struct csv_header *header);

/* How many fields have that name: 0, 1 or, of more, 2. *first: the first of them. */
int csv_header_find(const struct csv_header *header, const char *name, size_t length, int *first);

/* The field that is called "label", else "labels", "target", "class" or "y", else the last. */
int csv_header_label(const struct csv_header *header);

/* The fields, in this order, as `columns` of a spec names them: "x1:x3,x5". Freed by the caller. NULL: the
   field *unnamed cannot be named. */
char *csv_header_columns(const struct csv_header *header, const int *fields, int n, int *unnamed);

/* Why it cannot be named, and what to do; freed by the caller. */
char *csv_header_complaint(const struct csv_header *header, int field);

#endif
