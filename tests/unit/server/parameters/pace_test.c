/* When a step is late. Time is the tests'. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "server/parameters/run/pace.h"

enum { MS = 1000000 };

struct fixture {
  struct pace pace;
  uint64_t step, now_ns;
};

static void fixture_init(struct fixture *f) {
  *f = (struct fixture){.step = 40, .now_ns = UINT64_C(7000000) * MS};
  pace_init(&f->pace, f->step, f->now_ns);
}

static void fixture_fini(struct fixture *f) {
  pace_fini(&f->pace);
}

static void hear(struct fixture *f, uint64_t view) {
  pace_hear(&f->pace, f->step, view, f->now_ns);
}

/* The present step is over after this time; is_evaluated: the next one, of which a part comes at once, waits
   for an evaluation. */
static void complete(struct fixture *f, uint64_t ms, bool is_evaluated) {
  f->now_ns += ms * MS;
  pace_begin(&f->pace, ++f->step, is_evaluated, f->now_ns);
  hear(f, 0);
}

static bool is_late_after(struct fixture *f, uint64_t ms) {
  struct pace_late late;
  if (!pace_is_late(&f->pace, &pace_defaults, f->now_ns + ms * MS, &late))
    return false;
  assert_int_equal(late.step, f->step);
  assert_int_equal(late.waited_ns, ms * MS);
  return true;
}

/* Not a millisecond before. It is told by that. */
static void assert_late_after(struct fixture *f, uint64_t ms) {
  assert_false(is_late_after(f, ms - 1));
  assert_true(is_late_after(f, ms));
}

static void a_step_is_late_after_twice_the_median(void **state) {
  static const uint64_t durations_ms[] = {300, 9000, 310, 290, 305};
  struct fixture f;
  (void)state;
  fixture_init(&f);
  complete(&f, 20000, false); /* the first */
  for (int i = 0; i < 5; i++)
    complete(&f, durations_ms[i], false);
  assert_late_after(&f, 610);
  fixture_fini(&f);
}

static void a_quick_step_is_given_200_ms(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  for (int i = 0; i < 10; i++)
    complete(&f, 3, false);
  assert_late_after(&f, 200);
  fixture_fini(&f);
}

/* The first one does not count: workers begin at different times. */
static void a_minute_passes_before_there_is_a_median(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  assert_late_after(&f, 60000);
  for (int i = 0; i < PACE_STEPS_LEAST; i++) {
    complete(&f, 400, false);
    assert_false(is_late_after(&f, 59999));
  }
  complete(&f, 400, false);
  assert_late_after(&f, 800);
  fixture_fini(&f);
}

static void the_newest_31_steps_count(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  for (int i = 0; i < 100; i++)
    complete(&f, 5000, false);
  for (int i = 0; i < 15; i++)
    complete(&f, 400, false);
  assert_late_after(&f, 10000);
  complete(&f, 400, false);
  assert_late_after(&f, 800);
  fixture_fini(&f);
}

static void late_step(struct fixture *f, uint64_t ms) {
  assert_true(is_late_after(f, ms - 1));
  complete(f, ms, false);
}

/* 400, 500 and 625 ms are the medians that half the window's late steps make one of the other. */
static void a_late_step_counts_as_little_longer_than_the_median(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  for (int i = 0; i < 40; i++)
    complete(&f, 400, false);
  for (int i = 0; i < 15; i++)
    late_step(&f, 10000);
  assert_late_after(&f, 800);
  complete(&f, 10000, false);
  assert_late_after(&f, 1000);
  complete(&f, 10000, false);
  for (int i = 0; i < 14; i++)
    late_step(&f, 10000);
  assert_late_after(&f, 1000);
  complete(&f, 10000, false);
  assert_late_after(&f, 1250);
  fixture_fini(&f);
}

static void evaluated_steps_have_a_median_of_their_own(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  for (int i = 0; i < 5; i++)
    complete(&f, 400, i == 4);
  assert_late_after(&f, 60000); /* none was evaluated before */
  complete(&f, 3000, false);
  assert_late_after(&f, 800);
  complete(&f, 400, true);
  assert_late_after(&f, 6000);
  fixture_fini(&f);
}

