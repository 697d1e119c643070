/* CIFAR's files, token files and text as columns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "tests/support/worker/data_fixture.h"
#include "tests/support/worker/format_fixture.h"

enum { RECORD = 3073 };

/* Records of CIFAR-10, or of CIFAR-100 where there are two labels: labels 10 i + l, pixels i + 1, but the
   last of each image, which is 200 + i. */
static void write_cifar(const char *name, int first, int n, int labels, size_t cut) {
  size_t record = 3072 + (size_t)labels, size = (size_t)n * record;
  unsigned char *bytes = mem_new(size);
  for (int i = 0; i < n; i++) {
    unsigned char *at = bytes + (size_t)i * record;
    memset(at, first + i + 1, record);
    for (int l = 0; l < labels; l++)
      at[l] = (unsigned char)(10 * (first + i) + l);
    at[record - 1] = (unsigned char)(200 + first + i);
  }
  write_file(name, bytes, size - cut);
  free(bytes);
}

static void expect_cifar(const char *data, int labels) {
  Weir__RunSpec *spec;
  struct dataset *dataset = open_data(data, &spec);
  struct value input = {.name = "in", .dtype = DTYPE_F32, .shape = {4, {1, 3, 32, 32}}};
  static float pixels[3072];
  assert_int_equal(dataset_samples(dataset), 5);
  for (int64_t i = 0; i < 5; i++) {
    expect_integers(dataset, "labels", (uint64_t)i, 1, (int64_t[]){10 * i + labels - 1});
    if (labels == 2)
      expect_integers(dataset, "coarse_labels", (uint64_t)i, 1, (int64_t[]){10 * i});
  }
  read_input(dataset, "images", 3, &input, pixels);
  assert_true(pixels[0] == 4 && pixels[3070] == 4 && pixels[3071] == 203);
  dataset_close(dataset);
  spec_free(spec);
}

static void cifar_s_batches_are_one_dataset(void **state) {
  (void)state;
  write_cifar("a.bin", 0, 2, 1, 0);
  write_cifar("b.bin", 2, 3, 1, 0);
  expect_cifar("train: {format: cifar, files: [a.bin, b.bin]}", 1);
  write_cifar("a.bin", 0, 2, 2, 0);
  write_cifar("b.bin", 2, 3, 2, 0);
  expect_cifar("train: {format: cifar, files: [a.bin, b.bin]}", 2);
}

static void a_file_that_is_not_cifar_s_is_refused(void **state) {
  (void)state;
  write_cifar("a.bin", 0, 2, 1, 0);
  write_cifar("b.bin", 0, 2, 1, 1);
  refuse_data("train: {format: cifar, files: [a.bin, b.bin]}", ERR_CORRUPT,
              "b.bin: its 6145 bytes are no whole number of 3073 or 3074 bytes");
  refuse_data("train: {format: cifar, files: [a.bin], classes: 100}", ERR_CORRUPT,
              "a.bin: its 6146 bytes are no whole number of 3074 bytes");
  refuse_data("train: {format: cifar, files: [a.bin], classes: 20}", ERR_INVALID,
              "data.train.classes: is 20");
  refuse_data("train: {format: cifar}", ERR_INVALID, "data.train.files: is missing");
  refuse_data("train: {format: cifar, files: [c.bin]}", ERR_NOT_FOUND, "/c.bin");
}

/* 3074 records of the one are as long as 3073 of the other. */
static void cifar_s_kind_is_asked_for_where_sizes_leave_it_open(void **state) {
  struct dataset *dataset;
  Weir__RunSpec *spec;
  (void)state;
  write_cifar("a.bin", 0, 3074, 1, 0);
  refuse_data("train: {format: cifar, files: [a.bin]}", ERR_INVALID,
              "data.train.classes: must be given, 10 or 100");
  dataset = open_data("train: {format: cifar, files: [a.bin], classes: 10}", &spec);
  assert_int_equal(dataset_samples(dataset), 3074);
  dataset_close(dataset);
  spec_free(spec);
}

static void tokens_are_windows_and_labels_those_after_them(void **state) {
  static const uint16_t narrow[] = {1, 2, 3, 4, 5, 60000, 7, 8};
  static const uint32_t wide[] = {1, 2, 3, 4, 5, 4000000000, 7, 8};
  struct dataset *dataset;
  Weir__RunSpec *spec;
  (void)state;
  write_file("a.bin", narrow, sizeof narrow);
  dataset = open_data("train: {format: tokens, file: a.bin, dtype: u16, context: 3}", &spec);
  assert_int_equal(dataset_samples(dataset), 2);
  expect_integers(dataset, "tokens", 1, 3, (int64_t[]){4, 5, 60000});
  expect_integers(dataset, "labels", 1, 3, (int64_t[]){5, 60000, 7});
  expect_floats(dataset, "tokens", 1, 3, (float[]){4, 5, 60000});
  dataset_close(dataset);
  spec_free(spec);
  write_file("a.bin", wide, sizeof wide);
  dataset = open_data("train: {format: tokens, file: a.bin, dtype: u32, context: 4, stride: 1}", &spec);
  assert_int_equal(dataset_samples(dataset), 4);
  expect_integers(dataset, "tokens", 3, 4, (int64_t[]){4, 5, 4000000000, 7});
  expect_integers(dataset, "labels", 3, 4, (int64_t[]){5, 4000000000, 7, 8});
  dataset_close(dataset);
  spec_free(spec);
}

