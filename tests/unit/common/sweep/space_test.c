/* Spaces of sweeps: what is refused, values as texts and back, what is active. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "common/base/message.h"
#include "common/sweep/space.h"
#include "tests/support/common/sweep_fixture.h"

static void assert_refused(const char *line, const char *text) {
  Weir__SweepSpec *spec = sweep_spec_make(line);
  struct space *space = NULL;
  struct err err = ERR_NONE;
  if (space_make(spec, &space, &err) == 0)
    fail_msg("%s: was taken", line);
  assert_int_equal(err.code, ERR_INVALID);
  if (!strstr(err.text, text))
    fail_msg("%s: '%s' has no '%s'", line, err.text, text);
  message_free(spec);
}

static void a_refused_space_names_the_dimension_and_the_key(void **state) {
  (void)state;
  assert_refused("", "space: has no dimension");
  assert_refused("train.lr log 0 1", "space.train.lr: log: bounds must be above 0");
  assert_refused("train.lr log -1 1", "space.train.lr: log: bounds must be above 0");
  assert_refused("train.lr uniform 1 1", "space.train.lr: uniform: the first bound must be below");
  assert_refused("train.lr uniform 2 1", "space.train.lr: uniform: the first bound must be below");
  assert_refused("train.lr uniform nan 1", "space.train.lr: uniform: bounds must be finite");
  assert_refused("train.lr uniform -1e308 1e308", "space.train.lr: uniform: bounds must be finite");
  assert_refused("train.lr log 1 inf", "space.train.lr: log: bounds must be finite");
  assert_refused("train.lr uniform 1", "space.train.lr: uniform: wants two bounds");
  assert_refused("train.lr uniform 1 2 3", "space.train.lr: uniform: wants two bounds");
  assert_refused("train.lr uniform 1 1.0000001", "space.train.lr: uniform: the bounds are too near");
  assert_refused("train.lr", "space.train.lr: wants one of choice, uniform, log and files, with values");
  assert_refused("train.lr uniform 0 1 choice 3",
                 "space.train.lr: wants one of choice, uniform, log and files, not");
  assert_refused("a choice 1 2 1", "space.a: choice: '1' is there twice");
  assert_refused("a files x.onnx x.onnx", "space.a: files: 'x.onnx' is there twice");
  assert_refused("a choice 1 2 step 1", "space.a: step: only a number");
  assert_refused("a uniform 0 1 step 0", "space.a: step: must be above 0");
  assert_refused("a uniform 0 1 step -1", "space.a: step: must be above 0");
  assert_refused("a uniform 0 1 step nan", "space.a: step: must be above 0");
  assert_refused("a uniform 0 1 step 2", "space.a: step: is larger than the range");
  assert_refused("a uniform 0 1 step 1e-10", "space.a: step: is too small");
  assert_refused("a choice 1 2; a choice 3 4", "space.a: is there twice");
  assert_refused("a.b choice 1 2; a choice 3 4", "space.a.b: lies within space.a");
  assert_refused("a choice 1 2; a[0].b choice 3 4", "space.a[0].b: lies within space.a");
}

static void a_condition_must_name_a_value_of_another_choice(void **state) {
  (void)state;
  assert_refused("a choice 1 2 when b 1", "space.a: when: there is no dimension 'b'");
  assert_refused("a choice 1 2 when a 1", "space.a: when: names the dimension itself");
  assert_refused("a choice 1 2 when b 1; b uniform 0 1", "space.a: when: 'b' is a number");
  assert_refused("a choice 1 2 when b 3; b choice 1 2", "space.a: when: '3' is not among the values of 'b'");
  assert_refused("a choice 1 2 when b 1 when b 2; b choice 1 2", "space.a: when: 'b' is there twice");
  assert_refused("a choice 1 2 when b 1; b choice 1 2 when a 1",
                 "space.a: when: is a condition of itself, by way of 'b'");
  assert_refused("z choice 0 1; a choice 1 2 when b 1; b choice 1 2 when c 1; c choice 1 2 when a 1",
                 "space.a: when: is a condition of itself");
}

static void more_dimensions_or_choices_than_are_searched_are_refused(void **state) {
  char line[8192];
  size_t length = 0;
  (void)state;
  for (int i = 0; i <= SPACE_DIMENSIONS_MAX; i++)
    length += (size_t)snprintf(line + length, sizeof line - length, "d%d uniform 0 1;", i);
  assert_refused(line, "space: has 65 dimensions, at most 64");
  length = (size_t)snprintf(line, sizeof line, "a choice");
  for (int i = 0; i <= SPACE_CHOICES_MAX; i++)
    length += (size_t)snprintf(line + length, sizeof line - length, " %d", i);
  assert_refused(line, "space.a: choice: 1025 values are too many");
}

static void assert_text(const char *line, double position, const char *expected) {
  struct space *space = sweep_space_make(line);
  char text[SPACE_NUMBER_SIZE];
  assert_string_equal(space_text(&space->dimensions[0], position, text), expected);
  space_free(space);
}

static void values_are_written_as_people_write_them(void **state) {
  (void)state;
  assert_text("a uniform 0 1", 0.25, "0.25");
  assert_text("a uniform 0 1", 1.0 / 3, "0.333333");
  assert_text("a uniform 0 1", 0, "0");
  assert_text("a uniform 0 1", 1.23456789e-5, "0.0000123457");
  assert_text("a uniform -2 2", 0.25, "-1");
  assert_text("a log 0.0001 1", 0.5, "0.01");
  assert_text("a log 1e-12 1e-8", 0.5, "1e-10");
  assert_text("a log 1e-12 1e-8", 0.6, "2.51189e-10");
  assert_text("a uniform 0 10000000", 0.123456789, "1234570");
  assert_text("a uniform 100 101", 0.123456789, "100.123");
  assert_text("a uniform 1000000 1000001", 0.123456789, "1000000.123");
  assert_text("a uniform 1 100 step 1", 0.5, "51");
  assert_text("a uniform 0 1 step 0.1", 0.35, "0.3");
  assert_text("a uniform 0 1 step 0.1", 0.9999, "1");
  assert_text("a log 16 1024 step 16", 0.999, "1024");
  assert_text("a uniform 0 1000000 step 0.5", 0.3333336, "333333.5");
  assert_text("a choice sgd adam [1,2]", 2, "[1,2]");
  assert_text("a uniform 0.1234561 0.9", 0, "0.1234561"); /* never below the bound */
  assert_text("a uniform 0 0.12345678", 0.99999999999, "0.12345678");
}

