/* Whatever file a spec names as data, in whatever format: the error says where it is wrong and not what it
 * holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/spec.h"
#include "tests/support/worker/format_fixture.h"
#include "worker/data/format.h"

/* What lies below a worker's data root and is no data. Each comes after some bytes that a format begins with.
 */
static const char *const secrets[] = {
    "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n"
    "QyNTUxOQAAACDvuR6Y2q8mTzXcJ4hWnP0sLk5gVdBf9aEiUoKtHyGx7rMwAAAJi8Xq3ZvF\n"
    "-----END OPENSSH PRIVATE KEY-----\n",
    "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzTop\nTOKEN=ghp_9QzLk2\n",
    "login,passphrase\nmallory,correct-horse-battery\nalice,\"staple\nQQzz99xx\n",
    "x,y\n4929123456789012,7\n378282246310005,8\n",
    "{'descr': 'hvs.CAESIJq7', 'policy': 'root-hvs.Zz81Yx', }",
    "caf\xe9 8wKq3LmZ0pR\nnaiss\xe9 5TyVb2NhXc\n",
};
static const char *const beginnings[] = {
    "", "\x93NUMPY\1\0\x30\0", "PK\3\4", "\0\0\x08\1", "\0\0\x0d\3", "\xff\xd8\xff", "\x89PNG\r\n\x1a\n"};

/* data of a spec for each format, all of it of the file `a`; the column that is read as labels and as input.
 */
static const struct row {
  const char *format, *data, *column;
} rows[] = {
    {"idx", "train: {format: idx, images: a, labels: a}", "labels"},
    {"npy", "train: {format: npy, columns: {x: a}}", "x"},
    {"npz", "train: {format: npz, file: a, columns: {x: z}}", "x"},
    {"csv", "train: {format: csv, file: a, columns: {x: z}}", "x"},
    {"csv", "train: {format: csv, file: a, columns: {x: x, y: y}}", "x"},
    {"csv", "train: {format: csv, file: a, columns: {x: login, y: passphrase}}", "x"},
    {"csv", "train: {format: csv, file: a, header: false, columns: {x: 1}}", "x"},
    {"csv", "train: {format: csv, file: a, header: false, delimiter: \"=\", columns: {x: 2}}", "x"},
    {"cifar", "train: {format: cifar, files: [a]}", "labels"},
    {"images", "train: {format: images, folder: .}", "images"},
    {"images", "train: {format: images, folder: a}", "images"},
    {"tokens", "train: {format: tokens, file: a, dtype: u16, context: 4}", "labels"},
    {"tokens", "train: {format: tokens, file: a, dtype: u32, context: 1}", "labels"},
    {"text", "train: {format: text, file: a, unit: bytes, context: 4}", "labels"},
    {"text", "train: {format: text, file: a, context: 4}", "labels"},
    {"text", "train: {format: text, file: b, context: 1}, eval: {format: text, file: a, context: 4}",
     "labels"},
};

static bool holds_bytes(const char *text, const char *bytes, size_t n) {
  char piece[32] = "";
  memcpy(piece, bytes, n);
  return strstr(text, piece) != NULL;
}

/* Neither its text, nor its bytes as numbers, whichever these are. */
static void assert_silent(const char *text, const char *secret) {
  enum { RUN = 6, DIGITS_MIN = 4 };
  size_t length = strlen(secret);
  for (size_t i = 0; i + RUN <= length; i++) {
    char number[24];
    uint32_t value;
    if (holds_bytes(text, secret + i, RUN))
      fail_msg("'%s' quotes '%.*s'", text, (int)RUN, secret + i);
    memcpy(&value, secret + i, sizeof value);
    snprintf(number, sizeof number, "%u", (unsigned)value);
    if (strstr(text, number))
      fail_msg("'%s' has the number %s", text, number);
    snprintf(number, sizeof number, "%u", (unsigned)(value & 0xffff));
    if (strlen(number) > DIGITS_MIN && strstr(text, number))
      fail_msg("'%s' has the number %s", text, number);
  }
}

/* As labels of classes, and as an input of small numbers. */
static void bind_column(struct dataset *dataset, const char *column, struct err *err) {
  static const struct label_rule rule = {.classes = 3, .ignore_index = -100};
  struct value labels = {.name = "labels", .dtype = DTYPE_I64, .shape = {1, {2}}};
  struct value input = {.name = "in", .dtype = DTYPE_BOOL, .shape = {2, {2, 1}}};
  struct transforms none = {0};
  struct column_form form;
  if (dataset_bind(dataset, column,
                   &(struct feed_rule){.input = &labels, .labels = &rule, .transforms = &none}, &form,
                   err) == 0)
    dataset_bind(dataset, column, &(struct feed_rule){.input = &input, .transforms = &none}, &form, err);
}

static int n_errors; /* that were looked at */

static void try_row(const struct row *row, const char *secret) {
  Weir__RunSpec *spec = make_spec(NULL, row->data);
  const Weir__DataSource *source = spec->data->eval ? spec->data->eval : spec->data->train;
  struct dataset *dataset = NULL;
  struct err err = ERR_NONE;
  if (dataset_open(spec, source, &(struct data_root){.path = "/"}, &dataset, &err) == 0)
    bind_column(dataset, row->column, &err);
  n_errors += err.code != 0;
  assert_silent(err.text, secret);
  dataset_close(dataset);
  spec_free(spec);
}

static void no_error_quotes_the_file(void **state) {
  char content[1024];
  (void)state;
  write_text("b", "0123456789");
  for (size_t s = 0; s < sizeof secrets / sizeof *secrets; s++)
    for (size_t b = 0; b < sizeof beginnings / sizeof *beginnings; b++) {
      size_t head = beginnings[b][0] ? strlen(beginnings[b]) : b == 0 ? 0 : 4;
      size_t size = head + strlen(secrets[s]);
      memcpy(content, beginnings[b], head);
      memcpy(content + head, secrets[s], strlen(secrets[s]));
      write_file("a", content, size);
      for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        try_row(&rows[r], secrets[s]);
    }
  assert_in_range(n_errors, 300, 10000);
}

static void every_format_is_tried(void **state) {
  static const char *const names[] = {
#define FORMAT(name) #name,
#include "worker/data/format.def"
#undef FORMAT
  };
  (void)state;
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    bool is_tried = false;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
      is_tried |= strcmp(rows[r].format, names[n]) == 0;
    if (!is_tried)
      fail_msg("%s", names[n]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(no_error_quotes_the_file, make_folder, remove_folder),
      cmocka_unit_test(every_format_is_tried),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
