/* Fields of a file of comma-separated values (RFC 4180; lines may end in LF alone), one after the other, and
   what they say as numbers. */
#ifndef WEIR_COMMON_CSV_CSV_READER_H
#define WEIR_COMMON_CSV_CSV_READER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum { CSV_FIELDS_MAX = 1 << 16 }; /* of a record that a worker takes */

struct csv_reader {
  const char *path;
  const char *at, *end;   /* what is still to be read */
  const char *line_begin; /* of the line that `at` is in */
  uint64_t line;          /* from 1 */
  char delimiter;
};

/* Without the quotes and the blanks around it; doubled quotes within stay doubled. */
struct csv_field {
  const char *text;
  size_t length;
  uint64_t line, column; /* where it begins, from 1; bytes */
  bool is_last;          /* of its record */
};

/* text[0 .. size) outlives the reader; a byte order mark is skipped. */
void csv_begin(struct csv_reader *reader, const char *path, const char *text, size_t size, char delimiter);

/* Passes empty lines. False at the end of the file. */
bool csv_has_record(struct csv_reader *reader);

/* The next field; false after `err` was set. Errors: INVALID naming file, line and column. */
bool csv_read_field(struct csv_reader *reader, struct csv_field *out, struct err *err);

struct csv_number {
  double value;  /* the nearest f64 */
  int64_t whole; /* the number, if */
  bool
      is_whole; /* it has no fraction, and i64 (written without point and exponent) or f64 holds it exactly */
};

/* A decimal number, as "-12", "+0.5", ".5", "1e-3"; whatever the locale. False: it is none, or not finite. */
bool csv_read_number(const struct csv_field *field, struct csv_number *out);

#endif