static const char *const NUMBERS[] = {
    "a uniform 0 1",
    "a uniform -3 1000",
    "a log 0.00001 0.3",
    "a log 1e-12 1e12",
    "a uniform 0.1234567 1",
    "a uniform -1 1",
    "a uniform 1e-9 1",
    "a uniform 1e6 1000010",
    "a log 0.9999 1.0001",
    "a uniform -1e-7 1e9",
    "a log 3e-200 3e200",
    "a uniform 1 1.00001",
    "a uniform 1 512 step 1",
    "a log 1 4096 step 1",
    "a uniform 0 1 step 0.1",
    "a uniform -1 1 step 0.003",
    "a log 0.001 0.1 step 0.001",
    "a uniform 0.1 0.30001 step 0.1",
    "a uniform -1e12 1e12 step 1e6",
};

/* Draws positions everywhere, and near 0 and the ends; says of each text which position it stands for. */
static void assert_texts_come_back(const char *line, uint64_t key, uint64_t draws) {
  struct space *space = sweep_space_make(line);
  const struct dimension *dimension = &space->dimensions[0];
  double slack = 1e-9 * dimension->step;
  double zero = fmin(fmax(-dimension->begin / (dimension->end - dimension->begin), 0), 1 - 0x1p-53);
  for (uint64_t i = 0; i < draws; i++) {
    double drawn = (double)(random_bits(key, i) >> 11) * 0x1p-53, position, value;
    char text[SPACE_NUMBER_SIZE], again[SPACE_NUMBER_SIZE];
    struct err err = ERR_NONE;
    if (i % 3)
      drawn = fabs((i % 3 == 1 ? zero : i % 2 ? 1 - 0x1p-53 : 0) - drawn * pow(2, -(double)(i % 52)));
    space_text(dimension, drawn, text);
    if (space_position(dimension, text, &position, &err))
      fail_msg("%s: %s: %s", line, text, err.text);
    space_text(dimension, position, again);
    if (strcmp(text, again) != 0 || !(position >= 0 && position < 1))
      fail_msg("%s: %.17g: '%s', '%s'", line, drawn, text, again);
    value = strtod(text, NULL);
    if (!(value >= dimension->low - slack && value <= dimension->high + slack))
      fail_msg("%s: %s is out of bounds", line, text);
  }
  space_free(space);
}

