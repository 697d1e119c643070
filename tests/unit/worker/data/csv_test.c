/* Comma-separated values as columns: what is read, and where what is not lies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "tests/support/worker/data_fixture.h"
#include "tests/support/worker/format_fixture.h"
#include "common/csv/csv_reader.h"

#define SOURCE(columns) "train: {format: csv, file: a.csv, columns: {" columns "}}"

static void columns_are_fields_by_name_and_range(void **state) {
  static const float dense[] = {1.5f, -2, 1e-3f}, other[] = {0.25f, 4, 5e10f};
  static const int64_t labels[] = {3, -1};
  struct dataset *dataset;
  Weir__RunSpec *spec;
  (void)state;
  write_text("a.csv", "\xef\xbb\xbfid,x1,\"x2\",x3,y\r\n"
                      "first,1.5, -2 ,1e-3,3\r\n"
                      "\"a,\"\"b\nc\",\"0.25\",4,+5E+10,-1\n\n");
  dataset = open_data(SOURCE("dense: \"x1:x3\", labels: y, turned: \"x3, x1\""), &spec);
  assert_int_equal(dataset_samples(dataset), 2);
  expect_floats(dataset, "dense", 0, 3, dense);
  expect_floats(dataset, "dense", 1, 3, other);
  expect_floats(dataset, "turned", 1, 2, (float[]){5e10f, 0.25f});
  expect_integers(dataset, "labels", 0, 1, &labels[0]);
  expect_integers(dataset, "labels", 1, 1, &labels[1]);
  dataset_close(dataset);
  spec_free(spec);
}

static void without_a_header_fields_are_numbered(void **state) {
  struct dataset *dataset;
  Weir__RunSpec *spec;
  (void)state;
  write_text("a.csv", "1\t2\t3\n4\t5\t6");
  dataset = open_data("train: {format: csv, file: a.csv, header: false, delimiter: \"\\t\", "
                      "columns: {x: \"1:2\", labels: 3}}",
                      &spec);
  assert_int_equal(dataset_samples(dataset), 2);
  expect_integers(dataset, "x", 1, 2, (int64_t[]){4, 5});
  expect_integers(dataset, "labels", 0, 1, (int64_t[]){3});
  dataset_close(dataset);
  spec_free(spec);
  refuse_data("train: {format: csv, file: a.csv, header: false, delimiter: \"\\t\", columns: {x: \"0\"}}",
              ERR_INVALID, "/a.csv: has no field '0'; it has 1 to 3");
  refuse_data("train: {format: csv, file: a.csv, header: false, delimiter: \"ab\", columns: {x: 1}}",
              ERR_INVALID, "data.train.delimiter: 'ab' is not one character");
}

/* More rows than the first allocation holds, the fraction in the last of them. */
static void a_fraction_in_the_last_row_makes_the_column_f32(void **state) {
  enum { ROWS = 3000 };
  char *text = mem_new(32 * ROWS), *at = text;
  struct dataset *dataset;
  Weir__RunSpec *spec;
  (void)state;
  at += sprintf(at, "a,b\n");
  for (int i = 0; i < ROWS; i++)
    at += sprintf(at, "%d,%d%s\n", i, 2 * i, i == ROWS - 1 ? ".5" : "");
  write_text("a.csv", text);
  dataset = open_data(SOURCE("x: \"a,b\", n: a"), &spec);
  assert_int_equal(dataset_samples(dataset), ROWS);
  expect_floats(dataset, "x", 1234, 2, (float[]){1234, 2468});
  expect_floats(dataset, "x", ROWS - 1, 2, (float[]){ROWS - 1, 2 * ROWS - 1.5f});
  expect_integers(dataset, "n", ROWS - 1, 1, (int64_t[]){ROWS - 1});
  dataset_close(dataset);
  spec_free(spec);
  free(text);
}

