/* Arrays of numpy.save as columns: what is read, what is refused, and which inputs they feed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "tests/support/worker/data_fixture.h"
#include "worker/data/dataset.h"

#define F4_2X3 "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
#define I8_2 "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }"

static char folder[64];

static void path_of(const char *name, char path[128]) {
  snprintf(path, 128, "%s/%s", folder, name);
}

static void write_file(const char *name, const void *data, size_t size) {
  char path[128];
  FILE *file;
  path_of(name, path);
  file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, size, file), size);
  fclose(file);
}

/* A file of that version with a header and data after it; returns its size, which is also in out. */
static size_t make_npy(unsigned char out[512], int version, const char *header, const void *data,
                       size_t size) {
  size_t length = strlen(header), begin = version == 1 ? 10 : 12;
  memset(out, 0, 512);
  memcpy(out, "\x93NUMPY", 6);
  out[6] = (unsigned char)version;
  out[8] = (unsigned char)length;
  out[9] = (unsigned char)(length >> 8);
  memcpy(out + begin, header, length);
  memcpy(out + begin + length, data, size);
  return begin + length + size;
}

static void write_npy(const char *name, const char *header, const void *data, size_t size) {
  unsigned char bytes[512];
  write_file(name, bytes, make_npy(bytes, 1, header, data, size));
}

static int make_folder(void **state) {
  static const float floats[6] = {1, 2, 3, 4, 5, -6};
  static const int64_t wide[2] = {7, 1LL << 31};
  static const int32_t narrow[2] = {-5, 255};
  (void)state;
  strcpy(folder, "/tmp/weir-npy-XXXXXX");
  if (!mkdtemp(folder))
    return -1;
  write_npy("floats.npy", F4_2X3, floats, sizeof floats);
  write_npy("wide.npy", I8_2, wide, sizeof wide);
  write_npy("narrow.npy", "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", narrow, sizeof narrow);
  write_npy("bytes.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", "\0\x01", 2);
  write_npy("flags.npy", "{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", "\0\x01", 2);
  write_npy("three.npy", "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", "\0\x01\x01", 3);
  return 0;
}

static int remove_folder(void **state) {
  static const char *const names[] = {"floats.npy", "wide.npy",  "narrow.npy", "bytes.npy",
                                      "flags.npy",  "three.npy", "other.npy"};
  char path[128];
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    path_of(names[i], path);
    unlink(path);
  }
  return rmdir(folder);
}

static Weir__RunSpec *make_spec(const char *columns) {
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  char *text = mem_printf("name: t\nmodel: {onnx: m}\ndata:\n  root: %s\n"
                          "  train: {format: npy, columns: {%s}}\n"
                          "train: {epochs: 3, batch: 2, optimizer: {lr: 1}}\n",
                          folder, columns);
  if (spec_read("t", text, strlen(text), &spec, &err) || spec_check(spec, &err))
    fail_msg("%s", err.text);
  free(text);
  return spec;
}

static struct dataset *open_columns(const char *columns, Weir__RunSpec **spec) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  *spec = make_spec(columns);
  if (dataset_open(*spec, (*spec)->data->train, &everything, &dataset, &err))
    fail_msg("%s", err.text);
  return dataset;
}

static void refuse(const char *columns, enum err_code code, const char *wanted) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  Weir__RunSpec *spec = make_spec(columns);
  int got = dataset_open(spec, spec->data->train, &everything, &dataset, &err);
  if (got != (int)code || !strstr(err.text, wanted))
    fail_msg("%d '%s' is not %d with '%s'", got, err.text, code, wanted);
  spec_free(spec);
}

static void refuse_header(const char *header, size_t data_bytes, enum err_code code, const char *wanted) {
  static const unsigned char zeros[64];
  write_npy("other.npy", header, zeros, data_bytes);
  refuse("x: other.npy", code, wanted);
}