static void a_text_says_the_position_whose_text_it_is(void **state) {
  (void)state;
  for (size_t row = 0; row < sizeof NUMBERS / sizeof *NUMBERS; row++)
    assert_texts_come_back(NUMBERS[row], row, 10000);
  for (uint64_t seed = 0; seed < 300; seed++) { /* bounds of all sizes on both sides of 0 */
    char line[128];
    snprintf(line, sizeof line, "a uniform -%.6ge%d %.6ge%d", 1 + 8 * random_uniform(seed, 0),
             (int)(random_bits(seed, 1) % 7) - 3, 1 + 8 * random_uniform(seed, 2),
             (int)(random_bits(seed, 3) % 7) - 3);
    assert_texts_come_back(line, seed, 300);
  }
}

static void each_value_of_a_step_has_an_equal_share_and_the_right_number(void **state) {
  struct space *space = sweep_space_make("a uniform 3 7 step 1; b log 1 64 step 1; c uniform 0 1 step 0.3");
  int counts[5] = {0};
  (void)state;
  assert_int_equal(space->dimensions[0].n_values, 5);
  assert_int_equal(space->dimensions[1].n_values, 64);
  assert_int_equal(space->dimensions[2].n_values, 4);
  for (int d = 0; d < 3; d++)
    for (uint32_t i = 0; i < space->dimensions[d].n_values; i++)
      assert_int_equal(
          space_value_index(&space->dimensions[d], space_value_position(&space->dimensions[d], i)), i);
  for (int i = 0; i < 1000; i++)
    counts[space_value_index(&space->dimensions[0], i / 1000.0)]++;
  for (int i = 0; i < 5; i++)
    assert_int_equal(counts[i], 200);
  space_free(space);
}

static void assert_not_a_value(const char *line, const char *text, const char *expected) {
  struct space *space = sweep_space_make(line);
  struct err err = ERR_NONE;
  double position;
  assert_int_equal(space_position(&space->dimensions[0], text, &position, &err), ERR_INVALID);
  if (!strstr(err.text, expected))
    fail_msg("'%s' has no '%s'", err.text, expected);
  space_free(space);
}

static void a_text_that_is_no_value_is_refused(void **state) {
  (void)state;
  assert_not_a_value("a uniform 0 1", "1.5", "space.a: 1.5 is not between 0 and 1");
  assert_not_a_value("a uniform 0 1", "x", "space.a: 'x' is not a number");
  assert_not_a_value("a uniform 0 1", "", "space.a: '' is not a number");
  assert_not_a_value("a uniform 0 1", "0.5x", "is not a number");
  assert_not_a_value("a uniform 0 1", "nan", "is not a number");
  assert_not_a_value("a uniform 0 1", "inf", "is not a number");
  assert_not_a_value("a uniform 0 10 step 2", "3", "space.a: 3 is not 0 and a multiple of 2");
  assert_not_a_value("a uniform 0 10 step 2", "12", "is not between");
  assert_not_a_value("a choice x y", "z", "space.a: 'z' is not among its values");
}

