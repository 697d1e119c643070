/* Reading safetensors files that may be damaged or hostile, and starting from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "client/files/safetensors.h"

/* A file: header text, then n bytes of data 0, 1, 2, ... Freed by the caller. */
static uint8_t *file_make(const char *header, size_t data_bytes, size_t *size) {
  uint64_t header_bytes = strlen(header);
  uint8_t *bytes = malloc(8 + header_bytes + data_bytes);
  memcpy(bytes, &header_bytes, 8);
  memcpy(bytes + 8, header, header_bytes);
  for (size_t i = 0; i < data_bytes; i++)
    bytes[8 + header_bytes + i] = (uint8_t)i;
  *size = 8 + header_bytes + data_bytes;
  return bytes;
}

static enum err_code parse(const char *header, size_t data_bytes, struct safetensors *file, struct err *err) {
  size_t size;
  uint8_t *bytes = file_make(header, data_bytes, &size);
  *err = ERR_NONE;
  safetensors_parse("f", bytes, size, file, err);
  free(bytes);
  return err->code;
}

static void tensors_come_by_name_with_shape_and_values(void **state) {
  const float values[] = {1.5f, -2, 3};
  struct safetensors file;
  struct err err = ERR_NONE;
  size_t size;
  uint8_t *bytes = file_make("{\"__metadata__\":{\"format\":\"pt\"},"
                             "\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[12,20]},"
                             "\"w\":{\"dtype\":\"F32\",\"shape\":[3,1],\"data_offsets\":[0,12]} } ",
                             20, &size);
  (void)state;
  memcpy(bytes + size - 20, values, sizeof values);
  assert_int_equal(safetensors_parse("f", bytes, size, &file, &err), ERR_OK);
  free(bytes);
  assert_int_equal(file.n, 2);
  assert_string_equal(file.tensors[0].name, "w");
  assert_int_equal(file.tensors[0].shape->rank, 2);
  assert_int_equal(file.tensors[0].shape->dim[0], 3);
  assert_memory_equal(file.tensors[0].data, values, sizeof values);
  assert_null(file.tensors[1].data);
  assert_string_equal(file.dtypes[1], "I64");
  safetensors_fini(&file);
}

static void half_precision_is_widened_exactly(void **state) {
  /* 1, -2, 65504, the least normal and subnormal numbers, infinity */
  const uint16_t halves[] = {0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x7c00};
  const float wide[] = {1, -2, 65504, 0x1p-14f, 0x1p-24f, __builtin_inff()};
  const uint16_t brains[] = {0x3f80, 0xc000, 0x7f80, 0x0001, 0x4049, 0x8000};
  const float brain_wide[] = {1, -2, __builtin_inff(), 0x1p-133f, 3.140625f, -0.0f};
  struct safetensors file;
  struct err err = ERR_NONE;
  size_t size;
  uint8_t *bytes = file_make("{\"h\":{\"dtype\":\"F16\",\"shape\":[6],\"data_offsets\":[0,12]},"
                             "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[12,24]}}",
                             24, &size);
  (void)state;
  memcpy(bytes + size - 24, halves, 12);
  memcpy(bytes + size - 12, brains, 12);
  assert_int_equal(safetensors_parse("f", bytes, size, &file, &err), ERR_OK);
  free(bytes);
  assert_memory_equal(file.tensors[0].data, wide, sizeof wide);
  assert_memory_equal(file.tensors[1].data, brain_wide, sizeof brain_wide);
  safetensors_fini(&file);
}