static void every_version_of_the_format_is_read_alike(void **state) {
  static const char *const headers[2] = {F4_2X3 "   \n",
                                         "{'shape': (2, 3), \"fortran_order\": False, 'descr': \"<f4\"}"};
  static const float floats[6] = {1, 2, 3, 4, 5, -6};
  Weir__RunSpec *spec, *same_spec;
  struct dataset *dataset = open_columns("x: floats.npy", &spec), *same;
  unsigned char bytes[512];
  (void)state;
  assert_int_equal(dataset_samples(dataset), 2);
  for (int version = 1; version <= 3; version++)
    for (int h = 0; h < 2; h++) {
      write_file("other.npy", bytes, make_npy(bytes, version, headers[h], floats, sizeof floats));
      same = open_columns("x: other.npy", &same_spec);
      assert_string_equal(dataset_sha256(dataset), dataset_sha256(same));
      dataset_close(same);
      spec_free(same_spec);
    }
  dataset_close(dataset);
  spec_free(spec);
}

static void a_header_that_numpy_does_not_write_is_refused_with_the_cause(void **state) {
  (void)state;
  refuse_header("", 0, ERR_INVALID, "/other.npy: its npy header cannot be read: '{' is wanted");
  refuse_header("{'descr': '<f4'", 0, ERR_INVALID, "',' or '}' is wanted");
  refuse_header("{'descr': '<f4}", 0, ERR_INVALID, "the end of a text is wanted");
  refuse_header("{'descr': __import__('os')}", 0, ERR_INVALID, "a quoted text is wanted at byte 20");
  refuse_header("{'descr': '<f4', }", 0, ERR_INVALID, "lacks the key 'fortran_order'");
  refuse_header("{'descr': '<f4', 'descr': '<i8'}", 0, ERR_INVALID,
                "the key that ends at byte 34 of its npy header is there twice");
  refuse_header("{'size': 1}", 0, ERR_INVALID, "the key that ends at byte 17 of its npy header is not known");
  refuse_header("{'fortran_order': 0}", 0, ERR_INVALID, "True or False is wanted at byte 28");
  refuse_header("{'shape': [2]}", 0, ERR_INVALID, "the shape's '(' is wanted");
  refuse_header("{'shape': (2)}", 0, ERR_INVALID, "',' or the shape's ')' is wanted");
  refuse_header("{'shape': (-2,)}", 0, ERR_INVALID, "a dimension is wanted");
  refuse_header("{'shape': (99999999999999999999,)}", 0, ERR_INVALID, "impossibly large");
  refuse_header("{'shape': (1,1,1,1,1,1,1,1,1)}", 0, ERR_UNSUPPORTED, "more than 8 dimensions");
  refuse_header(I8_2 "}", 16, ERR_INVALID, "the header's end is wanted");
}

static void an_array_that_is_no_column_is_refused_with_what_to_do(void **state) {
  (void)state;
  refuse_header("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", 16, ERR_UNSUPPORTED,
                "64-bit floats; save it as 32-bit ones: array.astype('float32')");
  refuse_header("{'descr': '>i4', 'fortran_order': False, 'shape': (2,), }", 8, ERR_UNSUPPORTED,
                "big-endian");
  refuse_header("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", 8, ERR_UNSUPPORTED,
                "its numpy type is not one of");
  refuse_header("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2,), }", 8, ERR_UNSUPPORTED,
                "is a structured array");
  refuse_header("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 2), }", 16, ERR_UNSUPPORTED,
                "Fortran order; save numpy.ascontiguousarray(array)");
  refuse_header("{'descr': '<i4', 'fortran_order': False, 'shape': (), }", 4, ERR_INVALID,
                "is a single number");
  refuse_header("{'descr': '<i4', 'fortran_order': False, 'shape': (0, 2), }", 0, ERR_INVALID,
                "has no sample");
  refuse_header("{'descr': '<i4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 0,
                ERR_INVALID, "impossible dimensions");
  refuse_header("{'descr': '<i4', 'fortran_order': False, 'shape': (4611686018427387904,), }", 16,
                ERR_CORRUPT, "cut short");
  refuse_header(I8_2, 15, ERR_CORRUPT, "cut short: its header announces more than the 15 bytes");
  refuse_header(I8_2, 17, ERR_INVALID, "goes on after the 16 bytes");
}

