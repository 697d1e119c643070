/* How fast a worker computes, by what its heartbeats say. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "server/coordinator/state/speed.h"

/* A worker whose executors compute for a part of each step and wait for weights in the rest. */
struct simulated {
  struct speed speed;
  uint32_t executors;
  double microbatch_s, working; /* the part */
  double now_s, busy_s;
  uint64_t computed_before;
};

static uint64_t ms_of(double seconds) {
  return (uint64_t)(seconds * 1000);
}

/* A heartbeat a second. Microbatches that are under way do not count yet. */
static void works(struct simulated *w, double seconds) {
  for (double end_s = w->now_s + seconds; w->now_s < end_s - 0.5;) {
    w->now_s += 1;
    w->busy_s += w->executors * w->working;
    speed_add(&w->speed, w->executors, ms_of(w->now_s),
              w->computed_before + w->executors * (uint64_t)(w->busy_s / w->executors / w->microbatch_s),
              w->busy_s);
  }
}

static void changes_to(struct simulated *w, double microbatch_s) {
  w->computed_before += w->executors * (uint64_t)(w->busy_s / w->executors / w->microbatch_s);
  w->computed_before -= w->executors * (uint64_t)(w->busy_s / w->executors / microbatch_s);
  w->microbatch_s = microbatch_s;
}

static void assert_near(double value, double expected, double part) {
  if (!(fabs(value - expected) <= part * expected))
    fail_msg("%g is not within %g %% of %g", value, 100 * part, expected);
}

static void a_speed_is_that_of_the_time_in_which_executors_compute(void **state) {
  const double parts[] = {1, 0.5, 0.05};
  (void)state;
  for (int i = 0; i < 3; i++) {
    struct simulated w = {.executors = 4, .microbatch_s = 0.05, .working = parts[i], .now_s = 10};
    works(&w, 1);
    assert_true(isnan(speed_of(&w.speed, 4))); /* one heartbeat is no difference */
    works(&w, 30);
    assert_near(speed_of(&w.speed, 4), 80, 0.1);
  }
}

static void microbatches_longer_than_the_window_are_measured_from_end_to_end(void **state) {
  (void)state;
  for (double microbatch_s = 0.3; microbatch_s < 25; microbatch_s *= 1.7) {
    struct simulated w = {.executors = 2, .microbatch_s = microbatch_s, .working = 1, .now_s = 10};
    works(&w, 12 * microbatch_s + 10);
    assert_false(speed_is_stuck(&w.speed));
    assert_near(speed_of(&w.speed, 2), 2 / microbatch_s, 0.13);
  }
}

static void a_worker_that_becomes_slower_is_seen_to_be_within_seconds(void **state) {
  struct simulated w = {.executors = 1, .microbatch_s = 0.05, .working = 1, .now_s = 10};
  (void)state;
  works(&w, 20);
  assert_near(speed_of(&w.speed, 1), 20, 0.05);
  changes_to(&w, 0.2);
  works(&w, 4);
  assert_near(speed_of(&w.speed, 1), 5, 0.3);
  works(&w, 3);
  assert_near(speed_of(&w.speed, 1), 5, 0.1);
}

static void a_worker_that_is_busy_and_completes_nothing_is_stuck_until_it_does(void **state) {
  struct simulated w = {.executors = 2, .microbatch_s = 0.1, .working = 1, .now_s = 10};
  (void)state;
  works(&w, 20);
  changes_to(&w, 1e9);
  works(&w, 2);
  assert_near(speed_of(&w.speed, 2), 20, 0.1);
  works(&w, 2);
  assert_true(speed_is_stuck(&w.speed));
  assert_true(speed_of(&w.speed, 2) == 0);
  works(&w, 100);
  assert_true(speed_of(&w.speed, 2) == 0);
  w.computed_before += 2;
  works(&w, 1);
  assert_false(speed_is_stuck(&w.speed));
  assert_true(speed_of(&w.speed, 2) > 0);
}

static void a_worker_that_was_stuck_is_as_fast_as_before(void **state) {
  struct simulated w = {.executors = 2, .microbatch_s = 0.1, .working = 1, .now_s = 10};
  (void)state;
  works(&w, 20);
  changes_to(&w, 1e9);
  works(&w, 50);
  assert_true(speed_of(&w.speed, 2) == 0);
  changes_to(&w, 0.1);
  works(&w, 1);
  assert_near(speed_of(&w.speed, 2), 20, 0.1);
  works(&w, 3);
  assert_near(speed_of(&w.speed, 2), 20, 0.1);
  changes_to(&w, 1e9);
  works(&w, 50);
  w.working = 0; /* it gives up what it hung at */
  works(&w, 2);
  assert_near(speed_of(&w.speed, 2), 20, 0.1);
}

