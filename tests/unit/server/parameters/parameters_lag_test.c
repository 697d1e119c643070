/* A server in a mode whose gradients are late: a table of this test's own, with one row, which nothing but
   its answers tells from the others. What it makes of the same gradients are the same versions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/parameters/parameters_calls.h"
#include "tests/support/parameters/snapshot_fixture.h"

enum { LAG = 2, LAST = 7 };

static uint64_t lag; /* of the run that is loaded next */

static uint64_t late_version(const Weir__TrainSpec *train, uint64_t step) {
  uint64_t by = (uint64_t)train->seed; /* so one row is modes with different lags */
  return step > by ? step - by : 0;
}

static enum mode_arrival late_arrive(const Weir__TrainSpec *train, const struct mode_part *part) {
  if (part->step < part->version)
    return MODE_PART_IS_LATE;
  return late_version(train, part->step) > part->lowest ? MODE_PART_IS_EARLY : MODE_PART_IS_ADDED;
}

static uint64_t late_answer(const Weir__TrainSpec *train, uint64_t wanted, uint64_t newest) {
  (void)train, (void)newest;
  return wanted;
}

static struct mode_bounds late_bounds(const Weir__TrainSpec *train) {
  uint32_t by = (uint32_t)train->seed;
  return (struct mode_bounds){.versions = 2 * by + 2, .rounds = by + 1, .sums = by + 1, .sets = by + 2};
}

static const struct mode_def late = {.name = "late",
                                     .version = late_version,
                                     .arrive = late_arrive,
                                     .answer = late_answer,
                                     .oldest = late_version,
                                     .bounds = late_bounds};

/* In the place of the table of common/modes. */
int mode_check(const Weir__RunSpec *spec, struct err *err) {
  (void)spec, (void)err;
  return 0;
}

struct mode mode_of(const Weir__RunSpec *spec) {
  return (struct mode){.def = &late, .train = spec->train};
}

static void load(struct snapshot_fixture *f, bool is_clipped) {
  const Weir__LoadRun *order = make_order(1, 1);
  Weir__TrainSpec *train = order->spec->train;
  train->steps = order->plan->steps = LAST;
  train->has_clip_norm = is_clipped;
  train->clip_norm = 0.5;
  train->has_seed = true;
  train->seed = lag;
  snapshot_fixture_init_order(f, order);
}

static void push_one(struct snapshot_fixture *f, uint32_t block, uint64_t step, uint32_t m) {
  struct attempt attempt;
  start_part(&f->server, &attempt, block, step, m);
  attempt_finish(&attempt);
  assert_int_equal(attempt.err.code, 0);
  free(attempt.data);
}

static void push_all(struct snapshot_fixture *f, uint64_t step) {
  for (uint32_t block = 0; block < BLOCKS; block++)
    for (uint32_t m = 0; m < MICROBATCHES; m++)
      push_one(f, block, step, m);
}

static void push_evaluation(struct snapshot_fixture *f, uint64_t version) {
  for (uint32_t chunk = 0; version % EVAL_EVERY == 0 && version > 0 && chunk < CHUNKS; chunk++) {
    Weir__PushRequest push = push_request(STATISTICS_BLOCK, version, chunk, 0);
    float row[METRICS] = {50, 100, 75, 100, 100};
    struct attempt attempt;
    push.evaluation = true;
    start_push(&f->server, &attempt, &push, row, sizeof row);
    attempt_finish(&attempt);
    assert_int_equal(attempt.err.code, 0);
    free(attempt.data);
  }
}

/* Until the version is there, on all blocks. */
static void wait_version(struct snapshot_fixture *f, uint64_t version) {
  for (uint32_t block = 0; block < BLOCKS; block++) {
    float element;
    pull_first_element(&f->server, block, version, &element);
  }
  wait_shards(f);
}

static void train_in_order(struct snapshot_fixture *f, bool is_clipped) {
  load(f, is_clipped);
  for (uint64_t step = 0; step < LAST; step++) {
    push_evaluation(f, step);
    push_all(f, step);
    wait_version(f, step + 1);
  }
}