static void what_its_conditions_exclude_is_not_active(void **state) {
  struct space *space =
      sweep_space_make("m uniform 0 1 when name sgd; name choice sgd adam; "
                       "n choice 0 1 when name sgd; deep uniform 0 1 when n 1 when name sgd");
  double point[4] = {0.5, 0, 1, 0.25};
  (void)state;
  space_activate(space, point);
  assert_true(point[0] == 0.5 && point[2] == 1 && point[3] == 0.25);
  assert_true(space_holds(space, point));
  point[2] = 0;
  assert_false(space_holds(space, point));
  space_activate(space, point);
  assert_true(isnan(point[3]) && point[0] == 0.5);
  point[1] = 1;
  space_activate(space, point);
  assert_true(isnan(point[0]) && isnan(point[2]) && isnan(point[3]) && point[1] == 1);
  assert_true(space_holds(space, point));
  point[1] = 2;
  assert_false(space_holds(space, point));
  space_free(space);
}

/* Words of which some make dimensions and others do not. */
static const char *const WORDS[] = {"a",
                                    "b",
                                    "c.d",
                                    "c",
                                    "choice",
                                    "uniform",
                                    "log",
                                    "files",
                                    "step",
                                    "when",
                                    "0",
                                    "1",
                                    "-1",
                                    "0.1",
                                    "1e300",
                                    "nan",
                                    "inf",
                                    "-inf",
                                    ";",
                                    "; a",
                                    "; b",
                                    "; c",
                                    "sgd",
                                    "1e-300",
                                    "5e-324",
                                    "a[0]",
                                    "2",
                                    "; d uniform 0",
                                    "; e choice x y",
                                    "when e x",
                                    "when a 1",
                                    "step 0.1"};

static void no_spec_is_made_that_does_not_hold_its_points(void **state) {
  int n_made = 0;
  (void)state;
  for (uint64_t seed = 0; seed < 20000; seed++) {
    char line[512] = "a choice 1 0";
    struct err err = ERR_NONE;
    struct space *space = NULL;
    Weir__SweepSpec *spec;
    uint64_t n = random_bits(seed, 0) % 16;
    for (uint64_t i = 1; i <= n; i++) {
      strcat(line, " ");
      strcat(line, WORDS[random_bits(seed, i) % (sizeof WORDS / sizeof *WORDS)]);
    }
    if (!strstr(line, "choice") || strstr(line, "; ;"))
      continue;
    spec = sweep_spec_make(line + (seed % 3 ? 0 : 2)); /* some without the path */
    if (space_make(spec, &space, &err) == 0) {
      double point[SPACE_DIMENSIONS_MAX];
      char text[SPACE_NUMBER_SIZE];
      for (int i = 0; i < space->n; i++) {
        struct dimension of = space->dimensions[i];
        point[i] = of.kind == DIMENSION_CHOICE ? 0 : 0.5;
        if (space_position(&of, space_text(&of, point[i], text), &point[i], &err))
          fail_msg("%s: %s", line, err.text);
      }
      space_activate(space, point);
      assert_true(space_holds(space, point));
      n_made++;
    } else if (err.code != ERR_INVALID || strncmp(err.text, "space", 5) != 0)
      fail_msg("%s: %s", line, err.text);
    space_free(space);
    message_free(spec);
  }
  assert_true(n_made > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_refused_space_names_the_dimension_and_the_key),
      cmocka_unit_test(a_condition_must_name_a_value_of_another_choice),
      cmocka_unit_test(more_dimensions_or_choices_than_are_searched_are_refused),
      cmocka_unit_test(values_are_written_as_people_write_them),
      cmocka_unit_test(a_text_says_the_position_whose_text_it_is),
      cmocka_unit_test(each_value_of_a_step_has_an_equal_share_and_the_right_number),
      cmocka_unit_test(a_text_that_is_no_value_is_refused),
      cmocka_unit_test(what_its_conditions_exclude_is_not_active),
      cmocka_unit_test(no_spec_is_made_that_does_not_hold_its_points),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
