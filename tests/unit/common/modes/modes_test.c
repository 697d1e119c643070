/* What holds of each row of common/modes/mode.def: a row's answers fit each other, so that whoever asks one
   question may rely on the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/spec.h"
#include "common/modes/mode.h"

enum { STEPS = 40, SETTLED = 20 }; /* SETTLED: a version that is far from the run's begin */

static void for_each(void (*look)(const struct mode *mode)) {
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  Weir__LocalSpec local = WEIR__LOCAL_SPEC__INIT;
  local.inner_steps = 3;
  train.local = &local;
  for (int i = 0; mode_at(i); i++) {
    struct mode mode = {.def = mode_at(i), .train = &train};
    look(&mode);
  }
}

/* The nth version. */
static uint64_t at(const struct mode *mode, uint64_t n) {
  uint64_t version = 0;
  while (n-- > 0)
    version = mode_next(mode, version);
  return version;
}

static void look_at_versions(const struct mode *mode) {
  assert_int_equal(mode_version(mode, 0), 0);
  for (uint64_t n = 0; n < STEPS; n++) {
    uint64_t step = at(mode, n), next = at(mode, n + 1);
    assert_true(mode_version(mode, step) <= step);
    assert_true(mode_version(mode, next) >= mode_version(mode, step));
    assert_int_equal(mode_reply(mode, step), mode_version(mode, next));
    assert_int_equal(mode_brings_version(mode, step), mode_reply(mode, step) != mode_version(mode, step));
  }
}

static void
a_step_is_computed_from_a_version_no_newer_than_it_and_no_older_than_the_one_before(void **state) {
  (void)state;
  for_each(look_at_versions);
}

static void look_at_parts(const struct mode *mode) {
  for (uint64_t version = 0; version < SETTLED; version++)
    for (uint64_t lowest = 0; lowest <= version; lowest++)
      for (uint64_t step = 0; step < STEPS; step++) {
        struct mode_part part = {
            .step = at(mode, step), .version = at(mode, version), .lowest = at(mode, lowest)};
        enum mode_arrival arrival = mode_arrive(mode, &part);
        if (step < version)
          assert_int_equal(arrival, MODE_PART_IS_LATE);
        else
          assert_int_equal(arrival == MODE_PART_IS_EARLY, mode_version(mode, part.step) > part.lowest);
      }
}

static void a_part_of_a_step_whose_version_a_block_lacks_is_refused(void **state) {
  (void)state;
  for_each(look_at_parts);
}

static void look_at_answers(const struct mode *mode) {
  for (uint64_t wanted = 0; wanted < SETTLED; wanted++)
    for (uint64_t newest = wanted; newest < SETTLED; newest++) {
      assert_true(mode_answer(mode, wanted, newest) >= wanted);
      assert_true(mode_answer(mode, wanted, newest) <= newest);
    }
}

static void a_call_is_answered_with_a_version_that_is_there_and_no_older_than_it_waits_for(void **state) {
  (void)state;
  for_each(look_at_answers);
}

/* Whoever dies: the steps that may not be over everywhere are computed again from the very same versions. */
static void look_at_oldest(const struct mode *mode) {
  for (uint64_t complete = 0; complete < STEPS; complete++) {
    assert_true(mode_oldest(mode, complete) <= complete);
    assert_true(mode_oldest(mode, complete + 1) >= mode_oldest(mode, complete));
    for (uint64_t step = complete; step < STEPS; step++)
      assert_true(mode_version(mode, step) >= mode_oldest(mode, complete));
  }
}

static void no_version_goes_that_a_step_may_be_computed_from_again(void **state) {
  (void)state;
  for_each(look_at_oldest);
}

