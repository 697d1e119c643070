/* Options are settled against the rules of their row. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "common/agree/options.h"
#include "common/base/memory.h"
#include "spec.pb-c.h"

static const char *const shared[] = {"name", "warmup_steps", NULL};
static const struct option_rule rules[] = {
    {.name = "gamma", .range = OPTION_ABOVE_0_TO_1, .number = 0.25},
    {.name = "step_size", .range = OPTION_AT_LEAST_1, .number = 7},
    {.name = "milestones", .range = OPTION_AT_LEAST_1, .absence = OPTION_OPEN},
    {.name = "total_iters", .range = OPTION_AT_LEAST_1, .absence = OPTION_OPEN},
    {.name = "anneal_strategy", .words = "cos linear"},
    {.name = "three_phase", .number = 1},
    {0},
};
static const struct option_rule list_rules[] = {
    {.name = "betas", .range = OPTION_FROM_0_BELOW_1, .list = {0.9, 0.99}, .list_length = 2},
    {.name = "eps", .range = OPTION_AT_LEAST_0, .absence = OPTION_REQUIRED},
    {0},
};
static const struct option_table schedules = {
    .path = "train.schedule", .row = "hat", .rules = rules, .shared = shared};
static const struct option_table lists = {.path = "train.optimizer", .row = "cap", .rules = list_rules};

static Weir__ScheduleSpec *schedule_new(void) {
  Weir__ScheduleSpec *spec = mem_new(sizeof *spec);
  weir__schedule_spec__init(spec);
  return spec;
}

static Weir__OptimizerSpec *list_new(size_t n, double value) {
  Weir__OptimizerSpec *spec = mem_new(sizeof *spec);
  weir__optimizer_spec__init(spec);
  spec->has_eps = 1;
  spec->n_betas = n;
  spec->betas = n ? mem_new(n * sizeof *spec->betas) : NULL;
  for (size_t i = 0; i < n; i++)
    spec->betas[i] = value;
  return spec;
}

/* Takes the message. */
static void assert_settles(void *message, const struct option_table *table, const char *error) {
  struct err err = ERR_NONE;
  assert_int_equal(options_settle(message, table, &err), error ? ERR_INVALID : 0);
  if (error)
    assert_string_equal(err.text, error);
  protobuf_c_message_free_unpacked(message, NULL);
}

static void what_is_not_given_gets_its_default(void **state) {
  Weir__ScheduleSpec *spec = schedule_new();
  Weir__OptimizerSpec *list = list_new(0, 0);
  struct err err = ERR_NONE;
  (void)state;
  for (int again = 0; again < 2; again++) {
    assert_int_equal(options_settle(spec, &schedules, &err), 0);
    assert_true(spec->has_gamma && spec->gamma == 0.25);
    assert_true(spec->has_step_size && spec->step_size == 7);
    assert_true(!spec->n_milestones && !spec->has_total_iters);
    assert_string_equal(spec->anneal_strategy, "cos");
    assert_true(spec->has_three_phase && spec->three_phase);
    assert_int_equal(options_settle(list, &lists, &err), 0);
    assert_true(list->n_betas == 2 && list->betas[0] == 0.9 && list->betas[1] == 0.99);
  }
  weir__schedule_spec__free_unpacked(spec, NULL);
  weir__optimizer_spec__free_unpacked(list, NULL);
}

static void what_is_given_stays(void **state) {
  Weir__ScheduleSpec *spec = schedule_new();
  struct err err = ERR_NONE;
  (void)state;
  spec->has_gamma = spec->has_step_size = spec->has_three_phase = 1;
  spec->gamma = 1;
  spec->step_size = 1000000000;
  spec->anneal_strategy = mem_strdup("linear");
  assert_int_equal(options_settle(spec, &schedules, &err), 0);
  assert_true(spec->gamma == 1 && spec->step_size == 1000000000 && !spec->three_phase);
  assert_string_equal(spec->anneal_strategy, "linear");
  weir__schedule_spec__free_unpacked(spec, NULL);
}

