/* Learning rates are the closed forms of the design. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "server/parameters/schedule.h"

static Weir__ScheduleSpec schedule(const char *name, uint64_t warmup_steps) {
  Weir__ScheduleSpec spec = WEIR__SCHEDULE_SPEC__INIT;
  spec.name = (char *)name;
  spec.warmup_steps = warmup_steps;
  return spec;
}

static void assert_lr(Weir__ScheduleSpec *spec, uint64_t step, double expected) {
  struct err err = ERR_NONE;
  double lr;
  assert_int_equal(schedule_settle(spec, &err), 0);
  lr = schedule_lr(spec, 0.05, step, 10);
  if (fabs(lr - expected) > 1e-15)
    fail_msg("%s at step %d: %.17g, expected %.17g", spec->name, (int)step, lr, expected);
}

static void a_constant_rate_stays(void **state) {
  Weir__ScheduleSpec spec = schedule("constant", 0);
  (void)state;
  for (uint64_t step = 0; step < 10; step++)
    assert_lr(&spec, step, 0.05);
}

static void every_schedule_warms_up_linearly(void **state) {
  static const char *const names[] = {"constant", "step", "cosine"};
  (void)state;
  for (int i = 0; i < 3; i++) {
    Weir__ScheduleSpec spec = schedule(names[i], 4);
    spec.has_step_size = i == 1;
    spec.step_size = 100;
    assert_lr(&spec, 0, 0.0125);
    assert_lr(&spec, 1, 0.025);
    assert_lr(&spec, 2, 0.0375);
    assert_lr(&spec, 3, 0.05);
    assert_lr(&spec, 4, 0.05);
  }
}

/* 0.05 * (1 + cos(pi * k / 8)) / 2 for k = 0 .. 7, by Python. */
static void a_cosine_falls_from_the_warmup_to_the_end(void **state) {
  static const double expected[] = {
      0.05,  0.04809698831278217,  0.04267766952966369,   0.03456708580912725,
      0.025, 0.015432914190872758, 0.0073223304703363135, 0.0019030116872178307};
  Weir__ScheduleSpec spec = schedule("cosine", 2);
  (void)state;
  for (uint64_t k = 0; k < 8; k++)
    assert_lr(&spec, 2 + k, expected[k]);
}

static void a_step_schedule_multiplies_by_gamma(void **state) {
  Weir__ScheduleSpec spec = schedule("step", 0);
  (void)state;
  spec.has_step_size = 1;
  spec.step_size = 3;
  spec.has_gamma = 1;
  spec.gamma = 0.5;
  assert_lr(&spec, 2, 0.05);
  assert_lr(&spec, 3, 0.025);
  assert_lr(&spec, 5, 0.025);
  assert_lr(&spec, 6, 0.0125);
  assert_lr(&spec, 9, 0.00625);
}

static void a_warmup_longer_than_the_run_never_ends(void **state) {
  Weir__ScheduleSpec spec = schedule("cosine", 10);
  (void)state;
  assert_lr(&spec, 9, 0.05);
}

static void assert_refused(Weir__ScheduleSpec *spec, const char *text) {
  struct err err = ERR_NONE;
  assert_int_equal(schedule_settle(spec, &err), ERR_INVALID);
  assert_string_equal(err.text, text);
}

static void an_unknown_schedule_is_refused_with_the_known_ones(void **state) {
  Weir__ScheduleSpec spec = schedule("cosin", 0);
  (void)state;
  assert_refused(&spec, "train.schedule.name: unknown schedule 'cosin'; known: constant, step, cosine");
}

static void options_are_checked_by_the_row_that_has_them(void **state) {
  Weir__ScheduleSpec spec = schedule("step", 0);
  (void)state;
  assert_refused(&spec, "train.schedule.step_size: 'step' needs it");
  spec.has_step_size = 1;
  spec.step_size = 2;
  spec.has_gamma = 1;
  spec.gamma = NAN;
  assert_refused(&spec, "train.schedule.gamma: must be above 0 and finite");
  spec.name = (char *)"cosine";
  assert_refused(&spec, "train.schedule.step_size: is not an option of 'cosine' (it has: eta_min)");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_constant_rate_stays),
      cmocka_unit_test(every_schedule_warms_up_linearly),
      cmocka_unit_test(a_cosine_falls_from_the_warmup_to_the_end),
      cmocka_unit_test(a_step_schedule_multiplies_by_gamma),
      cmocka_unit_test(a_warmup_longer_than_the_run_never_ends),
      cmocka_unit_test(an_unknown_schedule_is_refused_with_the_known_ones),
      cmocka_unit_test(options_are_checked_by_the_row_that_has_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
