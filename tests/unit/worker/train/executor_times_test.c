/* What executors do of their time, in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/train/executor/executor_times.h"

static void parts_are_of_the_time_from_the_first_task_to_the_last(void **state) {
  struct executor_times times = {0};
  char text[EXECUTOR_TIMES_SIZE];
  (void)state;
  executor_times_add(&times, 1000, 1400);
  executor_times_add(&times, 1900, 2000);
  times.weights_ns = 150;
  times.data_ns = 50;
  assert_int_equal(executor_times_computed_ns(&times), 300);
  executor_times_text(&times, text);
  assert_string_equal(text, "computed 30 %, waited for weights 15 %, for data 5 %");
}

static void the_longest_text_is_not_cut(void **state) {
  struct executor_times times = {.task_ns = 30, .weights_ns = 10, .data_ns = 10};
  char text[EXECUTOR_TIMES_SIZE];
  (void)state;
  times.ended_ns = 10;
  executor_times_text(&times, text);
  assert_string_equal(text, "computed 100 %, waited for weights 100 %, for data 100 %");
}

static void no_task_is_no_time(void **state) {
  struct executor_times times = {0};
  char text[EXECUTOR_TIMES_SIZE];
  (void)state;
  executor_times_text(&times, text);
  assert_string_equal(text, "computed 0 %, waited for weights 0 %, for data 0 %");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_are_of_the_time_from_the_first_task_to_the_last),
      cmocka_unit_test(the_longest_text_is_not_cut),
      cmocka_unit_test(no_task_is_no_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
