/* Which runs that rest are forgotten, and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/resting.h"

#define SECOND UINT64_C(1000000000)

/* Never looked at: runs are told apart by their places alone. */
static char places[RESTING_MAX + 1];

static struct run *run_at(int i) {
  return (struct run *)&places[i];
}

static void runs_are_kept_for_as_long_as_they_may_be_of_use(void **state) {
  struct resting resting;
  (void)state;
  resting_init(&resting);
  assert_true(resting_due_ns(&resting) == 0);
  assert_null(resting_add(&resting, run_at(0), false, SECOND)); /* waits for its turn */
  assert_null(resting_add(&resting, run_at(1), true, 2 * SECOND));
  assert_true(resting_due_ns(&resting) == 62 * SECOND);
  assert_null(resting_take_old(&resting, 62 * SECOND - 1));
  assert_ptr_equal(resting_take_old(&resting, 62 * SECOND), run_at(1));
  assert_null(resting_take_old(&resting, 62 * SECOND));
  assert_true(resting_due_ns(&resting) == 1801 * SECOND);
  assert_ptr_equal(resting_take_old(&resting, 1801 * SECOND), run_at(0));
  assert_null(resting_take_any(&resting));
  resting_fini(&resting);
}

static void those_that_are_over_make_room_first(void **state) {
  struct resting resting;
  (void)state;
  resting_init(&resting);
  for (int i = 0; i < RESTING_MAX; i++)
    assert_null(resting_add(&resting, run_at(i), i == 2, SECOND));
  assert_ptr_equal(resting_add(&resting, run_at(RESTING_MAX), false, SECOND), run_at(2));
  assert_ptr_equal(resting_take_any(&resting), run_at(0));
  resting_fini(&resting);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_are_kept_for_as_long_as_they_may_be_of_use),
      cmocka_unit_test(those_that_are_over_make_room_first),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
