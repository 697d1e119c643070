/* Fields of comma-separated values and numbers in them. */
#include "common/csv/csv_reader.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_LENGTH_MAX = 400, MANTISSA_DIGITS_MAX = 18 };

static const uint64_t exact_max = 1ull << 53; /* up to which f64 has all whole numbers */

void csv_begin(struct csv_reader *reader, const char *path, const char *text, size_t size, char delimiter) {
  size_t mark = size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
  *reader = (struct csv_reader){.path = path,
                                .at = text + mark,
                                .end = text + size,
                                .line_begin = text + mark,
                                .line = 1,
                                .delimiter = delimiter};
}

/* The bytes of the line end at `at`; 0: it is none. */
static size_t line_end(const struct csv_reader *reader, const char *at) {
  if (at < reader->end && *at == '\n')
    return 1;
  return reader->end - at >= 2 && at[0] == '\r' && at[1] == '\n' ? 2 : 0;
}

static void begin_line(struct csv_reader *reader, const char *at) {
  reader->line_begin = at;
  reader->line++;
}

bool csv_has_record(struct csv_reader *reader) {
  for (size_t length; (length = line_end(reader, reader->at)) > 0;) {
    reader->at += length;
    begin_line(reader, reader->at);
  }
  return reader->at < reader->end;
}

static bool field_fail(const struct csv_reader *reader, const struct csv_field *field, const char *what,
                       struct err *err) {
  err_set(err, ERR_INVALID, "%s:%llu:%llu: %s", reader->path, (unsigned long long)field->line,
          (unsigned long long)field->column, what);
  return false;
}

/* From the first quote on; reader->at is left behind the last. */
static bool read_quoted(struct csv_reader *reader, struct csv_field *out, struct err *err) {
  out->text = ++reader->at;
  for (; reader->at < reader->end; reader->at++) {
    if (*reader->at == '\n')
      begin_line(reader, reader->at + 1);
    if (*reader->at != '"')
      continue;
    if (reader->at + 1 < reader->end && reader->at[1] == '"') {
      reader->at++;
      continue;
    }
    out->length = (size_t)(reader->at++ - out->text);
    if (reader->at < reader->end && *reader->at != reader->delimiter && !line_end(reader, reader->at))
      return field_fail(reader, out, "a quoted field goes on after its last quote", err);
    return true;
  }
  return field_fail(reader, out, "a quoted field has no end", err);
}

static bool is_blank(const struct csv_reader *reader, char c) {
  return (c == ' ' || c == '\t') && c != reader->delimiter;
}

static void read_plain(struct csv_reader *reader, struct csv_field *out) {
  const char *begin = reader->at, *end;
  while (reader->at < reader->end && *reader->at != reader->delimiter && !line_end(reader, reader->at))
    reader->at++;
  end = reader->at;
  while (begin < end && is_blank(reader, *begin))
    begin++;
  while (begin < end && is_blank(reader, end[-1]))
    end--;
  out->text = begin;
  out->length = (size_t)(end - begin);
}

bool csv_read_field(struct csv_reader *reader, struct csv_field *out, struct err *err) {
  size_t length;
  out->line = reader->line;
  out->column = (uint64_t)(reader->at - reader->line_begin) + 1;
  if (reader->at < reader->end && *reader->at == '"') {
    if (!read_quoted(reader, out, err))
      return false;
  } else
    read_plain(reader, out);
  length = line_end(reader, reader->at);
  out->is_last = reader->at == reader->end || length > 0;
  if (length) {
    reader->at += length;
    begin_line(reader, reader->at);
  } else if (!out->is_last)
    reader->at++;
  return true;
}

static locale_t plain_locale;
static pthread_once_t plain_locale_once = PTHREAD_ONCE_INIT;

static void make_locale(void) {
  plain_locale = newlocale(LC_ALL_MASK, "C", NULL);
  CHECK(plain_locale);
}

/* What strtod makes of a text that is known to be a number. */
static double round_slowly(const char *text, size_t length) {
  char copy[NUMBER_LENGTH_MAX + 1];
  pthread_once(&plain_locale_once, make_locale);
  memcpy(copy, text, length);
  copy[length] = 0;
  return strtod_l(copy, NULL, plain_locale);
}

/* What was written: (-1)^is_negative * mantissa * 10^exponent, unless there are more digits than it holds. */
struct decimal {
  uint64_t mantissa;
  int digits; /* significant ones */
  int exponent;
  bool is_negative, has_point_or_exponent;
};

static bool is_digit(const char *at, const char *end) {
  return at < end && *at >= '0' && *at <= '9';
}

static void add_digit(struct decimal *decimal, char digit) {
  decimal->digits += decimal->digits > 0 || digit != '0';
  if (decimal->digits <= MANTISSA_DIGITS_MAX)
    decimal->mantissa = decimal->mantissa * 10 + (uint64_t)(digit - '0');
}

static bool parse_decimal(const char *at, const char *end, struct decimal *out) {
  const char *digits;
  int written = 0, sign;
  *out = (struct decimal){0};
  if (at < end && (*at == '-' || *at == '+'))
    out->is_negative = *at++ == '-';
  for (digits = at; is_digit(at, end); at++)
    add_digit(out, *at);
  written += (int)(at - digits);
  if (at < end && *at == '.') {
    out->has_point_or_exponent = true;
    for (digits = ++at; is_digit(at, end); at++) {
      add_digit(out, *at);
      out->exponent--;
    }
    written += (int)(at - digits);
  }
  if (written == 0)
    return false;
  if (at < end && (*at == 'e' || *at == 'E')) {
    int exponent = 0;
    out->has_point_or_exponent = true;
    at++;
    sign = at < end && *at == '-' ? -1 : 1;
    at += at < end && (*at == '-' || *at == '+');
    for (digits = at; is_digit(at, end); at++)
      exponent = exponent > 100000 ? exponent : exponent * 10 + (*at - '0');
    if (at == digits)
      return false;
    out->exponent += sign * exponent;
  }
  return at == end;
}

/* Both operands are exact, and so their product or quotient is correctly rounded (Clinger, 1990). */
static bool round_fast(const struct decimal *decimal, double *out) {
  static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  double mantissa = (double)decimal->mantissa;
  if (decimal->digits > MANTISSA_DIGITS_MAX || decimal->mantissa > exact_max || decimal->exponent < -22 ||
      decimal->exponent > 22)
    return false;
  *out = decimal->exponent < 0 ? mantissa / powers[-decimal->exponent] : mantissa * powers[decimal->exponent];
  if (decimal->is_negative)
    *out = -*out;
  return true;
}

bool csv_read_number(const struct csv_field *field, struct csv_number *out) {
  struct decimal decimal;
  if (field->length > NUMBER_LENGTH_MAX || !parse_decimal(field->text, field->text + field->length, &decimal))
    return false;
  if (!round_fast(&decimal, &out->value))
    out->value = round_slowly(field->text, field->length);
  if (!isfinite(out->value))
    return false;
  if (!decimal.has_point_or_exponent && decimal.digits <= MANTISSA_DIGITS_MAX) {
    out->is_whole = true;
    out->whole = decimal.is_negative ? -(int64_t)decimal.mantissa : (int64_t)decimal.mantissa;
    return true;
  }
  out->is_whole = fabs(out->value) <= (double)exact_max && floor(out->value) == out->value;
  out->whole = out->is_whole ? (int64_t)out->value : 0;
  return true;
}
