/* Events as JSON: the format is walked, and each conversion is printed by itself. */
#include "common/base/log.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "common/base/text.h"

enum { SPEC_SIZE = 32, NUMBER_SIZE = 512 };

/* A text that grows. */
struct growing {
  FILE *file;
  char *text;
  size_t size;
};

/* What one word of the format has come to. */
struct field {
  struct growing key, value;
  bool has_key;
  bool is_quoted;
  int n_numbers;   /* of the value: conversions to numbers */
  bool is_literal; /* it has something beside them */
};

struct walk {
  const char *at;
  va_list *args;
};

static void growing_open(struct growing *growing) {
  *growing = (struct growing){0};
  growing->file = open_memstream(&growing->text, &growing->size);
}

static const char *growing_text(struct growing *growing) {
  fflush(growing->file);
  return growing->text;
}

static void growing_close(struct growing *growing) {
  fclose(growing->file);
  free(growing->text);
}

static void write_string(FILE *out, const char *text) {
  fputc('"', out);
  for (size_t size; *text; text += size) {
    unsigned char byte = (unsigned char)*text;
    size = text_character_size(text);
    if (size == 0 && (byte < ' ' || byte == 0x7f))
      fprintf(out, "\\u%04x", byte);
    else if (size == 0)
      fputc('?', out);
    else if (byte == '"' || byte == '\\')
      fprintf(out, "\\%c", byte);
    else
      fwrite(text, 1, size, out);
    size = size ? size : 1;
  }
  fputc('"', out);
}

/* Copies a conversion of the format, '%' to its letter; '*' becomes the number that it stands for. length:
   what stands before the letter, as "ll". */
static char take_spec(struct walk *walk, char spec[SPEC_SIZE], char length[3]) {
  size_t n = 0, n_length = 0;
  spec[n++] = *walk->at++;
  while (*walk->at && !isalpha((unsigned char)*walk->at) && n < SPEC_SIZE / 2)
    if (*walk->at == '*') {
      n += (size_t)snprintf(spec + n, SPEC_SIZE / 2, "%d", va_arg(*walk->args, int));
      walk->at++;
    } else
      spec[n++] = *walk->at++;
  while (*walk->at && strchr("hlzjt", *walk->at) && n_length < 2)
    spec[n++] = length[n_length++] = *walk->at++;
  length[n_length] = '\0';
  spec[n++] = *walk->at;
  spec[n] = '\0';
  return *walk->at ? *walk->at++ : '\0';
}

/* The integer of a conversion is read as it was passed. */
static void print_integer(FILE *out, const char *spec, const char *length, va_list *args) {
  char number[NUMBER_SIZE] = "";
  if (strcmp(length, "ll") == 0)
    snprintf(number, sizeof number, spec, va_arg(*args, long long));
  else if (*length == 'l')
    snprintf(number, sizeof number, spec, va_arg(*args, long));
  else if (*length == 'z')
    snprintf(number, sizeof number, spec, va_arg(*args, size_t));
  else if (*length == 'j')
    snprintf(number, sizeof number, spec, va_arg(*args, intmax_t));
  else if (*length == 't')
    snprintf(number, sizeof number, spec, va_arg(*args, ptrdiff_t));
  else
    snprintf(number, sizeof number, spec, va_arg(*args, int));
  fputs(number, out);
}

static void print_real(FILE *out, const char *spec, double value) {
  char number[NUMBER_SIZE];
  snprintf(number, sizeof number, spec, value);
  fputs(isfinite(value) ? number : "null", out);
}

static void print_text(FILE *out, const char *spec, const char *text) {
  char *printed;
  if (asprintf(&printed, spec, text ? text : "(null)") < 0)
    return;
  fputs(printed, out);
  free(printed);
}

/* One conversion, into the key or the value. */
static void convert(struct walk *walk, struct field *field) {
  FILE *out = (field->has_key ? &field->value : &field->key)->file;
  char spec[SPEC_SIZE], length[3], letter;
  if (walk->at[1] == '%') {
    walk->at += 2;
    fputc('%', out);
    field->is_literal = true;
    return;
  }
  letter = take_spec(walk, spec, length);
  field->n_numbers += letter && strchr("diufFeEgG", letter) != NULL;
  field->is_literal |= !letter || !strchr("diufFeEgG", letter);
  if (letter && strchr("fFeEgG", letter))
    print_real(out, spec, va_arg(*walk->args, double));
  else if (letter == 's')
    print_text(out, spec, va_arg(*walk->args, const char *));
  else if (letter == 'p')
    fprintf(out, "%p", va_arg(*walk->args, void *));
  else if (letter)
    print_integer(out, spec, length, walk->args);
}

/* A word of the format, up to the next blank that is not between quotes. */
static void take_word(struct walk *walk, struct field *field) {
  bool is_inside = false;
  while (*walk->at && (is_inside || *walk->at != ' ')) {
    char letter = *walk->at;
    if (letter == '%') {
      convert(walk, field);
      continue;
    }
    walk->at++;
    if (letter == '"') {
      is_inside = !is_inside;
      field->is_quoted = true;
    } else if (letter == '=' && !field->has_key) {
      field->has_key = true;
      field->n_numbers = 0;
      field->is_literal = false;
    } else if (letter != ':' || (*walk->at && *walk->at != ' ') || is_inside) {
      fputc(letter, (field->has_key ? &field->value : &field->key)->file);
      field->is_literal = true;
    }
  }
}

static void write_field(FILE *out, struct field *field) {
  const char *value = growing_text(&field->value);
  fputc(',', out);
  write_string(out, growing_text(&field->key));
  fputc(':', out);
  if (field->n_numbers == 1 && !field->is_literal && !field->is_quoted)
    fputs(value, out);
  else
    write_string(out, value);
}

void log_json_write(FILE *out, const struct log_head *head, const char *format, va_list args) {
  va_list own;
  struct walk walk = {.at = format};
  struct growing prose;
  va_copy(own, args);
  walk.args = &own;
  growing_open(&prose);
  fputs("{\"time\":", out);
  write_string(out, head->time);
  fputs(",\"level\":", out);
  write_string(out, head->level);
  fputs(",\"subsystem\":", out);
  write_string(out, head->subsystem);
  fputs(",\"event\":", out);
  write_string(out, head->event);
  while (*walk.at) {
    struct field field = {0};
    growing_open(&field.key);
    growing_open(&field.value);
    take_word(&walk, &field);
    if (field.has_key)
      write_field(out, &field);
    else if (*growing_text(&field.key))
      fprintf(prose.file, "%s%s", *growing_text(&prose) ? " " : "", growing_text(&field.key));
    growing_close(&field.key);
    growing_close(&field.value);
    walk.at += *walk.at == ' ';
  }
  if (*growing_text(&prose)) {
    fputs(",\"text\":", out);
    write_string(out, growing_text(&prose));
  }
  fputc('}', out);
  growing_close(&prose);
  va_end(own);
}
