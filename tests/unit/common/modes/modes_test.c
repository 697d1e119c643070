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

enum { STEPS = 90, SETTLED = 45 }; /* SETTLED: a version that is far from the run's begin */

/* Each row, with several values of its option. */
static void for_each(void (*look)(const struct mode *mode)) {
  static const uint32_t lags[] = {0, 1, 2, 4, MODE_BEFORE_MAX};
  for (int i = 0; mode_at(i); i++)
    for (size_t l = 0; l < sizeof lags / sizeof *lags; l++) {
      Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
      Weir__LocalSpec local = WEIR__LOCAL_SPEC__INIT;
      struct mode mode = {.def = mode_at(i), .train = &train};
      train.staleness = lags[l];
      train.has_window = lags[l] > 0;
      train.window = lags[l];
      local.inner_steps = 3;
      train.local = &local;
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
          assert_int_equal(arrival == MODE_PART_IS_EARLY,
                           mode_proves(mode, mode_version(mode, part.step)) > part.lowest);
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

/* What a block gives away goes as far as what is taken of whoever has that. */
static void look_at_horizons(const struct mode *mode) {
  for (uint64_t n = 0; n < SETTLED; n++) {
    uint64_t newest = at(mode, n), horizon = mode_horizon(mode, newest);
    assert_true(horizon >= newest && mode_horizon(mode, at(mode, n + 1)) > horizon);
    assert_true(mode_proves(mode, horizon) <= newest && mode_proves(mode, horizon + 1) > newest);
    assert_true(mode_proves(mode, newest) <= newest);
  }
}

static void who_has_a_version_proves_one_that_lets_a_block_give_it_away(void **state) {
  (void)state;
  for_each(look_at_horizons);
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
    rounds += mode_proves(mode, mode_version(mode, at(mode, n))) <= newest;
  assert_int_equal(rounds, bounds.rounds);
  assert_int_equal(SETTLED + 2 - mode_count(mode, mode_oldest(mode, newest)), bounds.sets);
}

static void the_bounds_are_what_the_other_answers_come_to(void **state) {
  (void)state;
  for_each(look_at_bounds);
}

/* A run that goes on from a version has what its steps are computed from, and no more. */
static void look_at_before(const struct mode *mode) {
  for (uint64_t version = 0; version < STEPS; version++) {
    uint64_t before = mode_before(mode, version);
    assert_true(before <= version && before <= MODE_BEFORE_MAX);
    assert_int_equal(version - before, mode_version(mode, version));
  }
  assert_true(mode_bounds(mode).rounds <= MODE_ROUNDS_MAX);
}

static void a_version_is_kept_with_those_that_its_step_and_later_ones_are_computed_from(void **state) {
  (void)state;
  for_each(look_at_before);
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

static const struct mode_def *row_of(const char *name) {
  for (int i = 0; mode_at(i); i++)
    if (strcmp(mode_at(i)->name, name) == 0)
      return mode_at(i);
  fail_msg("mode.def has no row %s", name);
  return NULL;
}

static void a_lag_of_no_step_is_sync(void **state) {
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  struct mode ssp = {.def = row_of("ssp"), .train = &train}, sync = {.def = row_of("sync"), .train = &train};
  struct mode_bounds a = mode_bounds(&ssp), b = mode_bounds(&sync);
  (void)state;
  assert_true(a.versions == b.versions && a.rounds == b.rounds && a.sets == b.sets);
  for (uint64_t step = 0; step < STEPS; step++) {
    assert_int_equal(mode_version(&ssp, step), mode_version(&sync, step));
    assert_int_equal(mode_oldest(&ssp, step), mode_oldest(&sync, step));
    for (uint64_t version = 0; version < STEPS; version++) {
      struct mode_part part = {.step = step, .version = version, .lowest = version};
      assert_int_equal(mode_arrive(&ssp, &part), mode_arrive(&sync, &part));
    }
  }
}

static void ssp_computes_a_step_from_the_version_so_many_steps_before(void **state) {
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  struct mode ssp = {.def = row_of("ssp"), .train = &train};
  struct mode_bounds bounds;
  (void)state;
  train.staleness = 4;
  bounds = mode_bounds(&ssp);
  for (uint64_t step = 0; step < STEPS; step++)
    assert_int_equal(mode_version(&ssp, step), step < 4 ? 0 : step - 4);
  assert_true(bounds.versions == 10 && bounds.rounds == 5 && bounds.sets == 6);
}

/* The spec's mode and options, checked as a submission is. */
static void expect(const char *mode, int staleness, const char *error) {
  Weir__RunSpec spec = WEIR__RUN_SPEC__INIT;
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  struct err err = ERR_NONE;
  spec.train = &train;
  train.mode = (char *)mode;
  train.has_staleness = staleness >= 0;
  train.staleness = staleness >= 0 ? (uint32_t)staleness : 0;
  mode_check(&spec, &err);
  assert_int_equal(err.code, *error ? ERR_INVALID : 0);
  if (*error)
    assert_string_equal(err.text, error);
}

/* In mode async, with one more key. */
static void expect_async(void (*change)(Weir__RunSpec *spec), const char *error) {
  Weir__RunSpec spec = WEIR__RUN_SPEC__INIT;
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  Weir__WorkersSpec workers = WEIR__WORKERS_SPEC__INIT;
  struct err err = ERR_NONE;
  spec.train = &train;
  spec.workers = &workers;
  train.mode = (char *)"async";
  train.has_window = true;
  train.window = 1;
  change(&spec);
  mode_check(&spec, &err);
  assert_int_equal(err.code, *error ? ERR_INVALID : 0);
  if (*error)
    assert_non_null(strstr(err.text, error));
}

static void no_change(Weir__RunSpec *spec) {
  (void)spec;
}

static void no_window(Weir__RunSpec *spec) {
  spec->train->window = 0;
}

static void wide_window(Weir__RunSpec *spec) {
  spec->train->window = MODE_ROUNDS_MAX;
}

static void clip(Weir__RunSpec *spec) {
  spec->train->has_clip_norm = true;
  spec->train->clip_norm = 1;
}

static void collect(Weir__RunSpec *spec) {
  spec->train->collective = (char *)"shm";
}

static void cut(Weir__RunSpec *spec) {
  spec->workers->stages = 2;
}

static void average(Weir__RunSpec *spec) {
  static Weir__AverageSpec of;
  weir__average_spec__init(&of);
  spec->train->average = &of;
}

static void promise(Weir__RunSpec *spec) {
  spec->train->has_deterministic = true; /* which it is by default */
}

static void give_up_promise(Weir__RunSpec *spec) {
  spec->train->has_deterministic = true;
  spec->train->deterministic = false;
}

static void what_is_no_update_of_a_block_alone_is_refused_by_async(void **state) {
  (void)state;
  expect_async(no_change, "");
  expect_async(give_up_promise, "");
  expect_async(no_window, "train.window: must be from 1 to 16");
  expect_async(wide_window, "train.window: must be from 1 to 16");
  expect_async(clip, "train.clip_norm: ");
  expect_async(collect, "train.collective: shm ");
  expect_async(cut, "workers.stages: ");
  expect_async(average, "train.average: ");
  expect_async(promise, "train.deterministic: ");
}

static void options_are_those_of_the_mode(void **state) {
  (void)state;
  expect("sync", -1, "");
  expect("ssp", 0, "");
  expect("ssp", MODE_BEFORE_MAX, "");
  expect("ssp", MODE_BEFORE_MAX + 1, "train.staleness: must be from 0 to 16");
  expect("ssp", -1, "train.staleness: is missing: by how many steps are gradients late, from 0 to 16?");
  expect("sync", 1, "train.staleness: is an option of train.mode ssp, and train.mode is sync");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_step_is_computed_from_a_version_no_newer_than_it_and_no_older_than_the_one_before),
      cmocka_unit_test(a_part_of_a_step_whose_version_a_block_lacks_is_refused),
      cmocka_unit_test(a_call_is_answered_with_a_version_that_is_there_and_no_older_than_it_waits_for),
      cmocka_unit_test(who_has_a_version_proves_one_that_lets_a_block_give_it_away),
      cmocka_unit_test(no_version_goes_that_a_step_may_be_computed_from_again),
      cmocka_unit_test(the_bounds_are_what_the_other_answers_come_to),
      cmocka_unit_test(a_version_is_kept_with_those_that_its_step_and_later_ones_are_computed_from),
      cmocka_unit_test(a_boundary_is_the_first_from_itself_on),
      cmocka_unit_test(versions_are_counted_as_they_are_made),
      cmocka_unit_test(of_local_steps_the_last_version_is_there_whatever_its_number),
      cmocka_unit_test(synchronous_steps_are_computed_from_the_newest_version),
      cmocka_unit_test(a_lag_of_no_step_is_sync),
      cmocka_unit_test(ssp_computes_a_step_from_the_version_so_many_steps_before),
      cmocka_unit_test(options_are_those_of_the_mode),
      cmocka_unit_test(what_is_no_update_of_a_block_alone_is_refused_by_async),
  };
  return cmocka_run_group_tests_name("modes", tests, NULL, NULL);
}