static void who_waits_for_weights_is_not_stuck(void **state) {
  struct simulated w = {.executors = 2, .microbatch_s = 0.1, .working = 1, .now_s = 10};
  (void)state;
  works(&w, 20);
  w.working = 0;
  works(&w, 100);
  assert_false(speed_is_stuck(&w.speed));
  assert_near(speed_of(&w.speed, 2), 20, 0.1); /* as it was when it had work */
}

static void a_first_microbatch_may_take_a_minute(void **state) {
  struct simulated w = {.executors = 1, .microbatch_s = 1e9, .working = 1, .now_s = 10};
  (void)state;
  works(&w, 55);
  assert_false(speed_is_stuck(&w.speed));
  works(&w, 10);
  assert_true(speed_is_stuck(&w.speed));
}

static void counters_that_go_back_or_leap_begin_anew(void **state) {
  const struct {
    uint64_t computed;
    double busy_s;
  } odd[] = {{0, 0}, {0, 100}, {1000000, 0}, {UINT64_MAX, 1e300}, {300, 1e6}};
  (void)state;
  for (int i = 0; i < 5; i++) {
    struct simulated w = {.executors = 1, .microbatch_s = 0.05, .working = 1, .now_s = 10};
    works(&w, 20);
    speed_add(&w.speed, 1, ms_of(w.now_s) + 500, odd[i].computed, odd[i].busy_s);
    assert_true(isnan(speed_of(&w.speed, 1)));
    works(&w, 20); /* as before: that leaps, too */
    assert_near(speed_of(&w.speed, 1), 20, 0.05);
  }
}

static void counters_that_are_no_numbers_are_ignored(void **state) {
  const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, -1};
  struct simulated w = {.executors = 1, .microbatch_s = 0.05, .working = 1, .now_s = 10};
  (void)state;
  works(&w, 20);
  for (int i = 0; i < 4; i++)
    speed_add(&w.speed, 1, ms_of(w.now_s) + 300, UINT64_MAX, odd[i]);
  assert_near(speed_of(&w.speed, 1), 20, 0.05);
}

static void microbatches_in_no_time_are_no_speed(void **state) {
  struct speed speed = {0};
  (void)state;
  for (uint64_t i = 1; i < 100; i++)
    speed_add(&speed, 1, i * 1000, i * 1000000000000, (double)i * 1e-9);
  assert_true(isnan(speed_of(&speed, 1)));
}

static void whatever_is_said_a_speed_is_unknown_or_a_number(void **state) {
  const uint32_t executors[] = {0, 1, 64, UINT32_MAX};
  (void)state;
  for (uint64_t trial = 0; trial < 500; trial++) {
    struct speed speed = {0};
    uint64_t now_ms = 1 + random_bits(trial, 0) % 1000, computed = 0;
    double busy_s = 0;
    for (uint64_t i = 1; i < 200; i++) {
      uint64_t dice = random_bits(trial, i);
      double value;
      now_ms += dice % 3000;
      computed = dice / 3000 % 5 ? computed + dice / 15000 % 50 : dice;
      busy_s = dice / 7 % 9 ? busy_s + (double)(dice / 63 % 4000) / 1000 : (double)(dice / 63) * 1e290;
      speed_add(&speed, executors[trial % 4], now_ms, computed, busy_s);
      value = speed_of(&speed, executors[trial % 4]);
      assert_true(isnan(value) || (isfinite(value) && value >= 0));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_speed_is_that_of_the_time_in_which_executors_compute),
      cmocka_unit_test(microbatches_longer_than_the_window_are_measured_from_end_to_end),
      cmocka_unit_test(a_worker_that_becomes_slower_is_seen_to_be_within_seconds),
      cmocka_unit_test(a_worker_that_is_busy_and_completes_nothing_is_stuck_until_it_does),
      cmocka_unit_test(a_worker_that_was_stuck_is_as_fast_as_before),
      cmocka_unit_test(who_waits_for_weights_is_not_stuck),
      cmocka_unit_test(a_first_microbatch_may_take_a_minute),
      cmocka_unit_test(counters_that_go_back_or_leap_begin_anew),
      cmocka_unit_test(counters_that_are_no_numbers_are_ignored),
      cmocka_unit_test(microbatches_in_no_time_are_no_speed),
      cmocka_unit_test(whatever_is_said_a_speed_is_unknown_or_a_number),
  };
  float_setting_apply();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
