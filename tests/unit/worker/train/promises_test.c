/* What runs that a worker has loaded were promised of its memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/train/run/promises.h"

static void what_was_promised_and_not_touched_is_not_free(void **state) {
  (void)state;
  assert_true(promises_left(0, 4, 20) == 20);
  assert_true(promises_left(10, 4, 20) == 14);
  assert_true(promises_left(10, 12, 20) == 20); /* all of it, and the process has more besides */
  assert_true(promises_left(30, 4, 20) == 0);
  assert_true(promises_left(30, 4, UINT64_MAX) == UINT64_MAX); /* nobody says what there is */
}

static void programs_share_what_they_may_take_together(void **state) {
  struct promises promises;
  const struct promise none = {0}, one = {.bytes = 70, .programs = 60}, other = {.programs = 30};
  (void)state;
  promises_init(&promises);
  assert_true(promises_open(&promises, 100).programs == 100);
  promises_close(&promises, &one);
  assert_true(promises_open(&promises, 100).programs == 40);
  promises_close(&promises, &other);
  assert_true(promises_open(&promises, 50).programs == 0);
  promises_close(&promises, &none);
  promises_give_back(&promises, &one);
  assert_true(promises_open(&promises, 100).programs == 70);
  promises_close(&promises, &none);
  assert_true(promises_open(&promises, 0).programs == UINT64_MAX); /* no bound */
  promises_close(&promises, &none);
  promises_fini(&promises);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_promised_and_not_touched_is_not_free),
      cmocka_unit_test(programs_share_what_they_may_take_together),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