/* newest: of a block. Its step before was applied, so a part of that has come, which proves its version. */
static void look_at_bounds(const struct mode *mode) {
  struct mode_bounds bounds = mode_bounds(mode);
  uint64_t newest = at(mode, SETTLED), before = at(mode, SETTLED - 1), rounds = 0;
  uint64_t oldest = mode_count(mode, mode_oldest(mode, mode_version(mode, before)));
  assert_int_equal(SETTLED + 1 - oldest, bounds.versions);
  for (uint64_t n = SETTLED; n < STEPS; n++)
    rounds += mode_version(mode, at(mode, n)) <= newest;
  assert_int_equal(rounds, bounds.rounds);
  assert_int_equal(SETTLED + 2 - mode_count(mode, mode_oldest(mode, newest)), bounds.sets);
}

static void the_bounds_are_what_the_other_answers_come_to(void **state) {
  (void)state;
  for_each(look_at_bounds);
}

static void look_at_boundaries(const struct mode *mode) {
  for (uint64_t version = 0; version < STEPS; version++) {
    uint64_t boundary = mode_boundary(mode, version);
    assert_true(boundary >= version);
    assert_int_equal(mode_boundary(mode, boundary), boundary);
    assert_true(mode_makes(mode, boundary));
  }
}

static void a_boundary_is_the_first_from_itself_on(void **state) {
  (void)state;
  for_each(look_at_boundaries);
}

static void look_at_counts(const struct mode *mode) {
  for (uint64_t n = 0; n < STEPS; n++) {
    assert_int_equal(mode_count(mode, at(mode, n)), n);
    assert_true(mode_makes(mode, at(mode, n)));
  }
}

static void versions_are_counted_as_they_are_made(void **state) {
  (void)state;
  for_each(look_at_counts);
}

static const struct mode_def *find(const char *name) {
  int i = 0;
  while (strcmp(mode_at(i)->name, name) != 0)
    i++;
  return mode_at(i);
}

static void of_local_steps_the_last_version_is_there_whatever_its_number(void **state) {
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  Weir__LocalSpec inner = WEIR__LOCAL_SPEC__INIT;
  struct mode local = {.def = find("local"), .train = &train, .last = 8};
  (void)state;
  inner.inner_steps = 3;
  train.local = &inner;
  assert_int_equal(mode_next(&local, 3), 6);
  assert_int_equal(mode_next(&local, 6), 8);
  assert_int_equal(mode_count(&local, 8), 3);
  assert_true(mode_next(&local, 8) > 8);
  assert_true(mode_makes(&local, 6) && mode_makes(&local, 8) && !mode_makes(&local, 7));
  assert_int_equal(mode_reply(&local, 6), 8);
  assert_int_equal(mode_boundary(&local, 7), 8);
}

static void synchronous_steps_are_computed_from_the_newest_version(void **state) {
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  struct mode sync = {.def = mode_at(0), .train = &train};
  struct mode_bounds bounds = mode_bounds(&sync);
  (void)state;
  assert_string_equal(sync.def->name, "sync");
  for (uint64_t step = 0; step < STEPS; step++) {
    assert_int_equal(mode_version(&sync, step), step);
    assert_int_equal(mode_oldest(&sync, step), step);
    assert_int_equal(mode_boundary(&sync, step), step);
  }
  assert_true(bounds.versions == 2 && bounds.rounds == 1 && bounds.sets == 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_step_is_computed_from_a_version_no_newer_than_it_and_no_older_than_the_one_before),
      cmocka_unit_test(a_part_of_a_step_whose_version_a_block_lacks_is_refused),
      cmocka_unit_test(a_call_is_answered_with_a_version_that_is_there_and_no_older_than_it_waits_for),
      cmocka_unit_test(no_version_goes_that_a_step_may_be_computed_from_again),
      cmocka_unit_test(the_bounds_are_what_the_other_answers_come_to),
      cmocka_unit_test(a_boundary_is_the_first_from_itself_on),
      cmocka_unit_test(versions_are_counted_as_they_are_made),
      cmocka_unit_test(of_local_steps_the_last_version_is_there_whatever_its_number),
      cmocka_unit_test(synchronous_steps_are_computed_from_the_newest_version),
  };
  return cmocka_run_group_tests_name("modes", tests, NULL, NULL);
}