static void what_is_no_number_is_refused_with_its_place(void **state) {
  (void)state;
  write_text("a.csv", "x,y\n1,2\n3,\n");
  refuse_data(SOURCE("x: x, labels: y"), ERR_INVALID, "/a.csv:3:3: field 2 is empty");
  write_text("a.csv", "x,y\n1,2\nred,4\n");
  refuse_data(SOURCE("x: x, labels: y"), ERR_INVALID, "/a.csv:3:1: field 1 is not a number that f32 holds");
  write_text("a.csv", "x,y\n1,2\n3,nan\n");
  refuse_data(SOURCE("x: x, labels: y"), ERR_INVALID, "/a.csv:3:3: field 2 is not a number that f32 holds");
  write_text("a.csv", "x,y\n1,1e39\n");
  refuse_data(SOURCE("x: x, labels: y"), ERR_INVALID, "/a.csv:2:3: field 2 is not a number that f32 holds");
  write_text("a.csv", "x,y\n1,2\n\n\"3\",0x10\n");
  refuse_data(SOURCE("x: x, labels: y"), ERR_INVALID, "/a.csv:4:5: field 2 is not a number");
}

static void a_table_that_is_none_is_refused_with_its_line(void **state) {
  (void)state;
  write_text("a.csv", "x,y\n1,2\n3\n");
  refuse_data(SOURCE("x: x"), ERR_INVALID, "/a.csv:3: has 1 fields, where the first record has 2");
  write_text("a.csv", "x,y\n1,2\n3,4,5\n");
  refuse_data(SOURCE("x: x"), ERR_INVALID, "/a.csv:3: has more than the 2 fields");
  write_text("a.csv", "x,y\n1,\"2\n");
  refuse_data(SOURCE("x: x"), ERR_INVALID, "/a.csv:2:3: a quoted field has no end");
  write_text("a.csv", "x,y\n\"1\"2,3\n");
  refuse_data(SOURCE("x: x"), ERR_INVALID, "/a.csv:2:1: a quoted field goes on after its last quote");
  write_text("a.csv", "x,y\n");
  refuse_data(SOURCE("x: x"), ERR_INVALID, "has no record but its header");
  write_text("a.csv", "\n\n");
  refuse_data(SOURCE("x: x"), ERR_INVALID, "/a.csv: has no record");
  write_text("a.csv", "x,y\n1,2\n");
  refuse_data(SOURCE("x: z"), ERR_INVALID, "/a.csv: none of the 2 fields of its header is 'z'");
  refuse_data(SOURCE("x: \"y:x\""), ERR_INVALID, "data.train.columns.x: 'y:x' goes backwards");
  write_text("a.csv", "x,y,x\n1,2,3\n");
  refuse_data(SOURCE("y: y, x: x"), ERR_INVALID, "/a.csv: has more than one field 'x'");
  write_text("a.csv", "x,y\n1,2\n");
  refuse_data(SOURCE("x: \"x,x:y\""), ERR_INVALID, "data.train.columns.x: has field 1 twice");
  refuse_data("train: {format: csv, columns: {x: x}}", ERR_INVALID, "data.train.file: is missing");
}