static void a_file_that_is_not_npy_is_refused_with_its_name(void **state) {
  (void)state;
  write_file("other.npy", "", 0);
  refuse("x: other.npy", ERR_CORRUPT, "/other.npy: cut short: it is empty");
  write_file("other.npy", "hello, this is text", 19);
  refuse("x: other.npy", ERR_INVALID, "/other.npy: is not a file of numpy.save");
  write_file("other.npy", "\x93NUMPY\4\0\0\0\0\0", 12);
  refuse("x: other.npy", ERR_UNSUPPORTED, "its npy version is not one of 1.0, 2.0, 3.0");
  write_file("other.npy", "\x93NUMPY\2\0\xff\xff\xff\xff{}", 14);
  refuse("x: other.npy", ERR_CORRUPT, "it ends within its header");
  refuse("x: absent.npy", ERR_NOT_FOUND, "/absent.npy: No such file");
  refuse("x: .", ERR_INVALID, "is not a file");
  refuse("x: ../floats.npy", ERR_INVALID, "'../floats.npy' names no file below");
  refuse("x: a..b/../../floats.npy", ERR_INVALID, "names no file below");
  refuse("x: /etc/passwd", ERR_INVALID, "'/etc/passwd' names no file below");
  refuse("x: floats.npy, flags: three.npy", ERR_INVALID, "2 x but 3 flags");
  refuse("", ERR_INVALID, "data.train.columns: is missing; format 'npy' has the keys columns");
}

static void damaged_arrays_never_crash_the_reader(void **state) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  unsigned char bytes[512];
  static const int64_t wide[2] = {7, 8};
  size_t size = make_npy(bytes, 1, I8_2, wide, sizeof wide);
  Weir__RunSpec *spec = make_spec("x: other.npy");
  (void)state;
  for (size_t cut = 0; cut < size; cut++) {
    write_file("other.npy", bytes, cut);
    assert_int_not_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
  }
  for (size_t at = 0; at < size; at++)
    for (int bit = 0; bit < 8; bit++) {
      bytes[at] ^= (unsigned char)(1 << bit);
      write_file("other.npy", bytes, size);
      if (dataset_open(spec, spec->data->train, &everything, &dataset, &err) == 0)
        dataset_close(dataset);
      bytes[at] ^= (unsigned char)(1 << bit);
    }
  spec_free(spec);
}

/* A dataset, and the column of it that was bound last. */
struct opened {
  struct dataset *dataset;
  Weir__RunSpec *spec;
  struct column_form form;
  struct err err;
};

/* Binds the column to an input of this type, of one number a sample. */
static int bind(struct opened *o, const char *column, enum dtype dtype) {
  struct value value = {.name = "in", .dtype = dtype, .shape = {1, {2}}};
  struct training_input input = {.spec = o->spec, .value = &value};
  return bind_column(o->dataset, column, &input, &o->form, &o->err);
}

static void a_file_that_is_cut_while_it_is_used_is_an_error_not_a_signal(void **state) {
  enum { SAMPLES = 4096 };
  static unsigned char bytes[128 + SAMPLES * sizeof(int64_t)];
  static int64_t out[2];
  static const uint64_t indices[2] = {SAMPLES - 1, 0};
  struct opened o = {.err = ERR_NONE};
  char path[128];
  size_t begin;
  (void)state;
  begin = make_npy(bytes, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (4096,), }", "", 0);
  memset(bytes + begin, 1, sizeof bytes - begin);
  write_file("other.npy", bytes, begin + SAMPLES * sizeof(int64_t));
  o.dataset = open_columns("x: other.npy", &o.spec);
  assert_int_equal(bind(&o, "x", DTYPE_I64), 0);
  read_samples(o.dataset, &o.form, indices, 2, out);
  assert_true(out[0] == 0x0101010101010101 && out[1] == out[0]);
  assert_int_equal(dataset_check(o.dataset, &o.err), 0);
  path_of("other.npy", path);
  assert_int_equal(truncate(path, 4096), 0);
  read_samples(o.dataset, &o.form, indices, 2, out);
  assert_true(out[0] == 0 && out[1] == 0x0101010101010101);
  assert_int_equal(dataset_check(o.dataset, &o.err), ERR_CORRUPT);
  assert_non_null(strstr(o.err.text, "/other.npy: was cut or could not be read while it was in use"));
  dataset_close(o.dataset);
  spec_free(o.spec);
}

