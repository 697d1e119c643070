/* Every schedule, bare and after a warm-up, gives PyTorch's learning rates for 200 steps
   (tests/parity/schedules.json, which schedules.py beside it makes). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/optim/optimizer.h"
#include "common/optim/schedule.h"

enum { STEPS = 200, ROWS_MAX = 64 };

static const double tolerance = 1e-6;

/* The options as YAML. */
static Weir__RunSpec *read_schedule(const char *options) {
  char *text = mem_printf("train: {schedule: %s}", options);
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  if (spec_read("options", text, strlen(text), &spec, &err))
    fail_msg("%s: %s", options, err.text);
  free(text);
  return spec;
}

static Weir__RunSpec *settle(const char *options) {
  Weir__RunSpec *spec = read_schedule(options);
  struct err err = ERR_NONE;
  if (schedule_settle(spec->train->schedule, &err))
    fail_msg("%s: %s", options, err.text);
  return spec;
}

static void assert_rates(const char *options, double lr, json_t *rates) {
  Weir__RunSpec *spec = settle(options);
  assert_int_equal(json_array_size(rates), STEPS);
  for (uint64_t step = 0; step < STEPS; step++) {
    double expected = json_number_value(json_array_get(rates, step));
    double rate = schedule_lr(spec->train->schedule, lr, step, STEPS);
    if (!(fabs(rate - expected) <= tolerance * expected + 1e-12))
      fail_msg("%s: step %d: %.12g, expected %.12g", options, (int)step, rate, expected);
  }
  spec_free(spec);
}

static void every_schedule_follows_pytorch_for_200_steps(void **state) {
  json_t *root = json_load_file("tests/parity/schedules.json", 0, NULL), *json;
  double lr = json_number_value(json_object_get(root, "lr"));
  size_t at;
  bool is_bare[ROWS_MAX] = {false}, is_warm[ROWS_MAX] = {false};
  (void)state;
  json_array_foreach(json_object_get(root, "cases"), at, json) {
    json_t *options = json_object_get(json, "options");
    char *text = json_dumps(options, JSON_REAL_PRECISION(15));
    bool warms_up = json_integer_value(json_object_get(options, "warmup_steps")) > 0;
    assert_rates(text, lr, json_object_get(json, "rates"));
    for (int row = 0; schedule_at(row); row++)
      if (strcmp(schedule_at(row)->name, json_string_value(json_object_get(options, "name"))) == 0)
        (warms_up ? is_warm : is_bare)[row] = true;
    free(text);
  }
  for (int row = 0; schedule_at(row); row++)
    if (!is_warm[row] || (!is_bare[row] && !schedule_at(row)->warms_up))
      fail_msg("%s: not bare and after a warm-up in tests/parity/schedules.json", schedule_at(row)->name);
  json_decref(root);
}

/* The contract's closed forms to the last bit or two; 0.05 * (1 + cos(pi * k / 8)) / 2 for k = 0 .. 7, by
   Python. */
static void a_cosine_falls_from_the_warmup_to_the_end(void **state) {
  static const double expected[] = {0.025,
                                    0.05,
                                    0.05,
                                    0.04809698831278217,
                                    0.04267766952966369,
                                    0.03456708580912725,
                                    0.025,
                                    0.015432914190872758,
                                    0.0073223304703363135,
                                    0.0019030116872178307};
  Weir__RunSpec *spec = settle("{name: cosine, warmup_steps: 2}");
  (void)state;
  for (uint64_t step = 0; step < 10; step++)
    assert_true(fabs(schedule_lr(spec->train->schedule, 0.05, step, 10) - expected[step]) < 1e-15);
  spec_free(spec);
}

static void a_warmup_longer_than_the_run_never_ends(void **state) {
  static const char *const names[] = {"constant", "cosine", "one_cycle", "linear", "polynomial", "noam"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *options = mem_printf("{name: %s, warmup_steps: 20}", names[i]);
    Weir__RunSpec *spec = settle(options);
    double rate = schedule_lr(spec->train->schedule, 0.05, 9, 10);
    double peak = strcmp(names[i], "noam") == 0 ? 0.05 / sqrt(20) : 0.05;
    assert_true(fabs(rate - peak / 2) < 1e-15);
    spec_free(spec);
    free(options);
  }
}