static int bind_labels(const struct dataset *dataset, int64_t elems, const struct label_rule *rule,
                       struct column_form *form, struct err *err) {
  struct value input = {.name = "labels", .dtype = DTYPE_I64, .shape = {2, {1, elems}}};
  struct transforms none = {0};
  return dataset_bind(dataset, "", &(struct feed_rule){.input = &input, .labels = rule, .transforms = &none},
                      form, err);
}

static void tokens_outside_the_vocabulary_are_named(void **state) {
  static const uint16_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 50};
  static const struct label_rule rule = {.classes = 50, .ignore_index = -100};
  struct column_form form;
  struct err err = ERR_NONE;
  struct dataset *dataset;
  Weir__RunSpec *spec;
  (void)state;
  write_file("a.bin", tokens, sizeof tokens);
  dataset = open_data("train: {format: tokens, file: a.bin, dtype: u16, context: 4, stride: 1}", &spec);
  assert_int_equal(bind_labels(dataset, 4, &rule, &form, &err), ERR_INVALID);
  assert_string_equal(err.text,
                      "labels: sample 3 has a label that is no class at [3], the model has 50 classes");
  dataset_close(dataset);
  spec_free(spec);
}

/* Of overlapping windows every label is counted as if each were looked at by itself. */
static void labels_that_do_not_count_are_counted_in_every_window(void **state) {
  static const uint16_t tokens[] = {1, 2, 9, 4, 9, 9, 7, 8, 9, 1, 2, 3};
  static const struct label_rule rule = {.classes = 50, .ignore_index = 9};
  char data[128];
  (void)state;
  write_file("a.bin", tokens, sizeof tokens);
  for (uint64_t stride = 1; stride <= 6; stride++) {
    struct column_form form;
    struct err err = ERR_NONE;
    double weights[8];
    Weir__RunSpec *spec;
    struct dataset *dataset;
    snprintf(data, sizeof data, "train: {format: tokens, file: a.bin, dtype: u16, context: 4, stride: %llu}",
             (unsigned long long)stride);
    dataset = open_data(data, &spec);
    assert_int_equal(bind_labels(dataset, 4, &rule, &form, &err), 0);
    assert_true(
        dataset_labels_count_alike(dataset, &form, &(struct label_rule){.classes = 50, .ignore_index = 10}));
    assert_false(dataset_labels_count_alike(dataset, &form, &rule));
    dataset_label_weights(dataset, &form, &rule, weights);
    for (uint64_t s = 0; s < dataset_samples(dataset); s++) {
      double wanted = 0;
      for (uint64_t i = 0; i < 4; i++)
        wanted += tokens[s * stride + i + 1] != 9;
      assert_true(weights[s] == wanted);
    }
    dataset_close(dataset);
    spec_free(spec);
  }
}

static void a_token_file_without_a_window_is_refused(void **state) {
  static const uint16_t tokens[] = {1, 2, 3, 4};
  (void)state;
  write_file("a.bin", tokens, sizeof tokens - 1);
  refuse_data("train: {format: tokens, file: a.bin, dtype: u16, context: 1}", ERR_CORRUPT,
              "a.bin: ends within a token");
  write_file("a.bin", tokens, sizeof tokens);
  refuse_data("train: {format: tokens, file: a.bin, dtype: u16, context: 4}", ERR_INVALID,
              "a.bin: has 4 tokens; a sample of 4 and the one after it need more");
  refuse_data("train: {format: tokens, file: a.bin, dtype: u16, context: 18446744073709551615}", ERR_INVALID,
              "has 4 tokens");
  refuse_data("train: {format: tokens, file: a.bin, dtype: u16, context: 0}", ERR_INVALID,
              "data.train.context");
  refuse_data("train: {format: tokens, file: a.bin, dtype: u16, context: 1, stride: 0}", ERR_INVALID,
              "data.train.stride");
  refuse_data("train: {format: tokens, file: a.bin, dtype: u8, context: 1}", ERR_INVALID,
              "data.train.dtype: 'u8' is not known (known: u16, u32)");
  refuse_data("train: {format: tokens, file: a.bin, context: 1}", ERR_INVALID,
              "data.train.dtype: is missing");
}

#define TEXTS "train: {format: text, file: a.txt, context: 3}, eval: {format: text, file: b.txt, context: 2}"