static void whole_numbers_feed_every_input_that_holds_them(void **state) {
  static const uint64_t indices[2] = {1, 0};
  struct opened o = {.err = ERR_NONE};
  int64_t wide[2];
  int32_t narrow[2];
  uint8_t bytes[2];
  float floats[2];
  (void)state;
  o.dataset = open_columns("wide: wide.npy, narrow: narrow.npy, bytes: bytes.npy, flags: flags.npy", &o.spec);
  assert_int_equal(bind(&o, "wide", DTYPE_I64), 0);
  read_samples(o.dataset, &o.form, indices, 2, wide);
  assert_true(wide[0] == 1LL << 31 && wide[1] == 7);
  assert_int_equal(bind(&o, "narrow", DTYPE_I64), 0);
  read_samples(o.dataset, &o.form, indices, 2, wide);
  assert_true(wide[0] == 255 && wide[1] == -5);
  assert_int_equal(bind(&o, "bytes", DTYPE_I32), 0);
  read_samples(o.dataset, &o.form, indices, 2, narrow);
  assert_true(narrow[0] == 1 && narrow[1] == 0);
  assert_int_equal(bind(&o, "bytes", DTYPE_BOOL), 0);
  read_samples(o.dataset, &o.form, indices, 2, bytes);
  assert_true(bytes[0] == 1 && bytes[1] == 0);
  assert_int_equal(bind(&o, "flags", DTYPE_U8), 0);
  read_samples(o.dataset, &o.form, indices, 2, bytes);
  assert_true(bytes[0] == 1 && bytes[1] == 0);
  assert_int_equal(bind(&o, "narrow", DTYPE_F32), 0);
  read_samples(o.dataset, &o.form, indices, 2, floats);
  assert_true(floats[0] == 255 && floats[1] == -5);
  dataset_close(o.dataset);
  spec_free(o.spec);
}

static void what_an_input_cannot_hold_is_named_with_its_sample(void **state) {
  struct opened o = {.err = ERR_NONE};
  struct value rows = {.name = "in", .dtype = DTYPE_I64, .shape = {2, {2, 3}}};
  (void)state;
  o.dataset = open_columns("wide: wide.npy, narrow: narrow.npy, floats: floats.npy", &o.spec);
  assert_int_equal(bind(&o, "wide", DTYPE_I32), ERR_INVALID);
  assert_string_equal(o.err.text, "wide: sample 1 holds a number that the model's input 'in' (i32) cannot");
  assert_int_equal(bind(&o, "narrow", DTYPE_U8), ERR_INVALID);
  assert_string_equal(o.err.text, "narrow: sample 0 holds a number that the model's input 'in' (u8) cannot");
  assert_int_equal(bind_column(o.dataset, "floats", &(struct training_input){.spec = o.spec, .value = &rows},
                               &o.form, &o.err),
                   ERR_INVALID);
  assert_string_equal(o.err.text, "column 'floats' is f32, the model's input 'in' wants i64");
  dataset_close(o.dataset);
  spec_free(o.spec);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_version_of_the_format_is_read_alike),
      cmocka_unit_test(a_header_that_numpy_does_not_write_is_refused_with_the_cause),
      cmocka_unit_test(an_array_that_is_no_column_is_refused_with_what_to_do),
      cmocka_unit_test(a_file_that_is_not_npy_is_refused_with_its_name),
      cmocka_unit_test(damaged_arrays_never_crash_the_reader),
      cmocka_unit_test(a_file_that_is_cut_while_it_is_used_is_an_error_not_a_signal),
      cmocka_unit_test(whole_numbers_feed_every_input_that_holds_them),
      cmocka_unit_test(what_an_input_cannot_hold_is_named_with_its_sample),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
