/* The floating-point setting: what it does, who has it, and that text keeps the numbers which sums do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/agree/float_setting.h"

static void subnormals_count_as_zero_with_their_sign(void **state) {
  volatile float least = 1.17549435e-38f, quarter = 0.25f, product = -least * quarter, sum;
  uint32_t word = 0x007fffff;
  volatile float subnormal;
  float here;
  (void)state;
  assert_true(product == 0 && __builtin_signbit(product));
  memcpy(&here, &word, sizeof here);
  subnormal = here;
  sum = subnormal + subnormal;
  assert_true(sum == 0 && !__builtin_signbit(sum));
}

static void *look(void *found) {
  *(bool *)found = float_setting_holds();
  float_setting_require("looker");
  return NULL;
}

static void a_thread_has_it_from_the_one_that_starts_it(void **state) {
  pthread_t thread;
  bool found = false;
  (void)state;
  assert_int_equal(pthread_create(&thread, NULL, look, &found), 0);
  pthread_join(thread, NULL);
  assert_true(found);
}

static void whoever_changed_it_is_named_and_it_holds_again(void **state) {
  static const int roundings[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(float_setting_check("'/lib/good.so'", &err), ERR_OK);
  for (int r = 0; r < 3; r++) {
    fesetround(roundings[r]);
    assert_false(float_setting_holds());
    assert_int_equal(float_setting_check("'/lib/bad.so'", &err), ERR_UNAVAILABLE);
    assert_non_null(strstr(err.text, "'/lib/bad.so' changed the floating-point setting from 0x"));
    assert_true(float_setting_holds());
  }
  fesetenv(FE_DFL_ENV); /* subnormals are numbers */
  assert_int_equal(float_setting_check("it", &err), ERR_UNAVAILABLE);
  assert_true(float_setting_holds());
}

/* Exceptions that were raised are no part of it. */
static void flags_do_not_count(void **state) {
  volatile double zero = 0, one = 1, gone;
  (void)state;
  gone = one / zero;
  (void)gone;
  assert_true(float_setting_holds());
}

static void a_thread_without_it_does_not_start_to_compute(void **state) {
  int status;
  pid_t pid = fork();
  (void)state;
  if (pid == 0) {
    fclose(stderr);
    signal(SIGABRT, SIG_DFL);
    fesetround(FE_UPWARD);
    float_setting_require("stray");
    _exit(0);
  }
  waitpid(pid, &status, 0);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* Conversions are by whole numbers: bits are compared, since a comparison counts subnormals as zero. */
static void text_keeps_subnormals(void **state) {
  static const struct {
    const char *text;
    uint64_t bits;
  } cases[] = {{"5e-324", 1}, {"-5e-324", 0x8000000000000001}, {"2.2250738585072009e-308", 0xfffffffffffff}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double value = strtod(cases[i].text, NULL), back;
    char text[64];
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    assert_int_equal(bits, cases[i].bits);
    snprintf(text, sizeof text, "%.17g", value);
    back = strtod(text, NULL);
    assert_memory_equal(&back, &value, sizeof back);
  }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(subnormals_count_as_zero_with_their_sign),
      cmocka_unit_test(a_thread_has_it_from_the_one_that_starts_it),
      cmocka_unit_test(whoever_changed_it_is_named_and_it_holds_again),
      cmocka_unit_test(flags_do_not_count),
      cmocka_unit_test(a_thread_without_it_does_not_start_to_compute),
      cmocka_unit_test(text_keeps_subnormals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