/* Sorted: newline 0, a 1, b 2, e-acute 3, euro 4, clef 5 */
static void characters_are_numbered_by_the_order_of_train_s_code_points(void **state) {
  struct dataset *dataset;
  Weir__RunSpec *spec;
  (void)state;
  write_text("a.txt", "b\xc3\xa9"
                      "a\n\xe2\x82\xac\xf0\x9d\x84\x9e"
                      "bb");
  write_text("b.txt", "\xf0\x9d\x84\x9e"
                      "ab");
  dataset = open_data(TEXTS, &spec);
  assert_int_equal(dataset_samples(dataset), 2);
  expect_integers(dataset, "tokens", 0, 3, (int64_t[]){2, 3, 1});
  expect_integers(dataset, "labels", 1, 3, (int64_t[]){4, 5, 2});
  dataset_close(dataset);
  spec_free(spec);
  dataset = open_at(NULL, TEXTS, true, &spec);
  expect_integers(dataset, "tokens", 0, 2, (int64_t[]){5, 1});
  dataset_close(dataset);
  spec_free(spec);
  write_text("b.txt", "ab\nac");
  refuse_at(NULL, TEXTS, true, ERR_INVALID, "b.txt: line 2, byte 4: the character is not in data.train");
}

static void more_characters_than_a_byte_holds_are_numbered_as_well(void **state) {
  char *text = mem_new(4000), *at = text;
  struct dataset *dataset;
  Weir__RunSpec *spec;
  (void)state;
  for (int code = 0x900; code < 0x900 + 1000; code++) {
    *at++ = (char)(0xe0 | code >> 12);
    *at++ = (char)(0x80 | (code >> 6 & 0x3f));
    *at++ = (char)(0x80 | (code & 0x3f));
  }
  write_file("a.txt", text, (size_t)(at - text));
  dataset = open_data("train: {format: text, file: a.txt, context: 2, stride: 1}", &spec);
  assert_int_equal(dataset_samples(dataset), 998);
  expect_integers(dataset, "labels", 997, 2, (int64_t[]){998, 999});
  dataset_close(dataset);
  spec_free(spec);
  free(text);
}

static void bytes_are_what_they_are(void **state) {
  struct dataset *dataset;
  Weir__RunSpec *spec;
  (void)state;
  write_file("a.txt", "a\xff\0b", 4);
  dataset = open_data("train: {format: text, file: a.txt, context: 3, unit: bytes}", &spec);
  expect_integers(dataset, "tokens", 0, 3, (int64_t[]){'a', 255, 0});
  expect_integers(dataset, "labels", 0, 3, (int64_t[]){255, 0, 'b'});
  dataset_close(dataset);
  spec_free(spec);
}

static void text_that_is_not_utf8_is_refused_with_the_byte(void **state) {
  static const char *const wrong[] = {"\xff",
                                      "\x80",
                                      "\xc3",
                                      "\xc0\x80",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xe2\x82",
                                      "\xf8\x88\x80\x80\x80",
                                      "\xc3\x28"};
  char text[32];
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    snprintf(text, sizeof text, "abc%s", wrong[i]);
    write_text("a.txt", text);
    refuse_data("train: {format: text, file: a.txt, context: 1}", ERR_INVALID,
                "/a.txt: byte 3 begins no UTF-8");
  }
  refuse_data("train: {format: text, file: a.txt, context: 1, unit: words}", ERR_INVALID,
              "data.train.unit: 'words' is not known (known: characters, bytes)");
  write_text("a.txt", "ab");
  refuse_data("train: {format: text, file: a.txt, context: 2}", ERR_INVALID, "has 2 characters");
}

static bool is_as_opened(const struct dataset *dataset, const Weir__RunSpec *spec) {
  return dataset_is_as_opened(dataset, spec, spec->data->train, &everything);
}

static void changed_files_are_found_without_being_read(void **state) {
  Weir__RunSpec *spec;
  struct dataset *dataset;
  (void)state;
  write_text("notes", "one two three four five six");
  dataset = open_data("train: {format: text, file: notes, context: 4}", &spec);
  assert_true(is_as_opened(dataset, spec));
  write_text("others", "one two three four five six");
  assert_true(is_as_opened(dataset, spec));
  write_text("notes", "one two three four five six seven");
  assert_false(is_as_opened(dataset, spec));
  dataset_close(dataset);
  spec_free(spec);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cifar_s_batches_are_one_dataset),
      cmocka_unit_test(a_file_that_is_not_cifar_s_is_refused),
      cmocka_unit_test(cifar_s_kind_is_asked_for_where_sizes_leave_it_open),
      cmocka_unit_test(tokens_are_windows_and_labels_those_after_them),
      cmocka_unit_test(tokens_outside_the_vocabulary_are_named),
      cmocka_unit_test(labels_that_do_not_count_are_counted_in_every_window),
      cmocka_unit_test(a_token_file_without_a_window_is_refused),
      cmocka_unit_test(characters_are_numbered_by_the_order_of_train_s_code_points),
      cmocka_unit_test(more_characters_than_a_byte_holds_are_numbered_as_well),
      cmocka_unit_test(bytes_are_what_they_are),
      cmocka_unit_test(text_that_is_not_utf8_is_refused_with_the_byte),
      cmocka_unit_test(changed_files_are_found_without_being_read),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