static void what_the_row_has_not_is_refused_with_what_it_has(void **state) {
  const struct option_table bare = {.path = "train.schedule", .row = "bare", .shared = shared};
  Weir__ScheduleSpec *spec = schedule_new();
  (void)state;
  spec->has_power = 1;
  assert_settles(spec, &schedules,
                 "train.schedule.power: is not an option of 'hat' (it has: gamma, step_size, milestones, "
                 "total_iters, anneal_strategy, three_phase)");
  spec = schedule_new();
  spec->has_warmup_steps = 1;
  assert_settles(spec, &bare, NULL);
  spec = schedule_new();
  spec->anneal_strategy = mem_strdup("cos");
  assert_settles(spec, &bare, "train.schedule.anneal_strategy: is not an option of 'bare' (it has none)");
}

static void what_is_required_must_be_there(void **state) {
  Weir__OptimizerSpec *spec = list_new(2, 0.5);
  (void)state;
  spec->has_eps = 0;
  assert_settles(spec, &lists, "train.optimizer.eps: 'cap' needs it");
}

static void numbers_have_ranges(void **state) {
  static const double bad[] = {0, -1, 1.001, NAN, INFINITY};
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    Weir__ScheduleSpec *spec = schedule_new();
    spec->has_gamma = 1;
    spec->gamma = bad[i];
    assert_settles(spec, &schedules, "train.schedule.gamma: must be above 0 and at most 1");
  }
}

static void a_number_too_great_for_f32_is_refused(void **state) {
  Weir__OptimizerSpec *spec = list_new(2, 0.5);
  (void)state;
  spec->eps = 1e39;
  assert_settles(spec, &lists, "train.optimizer.eps: must be at least 0 and finite");
}

static void whole_numbers_end_at_a_billion(void **state) {
  Weir__ScheduleSpec *spec = schedule_new();
  (void)state;
  spec->has_step_size = 1;
  spec->step_size = UINT64_MAX;
  assert_settles(spec, &schedules, "train.schedule.step_size: must be at most 1000000000");
  spec = schedule_new();
  spec->has_step_size = 1;
  assert_settles(spec, &schedules, "train.schedule.step_size: must be at least 1 and finite");
}

static void lists_have_a_length_and_a_range(void **state) {
  Weir__ScheduleSpec *spec = schedule_new();
  (void)state;
  assert_settles(list_new(3, 0.5), &lists, "train.optimizer.betas: wants 2 numbers, not 3");
  assert_settles(list_new(2, 1), &lists, "train.optimizer.betas: must be at least 0 and below 1");
  spec->n_milestones = 1;
  spec->milestones = mem_new(sizeof *spec->milestones);
  assert_settles(spec, &schedules, "train.schedule.milestones: must be at least 1 and finite");
}

static void words_must_be_known(void **state) {
  static const char *const bad[] = {"co", "coss", "cos linear", " ", ""};
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    Weir__ScheduleSpec *spec = schedule_new();
    char text[100];
    spec->anneal_strategy = mem_strdup(bad[i]);
    snprintf(text, sizeof text, "train.schedule.anneal_strategy: '%s' is not known (known: cos linear)",
             bad[i]);
    assert_settles(spec, &schedules, text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_not_given_gets_its_default),
      cmocka_unit_test(what_is_given_stays),
      cmocka_unit_test(what_the_row_has_not_is_refused_with_what_it_has),
      cmocka_unit_test(what_is_required_must_be_there),
      cmocka_unit_test(numbers_have_ranges),
      cmocka_unit_test(a_number_too_great_for_f32_is_refused),
      cmocka_unit_test(whole_numbers_end_at_a_billion),
      cmocka_unit_test(lists_have_a_length_and_a_range),
      cmocka_unit_test(words_must_be_known),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