/* Where steps take a minute, so may what goes with the first evaluation. */
static void a_first_evaluation_is_given_what_two_steps_take(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  for (int i = 0; i < 5; i++)
    complete(&f, 50000, i == 4);
  assert_late_after(&f, 100000);
  fixture_fini(&f);
}

static void a_step_in_which_a_newer_view_begins_does_not_count(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  hear(&f, 7);
  for (int i = 0; i < 4; i++)
    complete(&f, 400, false);
  for (uint64_t view = 8; view < 50; view++) { /* of which the other workers learn later */
    hear(&f, view - 1);
    hear(&f, view);
    complete(&f, 3000, false);
    hear(&f, view - 1);
    hear(&f, ++view);
    complete(&f, 3000, false);
    hear(&f, view - 1);
    hear(&f, view);
    hear(&f, 0); /* a client that is no worker */
    complete(&f, 400, false);
  }
  assert_late_after(&f, 800);
  fixture_fini(&f);
}

static void a_late_step_is_told_again_with_growing_pauses(void **state) {
  struct fixture f;
  uint64_t after_ms = 1000, pause_ms = 1000;
  (void)state;
  fixture_init(&f);
  for (int i = 0; i < 10; i++)
    complete(&f, 500, false);
  for (int i = 0; i < 70; i++) {
    assert_late_after(&f, after_ms);
    after_ms += pause_ms;
    pause_ms = 2 * pause_ms < pace_defaults.pause_max_ms ? 2 * pause_ms : pace_defaults.pause_max_ms;
  }
  complete(&f, after_ms, false);
  assert_late_after(&f, 1000);
  assert_late_after(&f, 2000);
  fixture_fini(&f);
}

static void a_step_that_is_given_more_than_the_longest_pause_is_told_as_often(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  for (int i = 0; i < 10; i++)
    complete(&f, 30000, false);
  for (uint64_t i = 1; i < 5; i++)
    assert_late_after(&f, 60000 * i);
  fixture_fini(&f);
}

/* Another server may be at the step before, so that no worker has begun this one. */
static void a_step_of_which_nothing_has_come_is_given_more(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  for (int i = 0; i < 10; i++)
    complete(&f, 500, false);
  pace_begin(&f.pace, ++f.step, false, f.now_ns);
  assert_late_after(&f, 4000);
  pace_begin(&f.pace, ++f.step, false, f.now_ns);
  pace_hear(&f.pace, f.step, 0, f.now_ns + UINT64_C(3999) * MS);
  pace_hear(&f.pace, f.step, 0, f.now_ns + UINT64_C(4100) * MS);
  assert_late_after(&f, 4499);
  pace_begin(&f.pace, ++f.step, false, f.now_ns);
  pace_hear(&f.pace, f.step, 0, f.now_ns + UINT64_C(450) * MS);
  assert_late_after(&f, 1000);
  fixture_fini(&f);
}

static void another_coordinator_is_told_at_once(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  for (int i = 0; i < 10; i++)
    complete(&f, 500, false);
  pace_tell_anew(&f.pace);
  assert_late_after(&f, 1000);
  assert_true(is_late_after(&f, 2000));
  assert_true(is_late_after(&f, 4000));
  assert_false(is_late_after(&f, 4001));
  pace_tell_anew(&f.pace);
  assert_true(is_late_after(&f, 4001));
  assert_late_after(&f, 5001);
  fixture_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_step_is_late_after_twice_the_median),
      cmocka_unit_test(a_quick_step_is_given_200_ms),
      cmocka_unit_test(a_minute_passes_before_there_is_a_median),
      cmocka_unit_test(the_newest_31_steps_count),
      cmocka_unit_test(a_late_step_counts_as_little_longer_than_the_median),
      cmocka_unit_test(evaluated_steps_have_a_median_of_their_own),
      cmocka_unit_test(a_first_evaluation_is_given_what_two_steps_take),
      cmocka_unit_test(a_step_in_which_a_newer_view_begins_does_not_count),
      cmocka_unit_test(a_late_step_is_told_again_with_growing_pauses),
      cmocka_unit_test(a_step_that_is_given_more_than_the_longest_pause_is_told_as_often),
      cmocka_unit_test(a_step_of_which_nothing_has_come_is_given_more),
      cmocka_unit_test(another_coordinator_is_told_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
