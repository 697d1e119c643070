/* The first line of a CSV file: which fields are features, and which is the label. */
#ifndef WEIR_CLIENT_DRAFTS_CSV_HEADER_H
#define WEIR_CLIENT_DRAFTS_CSV_HEADER_H

#include <stdint.h>

struct csv_header {
  int64_t n_fields; /* 0: there is no such file */
  char delimiter;   /* of , ; | and tab the one that the line has most of */
  char *features;   /* "x1:x3,x5"; NULL: the line names no two fields, or such that a spec could not say */
  char *label;      /* the field "label", "labels", "target", "class" or "y", else the last */
};

/* Whatever cannot be read leaves it empty. Released with csv_header_fini. */
void csv_header_read(const char *path, struct csv_header *out);
void csv_header_fini(struct csv_header *header);

#endif
