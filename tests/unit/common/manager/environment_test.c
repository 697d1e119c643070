/* Variables of the environment that are a word of a few. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/manager/environment.h"

static void expect(const char *name, const char *value, const char *text) {
  struct err err = ERR_NONE;
  setenv(name, value, 1);
  assert_int_equal(environment_check(&err), text ? ERR_INVALID : ERR_OK);
  assert_string_equal(err.text, text ? text : "");
  unsetenv(name);
}

static void words_are_taken_as_they_are(void **state) {
  (void)state;
  expect("WEIR_LOG", "", NULL);
  expect("WEIR_LOG", "error", NULL);
  expect("WEIR_LOG_FORMAT", "json", NULL);
  expect("WEIR_SHM", "off", NULL);
  expect("WEIR_INSECURE", "0", NULL);
  expect("WEIR_SOCKETS", "1", NULL);
}

static void other_words_are_refused(void **state) {
  (void)state;
  expect("WEIR_LOG", "LOUD", "WEIR_LOG is debug, info, warn, error or nothing, not 'LOUD'");
  expect("WEIR_LOG_FORMAT", "jso", "WEIR_LOG_FORMAT is text, json or nothing, not 'jso'");
  expect("WEIR_SHM", "0", "WEIR_SHM is on, off or nothing, not '0'");
  expect("WEIR_INSECURE", " ", "WEIR_INSECURE is 1, 0 or nothing, not ' '");
  expect("WEIR_SOCKETS", "yes", "WEIR_SOCKETS is 1, 0 or nothing, not 'yes'");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(words_are_taken_as_they_are),
      cmocka_unit_test(other_words_are_refused),
  };
  unsetenv("WEIR_LOG");
  unsetenv("WEIR_LOG_FORMAT");
  unsetenv("WEIR_SHM");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
