/* Hashes, errors, buffers, sizes and text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/base/memory.h"
#include "common/base/sha256.h"
#include "common/base/size.h"
#include "common/base/text.h"

/* By xxhsum -H3 and the vectors of the xxHash project. */
static void known_bytes_have_their_published_hash(void **state) {
  static const char text[] = "abc";
  char long_text[1000];
  uint64_t hash;
  (void)state;
  assert_int_equal(hash_bytes("", 0), UINT64_C(0x2d06800538d394c2));
  assert_int_equal(hash_bytes(text, 3), UINT64_C(0x78af5f94892f3950));
  memset(long_text, 'x', sizeof long_text);
  hash = hash_bytes(long_text, sizeof long_text);
  for (size_t i = 0; i < sizeof long_text; i++) {
    long_text[i] ^= 1;
    assert_int_not_equal(hash_bytes(long_text, sizeof long_text), hash);
    long_text[i] ^= 1;
  }
}

static void a_known_text_has_its_published_sha256(void **state) {
  char hex[SHA256_HEX_SIZE];
  (void)state;
  sha256_hex("abc", 3, hex);
  assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void an_error_keeps_its_code_under_a_prefix(void **state) {
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(err_set(&err, ERR_CORRUPT, "block %d", 7), ERR_CORRUPT);
  assert_int_equal(err_prefix(&err, "store"), ERR_CORRUPT);
  assert_string_equal(err.text, "store: block 7");
  for (int code = 1; code < ERR_COUNT; code++)
    assert_int_not_equal(err_from_grpc_status(err_grpc_status(code)), ERR_OK);
}

/* Else a client gives up what it should try again, or tries for ever what never gets better. */
static void an_error_that_crosses_the_network_stays_retryable_or_not(void **state) {
  (void)state;
  for (int code = 1; code < ERR_COUNT; code++)
    assert_int_equal(err_is_retryable(err_from_grpc_status(err_grpc_status(code))), err_is_retryable(code));
}

static void a_buffer_is_sole_until_it_is_shared(void **state) {
  struct buffer *buffer = buffer_new(100);
  (void)state;
  assert_true(((uintptr_t)buffer->data & 63) == 0);
  assert_true(buffer_is_sole(buffer));
  buffer_get(buffer);
  assert_false(buffer_is_sole(buffer));
  buffer_put(buffer);
  assert_true(buffer_is_sole(buffer));
  buffer_put(buffer);
  assert_null(buffer_new(SIZE_MAX - 8));
}

static void amounts_of_memory_have_units_of_1000_and_1024(void **state) {
  static const struct {
    const char *text;
    uint64_t bytes;
  } sizes[] = {{"4096", 4096},
               {"1", 1},
               {"2GB", 2000000000},
               {"1.5GiB", 1610612736},
               {"3 MiB", 3145728},
               {"10KB", 10000},
               {"512B", 512},
               {"1TB", 1000000000000},
               {"0", 0},
               {"-1", 0},
               {"", 0},
               {"GB", 0},
               {"2 gigs", 0},
               {"2Gb", 0},
               {"1e30", 0},
               {"inf", 0},
               {"nan", 0},
               {" 5", 0},
               {"0.5", 0}};
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    uint64_t bytes = 0;
    assert_int_equal(size_parse(sizes[i].text, &bytes), sizes[i].bytes > 0);
    assert_int_equal(bytes, sizes[i].bytes);
  }
}

static void what_is_no_printable_utf8_is_replaced(void **state) {
  static const struct {
    const char *text, *clean;
  } cases[] = {
      {"", ""},
      {"run 7", "run 7"},
      {"\u00e9\u20ac\U0001f600\xf4\x8f\xbf\xbf", "\u00e9\u20ac\U0001f600\xf4\x8f\xbf\xbf"},
      {"a\nb\x1b[2J\x7f", "a?b?[2J?"},
      {"\xff", "?"},
      {"a\x80z", "a?z"},
      {"\xc3", "?"},
      {"\xc3(", "?("},
      {"\xc0\xaf", "??"},
      {"\xe0\x80\xaf", "???"},
      {"\xe2\x82\xac\xe2\x82", "\u20ac??"},
      {"\xed\xa0\x80", "???"},
      {"\xf0\x9f\x98", "???"},
      {"\xf4\x90\x80\x80", "????"},
  };
  char *copy;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    copy = text_copy_clean(cases[i].text, 100);
    assert_string_equal(copy, cases[i].clean);
    assert_int_equal(text_is_clean(cases[i].text), strcmp(cases[i].text, cases[i].clean) == 0);
    assert_true(text_is_clean(copy));
    free(copy);
  }
  copy = text_copy_clean("ab\u20ac", 4); /* cut within a character */
  assert_string_equal(copy, "ab??");
  free(copy);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_bytes_have_their_published_hash),
      cmocka_unit_test(a_known_text_has_its_published_sha256),
      cmocka_unit_test(an_error_keeps_its_code_under_a_prefix),
      cmocka_unit_test(an_error_that_crosses_the_network_stays_retryable_or_not),
      cmocka_unit_test(a_buffer_is_sole_until_it_is_shared),
      cmocka_unit_test(amounts_of_memory_have_units_of_1000_and_1024),
      cmocka_unit_test(what_is_no_printable_utf8_is_replaced),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