/* Of each LAG + 1 steps the last one comes first. */
static void train_in_reverse(struct snapshot_fixture *f, bool is_clipped) {
  load(f, is_clipped);
  for (uint64_t first = 0; first < LAST; first += LAG + 1) {
    uint64_t end = first + LAG + 1 < LAST ? first + LAG + 1 : LAST;
    for (uint64_t step = end; step-- > first;)
      push_all(f, step);
    for (uint64_t version = first; version < end; version++) {
      wait_version(f, version);
      push_evaluation(f, version);
    }
    wait_version(f, end);
  }
}

static void assert_same(const struct snapshot_fixture *a, const struct snapshot_fixture *b) {
  for (uint32_t block = 0; block < BLOCKS; block++) {
    size_t a_bytes, b_bytes;
    void *of_a = read_content(a->run, block, &a_bytes), *of_b = read_content(b->run, block, &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(of_a, of_b, a_bytes);
    free(of_a);
    free(of_b);
  }
}

static void updates_are_made_in_the_order_of_steps_whatever_comes_first(void **state) {
  (void)state;
  for (int is_clipped = 0; is_clipped < 2; is_clipped++) { /* whose update takes sums over all blocks */
    struct snapshot_fixture in_order, in_reverse;
    lag = 0;
    train_in_order(&in_order, is_clipped);
    lag = LAG;
    train_in_reverse(&in_reverse, is_clipped);
    assert_same(&in_order, &in_reverse);
    snapshot_fixture_fini(&in_order);
    snapshot_fixture_fini(&in_reverse);
  }
}

static void expect_refused(struct snapshot_fixture *f, uint32_t block, uint64_t step, const char *text) {
  struct attempt attempt;
  start_part(&f->server, &attempt, block, step, 0);
  finish_with_error(&attempt, ERR_INVALID, text);
}

static void a_part_is_refused_whose_version_is_not_there(void **state) {
  struct snapshot_fixture f;
  (void)state;
  lag = LAG;
  load(&f, false);
  expect_refused(&f, 0, LAG + 1, "computed from version 1, but the block is at version 0");
  for (uint64_t step = 0; step <= LAG; step++)
    for (uint32_t m = 0; m < MICROBATCHES; m++)
      push_one(&f, 0, step, m);
  wait_shards(&f);
  expect_refused(&f, 0, LAG + 1, "computed from version 1, but another block of this server is at version 0");
  push_all(&f, 0); /* of block 0 it is late */
  wait_version(&f, 1);
  push_one(&f, 0, LAG + 1, 0);
  expect_refused(&f, 0, LAG + 2, "computed from version 2, but another block of this server is at version 1");
  snapshot_fixture_fini(&f);
}

static void the_last_part_brings_the_version_that_the_next_step_is_computed_from(void **state) {
  struct snapshot_fixture f;
  struct attempt waiting;
  (void)state;
  lag = LAG;
  load(&f, false);
  start_waiting_part(&f.server, &waiting, 0, 0, 0);
  finish_with_version(&waiting, 0); /* it is there */
  start_waiting_part(&f.server, &waiting, 0, LAG, 0);
  wait_parked(&f.server, 0, 1);
  for (uint32_t m = 0; m < MICROBATCHES; m++)
    push_one(&f, 0, 0, m);
  finish_with_version(&waiting, 1);
  snapshot_fixture_fini(&f);
}

/* Steps that may have to be computed again need them. */
static void a_version_stays_until_no_step_can_be_computed_from_it_again(void **state) {
  struct snapshot_fixture f;
  struct attempt pull;
  (void)state;
  lag = 1;
  load(&f, false);
  for (uint64_t step = 0; step < 4; step++) {
    push_evaluation(&f, step);
    push_all(&f, step);
    wait_version(&f, step + 1);
  }
  for (uint64_t version = 1; version <= 4;
       version++) { /* step 3 proves version 2, and step 2 needs version 1 */
    start_pull(&f.server, &pull, 0, version);
    finish_with_version(&pull, version);
  }
  start_pull(&f.server, &pull, 0, 0);
  finish_with_error(&pull, ERR_DROPPED, "version 0 was dropped");
  snapshot_fixture_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(updates_are_made_in_the_order_of_steps_whatever_comes_first),
      cmocka_unit_test(a_part_is_refused_whose_version_is_not_there),
      cmocka_unit_test(the_last_part_brings_the_version_that_the_next_step_is_computed_from),
      cmocka_unit_test(a_version_stays_until_no_step_can_be_computed_from_it_again),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests_name("parameters, late", tests, NULL, NULL);
}