/* strtod is another reader of numbers, which rounds correctly. */
static void numbers_are_read_as_strtod_reads_them(void **state) {
  static const char *const texts[] = {"0",
                                      "-0",
                                      "1",
                                      "-17",
                                      "+3",
                                      "0.1",
                                      ".5",
                                      "5.",
                                      "1e22",
                                      "1e23",
                                      "-1.5E-7",
                                      "9007199254740993",
                                      "9007199254740992",
                                      "123456789012345678",
                                      "12345678901234567890",
                                      "3.141592653589793238462643383279",
                                      "1e-400",
                                      "4.9e-324",
                                      "2.2250738585072011e-308",
                                      "1.7976931348623157e308",
                                      "0.000000000000000000000001",
                                      "100000000000000000000000",
                                      "18446744073709551617",
                                      "-9223372036854775809",
                                      "8.5e0000000000000001",
                                      "000000000000000000000000000007",
                                      "0.3000000000000000444089209850062616169452667236328125"};
  static const char *const wrong[] = {"",    "-",   "+",   ".",    "e5",    "1e", "1e+",   "--1",     "1,2",
                                      "1 2", "inf", "nan", "0x10", "1.2.3", "1f", "1e999", "\xd9\xa1"};
  struct csv_number number;
  char random[64];
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    struct csv_field field = {texts[i], strlen(texts[i]), 1, 1, true};
    assert_true(csv_read_number(&field, &number));
    if (number.value != strtod(texts[i], NULL))
      fail_msg("%s is read as %.17g", texts[i], number.value);
  }
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct csv_field field = {wrong[i], strlen(wrong[i]), 1, 1, true};
    if (csv_read_number(&field, &number))
      fail_msg("'%s' is taken for %g", wrong[i], number.value);
  }
  srand(1);
  for (int i = 0; i < 200000; i++) {
    int length = snprintf(random, sizeof random, "%d%0*d.%d%de%d", rand() - rand(), 1 + rand() % 9, rand(),
                          rand(), rand() % 1000, rand() % 60 - 30);
    struct csv_field field = {random, (size_t)length, 1, 1, true};
    assert_true(csv_read_number(&field, &number));
    assert_true(number.value == strtod(random, NULL));
  }
}

static void whole_numbers_keep_all_their_digits(void **state) {
  struct csv_number number;
  struct csv_field field = {"123456789012345678", 18, 1, 1, true};
  (void)state;
  assert_true(csv_read_number(&field, &number));
  assert_true(number.is_whole && number.whole == 123456789012345678);
  field = (struct csv_field){"3.000e+00", 9, 1, 1, true};
  assert_true(csv_read_number(&field, &number) && number.is_whole && number.whole == 3);
  field = (struct csv_field){"3.5", 3, 1, 1, true};
  assert_true(csv_read_number(&field, &number) && !number.is_whole);
  field = (struct csv_field){"18446744073709551617", 20, 1, 1, true};
  assert_true(csv_read_number(&field, &number) && !number.is_whole);
  field = (struct csv_field){"1e300", 5, 1, 1, true};
  assert_true(csv_read_number(&field, &number) && !number.is_whole);
}

static void damaged_tables_never_crash_the_reader(void **state) {
  static const char text[] = "\xef\xbb\xbfx,\"y\"\r\n1,2\n\"3\",-4.5e1\n";
  char bytes[sizeof text];
  struct err err = ERR_NONE;
  struct dataset *dataset;
  Weir__RunSpec *spec = make_spec(NULL, SOURCE("x: x, labels: y"));
  (void)state;
  for (size_t cut = 0; cut < sizeof text; cut++) {
    write_file("a.csv", text, cut);
    if (dataset_open(spec, spec->data->train, &everything, &dataset, &err) == 0)
      dataset_close(dataset);
  }
  for (size_t at = 0; at < sizeof text; at++)
    for (int by = 1; by < 256; by++) {
      memcpy(bytes, text, sizeof text);
      bytes[at] ^= (char)by;
      write_file("a.csv", bytes, sizeof text - 1);
      if (dataset_open(spec, spec->data->train, &everything, &dataset, &err) == 0)
        dataset_close(dataset);
    }
  spec_free(spec);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(columns_are_fields_by_name_and_range),
      cmocka_unit_test(without_a_header_fields_are_numbered),
      cmocka_unit_test(a_fraction_in_the_last_row_makes_the_column_f32),
      cmocka_unit_test(what_is_no_number_is_refused_with_its_place),
      cmocka_unit_test(a_table_that_is_none_is_refused_with_its_line),
      cmocka_unit_test(numbers_are_read_as_strtod_reads_them),
      cmocka_unit_test(whole_numbers_keep_all_their_digits),
      cmocka_unit_test(damaged_tables_never_crash_the_reader),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