/* Runs of one step and options at the ends of their ranges: rates are numbers, at least 0. */
static void no_schedule_divides_by_zero(void **state) {
  static const char *const options[] = {
      "{name: one_cycle}",
      "{name: one_cycle, pct_start: 1, three_phase: true}",
      "{name: one_cycle, pct_start: 0, three_phase: true}",
      "{name: one_cycle, pct_start: 0.5, three_phase: true}",
      "{name: linear}",
      "{name: polynomial, power: 0}",
      "{name: cosine}",
      "{name: cosine_warm_restarts, T_0: 1}",
      "{name: cosine_warm_restarts, T_0: 1000000000, T_mult: 1000000000}",
      "{name: cosine_warm_restarts, T_0: 1, T_mult: 1000000000}",
      "{name: inverse_sqrt}",
  };
  (void)state;
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    Weir__RunSpec *spec = settle(options[i]);
    for (uint64_t steps = 1; steps < 6; steps++)
      for (uint64_t step = 0; step < steps; step++) {
        double rate = schedule_lr(spec->train->schedule, 0.05, step, steps);
        if (!(rate >= 0 && rate <= 0.05 + 1e-15))
          fail_msg("%s: step %d of %d: %g", options[i], (int)step, (int)steps, rate);
      }
    assert_true(isfinite(schedule_lr(spec->train->schedule, 0.05, 999999999, 1000000000)));
    spec_free(spec);
  }
}

static void assert_refused(const char *options, const char *message) {
  Weir__RunSpec *spec = read_schedule(options);
  struct err err = ERR_NONE;
  assert_int_equal(schedule_settle(spec->train->schedule, &err), ERR_INVALID);
  if (strncmp(err.text, message, strlen(message)) != 0)
    fail_msg("%s: %s", options, err.text);
  spec_free(spec);
}

static void an_unknown_schedule_is_refused_with_the_known_ones(void **state) {
  (void)state;
  assert_refused("{name: cosin}",
                 "train.schedule.name: unknown schedule 'cosin'; known: constant, step, multistep");
}

static void options_are_checked_by_the_row_that_has_them(void **state) {
  (void)state;
  assert_refused("{name: step}", "train.schedule.step_size: 'step' needs it");
  assert_refused("{name: step, step_size: 2, gamma: 0}", "train.schedule.gamma: must be above 0 and finite");
  assert_refused("{name: cosine, step_size: 2}",
                 "train.schedule.step_size: is not an option of 'cosine' (it has: eta_min)");
  assert_refused("{name: constant, gamma: 2}",
                 "train.schedule.gamma: is not an option of 'constant' (it has none)");
  assert_refused("{name: multistep}", "train.schedule.milestones: 'multistep' needs it");
  assert_refused("{name: multistep, milestones: [3, 3]}",
                 "train.schedule.milestones: must increase, but 3 comes after 3");
  assert_refused("{name: one_cycle, anneal_strategy: sin}",
                 "train.schedule.anneal_strategy: 'sin' is not known (known: cos linear)");
  assert_refused("{name: cosine_warm_restarts, T_0: 0}", "train.schedule.T_0: must be at least 1");
  assert_refused("{name: noam}", "train.schedule.warmup_steps: 'noam' needs it, above 0");
}

/* Of a run of 10 steps. */
static void assert_cycles(const char *train, const char *message) {
  char *text = mem_printf("train: %s", train);
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  if (spec_read("train", text, strlen(text), &spec, &err) || optimizer_settle(spec->train->optimizer, &err) ||
      schedule_settle(spec->train->schedule, &err))
    fail_msg("%s: %s", train, err.text);
  schedule_check_optimizer(spec->train->schedule, spec->train->optimizer, &err);
  assert_string_equal(err.text, message);
  spec_free(spec);
  free(text);
}

static void a_momentum_is_cycled_only_where_there_is_one(void **state) {
  (void)state;
  assert_cycles("{optimizer: {name: adagrad}, schedule: {name: one_cycle}}", "");
  assert_cycles("{optimizer: {name: adam}, schedule: {name: one_cycle, cycle_momentum: true}}", "");
  assert_cycles("{optimizer: {momentum: 0.9, groups: [{params: [a], momentum: 0, frozen: true}]}, schedule: "
                "{name: one_cycle, cycle_momentum: true}}",
                "");
  assert_cycles("{optimizer: {momentum: 0.9, groups: [{params: [a], momentum: 0}]}, schedule: "
                "{name: one_cycle, cycle_momentum: true}}",
                "train.schedule.cycle_momentum: 'sgd' has no momentum here: it takes betas, or a momentum "
                "above 0");
  assert_cycles("{optimizer: {name: adagrad}, schedule: {name: one_cycle, cycle_momentum: true}}",
                "train.schedule.cycle_momentum: 'adagrad' has no momentum here: it takes betas, or a "
                "momentum above 0");
  assert_cycles("{optimizer: {name: nadam}, schedule: {name: one_cycle, cycle_momentum: true}}",
                "train.schedule.cycle_momentum: the momentum of 'nadam' has a schedule of its own");
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_schedule_follows_pytorch_for_200_steps),
      cmocka_unit_test(a_cosine_falls_from_the_warmup_to_the_end),
      cmocka_unit_test(a_warmup_longer_than_the_run_never_ends),
      cmocka_unit_test(no_schedule_divides_by_zero),
      cmocka_unit_test(an_unknown_schedule_is_refused_with_the_known_ones),
      cmocka_unit_test(a_momentum_is_cycled_only_where_there_is_one),
      cmocka_unit_test(options_are_checked_by_the_row_that_has_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