#define F32(name, shape, begin, end)                                                                         \
  "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void damaged_headers_are_refused_and_named(void **state) {
  static const struct {
    const char *header, *says;
    size_t data_bytes;
  } cases[] = {
      {"{", "header", 0},
      {"[]", "not an object", 0},
      {"{\"a\":3}", "'a'", 0},
      {"{\"a\":{}}", "'a'", 0},
      {"{" F32("a", "[1]", "0", "4") "," F32("a", "[1]", "4", "8") "}", "duplicate", 8},
      {"{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", "unknown type 'F31'", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", "does not lie within", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", "does not lie within", 8},
      {"{" F32("a", "[-1]", "0", "4") "}", "no shape", 4},
      {"{" F32("a", "[1.0]", "0", "4") "}", "no shape", 4},
      {"{" F32("a", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", "no shape", 4},
      {"{" F32("a", "[4294967296,4294967296,4294967296]", "0", "4") "}", "no shape", 4},
      {"{" F32("a", "[9223372036854775807,4]", "0", "4") "}", "no shape", 4},
      {"{" F32("a", "[2]", "0", "4") "}", "its shape needs 8", 4},
      {"{" F32("a", "[1]", "0", "8") "}", "its shape needs 4", 8},
      {"{" F32("a", "[1]", "-4", "0") "}", "does not lie within", 4},
      {"{" F32("a", "[1]", "4", "0") "}", "does not lie within", 4},
      {"{" F32("a", "[1]", "4", "8") "}", "does not lie within", 4},
      {"{" F32("a", "[1]", "0", "99999999999999999999") "}", "header", 4},
      {"{" F32("a", "[2]", "0", "8") "," F32("b", "[2]", "4", "12") "}", "overlaps", 12},
      {"{" F32("a", "[1]", "0", "4") "," F32("b", "[1]", "8", "12") "}", "gap", 12},
      {"{" F32("a", "[1]", "0", "4") "}", "4 bytes behind", 8},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct safetensors file;
    struct err err;
    assert_int_equal(parse(cases[i].header, cases[i].data_bytes, &file, &err), ERR_INVALID);
    if (!strstr(err.text, cases[i].says))
      fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
    safetensors_fini(&file);
  }
}

static void no_length_and_no_cut_crashes_it(void **state) {
  size_t size;
  uint8_t *bytes = file_make("{" F32("a", "[2]", "0", "8") "," F32("b", "[]", "8", "12") "}", 12, &size);
  const uint64_t lengths[] = {0, 1, 0xffffffffffffffff, 0x7fffffffffffffff, 100000001, size - 8, size - 7};
  struct safetensors file;
  struct err err;
  (void)state;
  for (size_t cut = 0; cut < size; cut++) {
    uint8_t *part = malloc(cut + 1); /* of its own, so that a sanitizer sees what reads past its end */
    memcpy(part, bytes, cut);
    err = ERR_NONE;
    assert_int_not_equal(safetensors_parse("f", part, cut, &file, &err), ERR_OK);
    safetensors_fini(&file);
    free(part);
  }
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    memcpy(bytes, &lengths[i], 8);
    err = ERR_NONE;
    assert_int_equal(safetensors_parse("f", bytes, size, &file, &err), ERR_INVALID);
    safetensors_fini(&file);
  }
  free(bytes);
}

static void every_flipped_byte_of_a_header_is_survived(void **state) {
  size_t size;
  uint8_t *bytes = file_make("{" F32("a", "[2]", "0", "8") "," F32("b", "[]", "8", "12") "}", 12, &size);
  (void)state;
  for (size_t at = 0; at < size; at++)
    for (int bit = 0; bit < 8; bit++) {
      struct safetensors file;
      struct err err = ERR_NONE;
      bytes[at] ^= (uint8_t)(1 << bit);
      safetensors_parse("f", bytes, size, &file, &err);
      safetensors_fini(&file);
      bytes[at] ^= (uint8_t)(1 << bit);
    }
  free(bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensors_come_by_name_with_shape_and_values),
      cmocka_unit_test(half_precision_is_widened_exactly),
      cmocka_unit_test(damaged_headers_are_refused_and_named),
      cmocka_unit_test(no_length_and_no_cut_crashes_it),
      cmocka_unit_test(every_flipped_byte_of_a_header_is_survived),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
