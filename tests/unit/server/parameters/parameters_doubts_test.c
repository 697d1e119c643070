/* Parts whose sum overflows, and steps that lack some, on a parameter server over real RPC. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "server/parameters/load/late.h"
#include "tests/support/parameters/parameters_calls.h"

enum { BLOCK = 2, AT = 7 };

/* Element AT of an honest part of BLOCK, and of a lying one. */
static const float large = 1e38f, lie = 3.4e38f;

/* Begins a push of a microbatch of step 0 by a worker. */
static void start_from(struct parameters_fixture *f, struct attempt *attempt, Weir__PushRequest *push,
                       float at) {
  size_t size_bytes = part_of(f, BLOCK, (float)(push->first + 1));
  f->values[AT] = at;
  push->view = 11;
  start_push(f, attempt, push, f->values, size_bytes);
}

static void push_from(struct parameters_fixture *f, uint32_t first, uint32_t worker, float at) {
  Weir__PushRequest push = push_request(BLOCK, 0, first, 0);
  struct attempt attempt;
  push.worker = worker;
  start_from(f, &attempt, &push, at);
  finish_with_version(&attempt, 0);
}

static const Weir__MemberMessage *wait_for(struct parameters_fixture *f, int n,
                                           Weir__MemberMessage__BodyCase body) {
  wait_told(f, n);
  assert_int_equal(f->n_told, n);
  assert_int_equal(f->told[n - 1], body);
  return f->last_told[body];
}

static void assert_pushed(const Weir__PushedPart *part, uint32_t first, uint32_t worker) {
  assert_int_equal(part->first, first);
  assert_int_equal(part->level, 0);
  assert_int_equal(part->worker, worker);
  assert_int_equal(part->view, 11);
}

/* The honest worker comes last, and waits for the next version as if nothing had happened. */
static void a_sum_that_overflows_is_doubted_judged_and_the_step_completes(void **state) {
  struct parameters_fixture f;
  struct attempt waiting, waiting_anew;
  Weir__PushRequest push = push_request(BLOCK, 0, 1, 0);
  const Weir__Doubted *doubted;
  const Weir__Judged *judged;
  float before, after;
  (void)state;
  parameters_fixture_init(&f, 1);
  pull_first_element(&f, BLOCK, 0, &before);
  push_from(&f, 0, 5, lie);
  push.worker = UINT32_MAX;
  push.wait = true;
  start_from(&f, &waiting, &push, large);
  doubted = wait_for(&f, 1, WEIR__MEMBER_MESSAGE__BODY_DOUBTED)->doubted;
  assert_string_equal(doubted->run, "unit-1");
  assert_true(doubted->incarnation == 1 && doubted->step == 0 && doubted->block == BLOCK);
  assert_int_equal(doubted->n_parts, 2);
  assert_pushed(doubted->parts[0], 0, 5);
  assert_pushed(doubted->parts[1], 1, UINT32_MAX);
  wait_parked(&f, BLOCK, 1);
  for (uint32_t m = 2; m < MICROBATCHES; m++)
    push_from(&f, m, 3, 0);
  push_from(&f, 1, 6, large);
  assert_int_equal(f.n_told, 1);
  push.first = 0;
  push.worker = 6;
  start_from(&f, &waiting_anew, &push, large);
  judged = wait_for(&f, 2, WEIR__MEMBER_MESSAGE__BODY_JUDGED)->judged;
  assert_true(judged->incarnation == 1 && judged->step == 0 && judged->block == BLOCK && !judged->overflows);
  assert_int_equal(judged->n_changed, 1);
  assert_pushed(judged->changed[0], 0, 5);
  assert_int_equal(judged->n_computed_by, 1);
  assert_int_equal(judged->computed_by[0], 6);
  finish_with_version(&waiting, 1);
  finish_with_version(&waiting_anew, 1);
  pull_first_element(&f, BLOCK, 1, &after);
  assert_true(after == before - 0.5f * 21);
  parameters_fixture_fini(&f);
}

static void doubted_parts_end_with_their_run(void **state) {
  struct parameters_fixture f;
  struct attempt waiting;
  struct err err;
  struct hosted_run *run;
  Weir__PushRequest push = push_request(BLOCK, 0, 1, 0);
  (void)state;
  parameters_fixture_init(&f, 1);
  run = run_table_find(&f.runs, "unit-1", 1, &err);
  push_from(&f, 0, 5, lie);
  push.wait = true;
  push.view = UINT64_MAX;
  start_from(&f, &waiting, &push, large);
  wait_for(&f, 1, WEIR__MEMBER_MESSAGE__BODY_DOUBTED);
  wait_parked(&f, BLOCK, 1);
  run_table_remove(&f.runs, "unit-1", "it was cancelled");
  finish_with_error(&waiting, ERR_CANCELLED, "it was cancelled");
  hosted_run_tell_late(run, &(struct pace_late){.step = 0});
  shard_settle(f.shards[0]);
  shard_settle(f.shards[1]);
  assert_int_equal(f.n_told, 1);
  hosted_run_put(run);
  parameters_fixture_fini(&f);
}

/* What the run tells of step `step`, as message number n. */
static const Weir__Late *tell_late(struct parameters_fixture *f, uint64_t step, int n) {
  struct err err;
  struct hosted_run *run = run_table_find(&f->runs, "unit-1", 1, &err);
  const Weir__Late *late;
  hosted_run_tell_late(run, &(struct pace_late){.step = step, .waited_ns = UINT64_C(1500000000)});
  hosted_run_put(run);
  late = wait_for(f, n, WEIR__MEMBER_MESSAGE__BODY_LATE)->late;
  assert_string_equal(late->run, "unit-1");
  assert_true(late->incarnation == 1 && late->step == step && late->waited_seconds == 1.5);
  return late;
}

static void assert_range(const Weir__Range *range, uint32_t begin, uint32_t end) {
  assert_int_equal(range->begin, begin);
  assert_int_equal(range->end, end);
}

/* A microbatch is missing if any block lacks it: a sum may hang on its way while the row is there. */
static void what_a_late_step_lacks_is_told_over_all_blocks(void **state) {
  struct parameters_fixture f;
  const Weir__Late *late;
  (void)state;
  parameters_fixture_init(&f, 1);
  late = tell_late(&f, 0, 1);
  assert_int_equal(late->n_microbatches, 1);
  assert_range(late->microbatches[0], 0, MICROBATCHES);
  assert_int_equal(late->n_chunks, 0);
  push_step(&f, 0, 0);
  for (uint32_t m = 1; m < 5; m++)
    push_part(&f, 1, 0, m, 0);
  for (uint32_t m = 0; m < 6; m++)
    if (m != 3) {
      push_part(&f, BLOCK, 0, m, 0);
      push_part(&f, STATISTICS_BLOCK, 0, m, 0);
    }
  late = tell_late(&f, 0, 2);
  assert_int_equal(late->n_microbatches, 3);
  assert_range(late->microbatches[0], 0, 1);
  assert_range(late->microbatches[1], 3, 4);
  assert_range(late->microbatches[2], 5, 6);
  push_part(&f, 1, 0, 0, 0);
  push_part(&f, 1, 0, 5, 1);
  push_part(&f, BLOCK, 0, 3, 1);
  late = tell_late(&f, 0, 3); /* a row alone */
  assert_int_equal(late->n_microbatches, 1);
  assert_range(late->microbatches[0], 3, 4);
  parameters_fixture_fini(&f);
}

static void doubted_microbatches_are_missing(void **state) {
  struct parameters_fixture f;
  const Weir__Late *late;
  (void)state;
  parameters_fixture_init(&f, 1);
  for (uint32_t block = 0; block < BLOCKS; block++)
    if (block != BLOCK)
      push_step(&f, block, 0);
  for (uint32_t m = 2; m < MICROBATCHES; m++)
    push_from(&f, m, 3, 0);
  push_from(&f, 0, 5, lie);
  push_from(&f, 1, 6, large);
  wait_for(&f, 2, WEIR__MEMBER_MESSAGE__BODY_DOUBTED); /* the other is the step's report */
  late = tell_late(&f, 0, 3);
  assert_int_equal(late->n_microbatches, 1);
  assert_range(late->microbatches[0], 0, 2);
  parameters_fixture_fini(&f);
}

static void chunks_of_a_late_evaluation_are_told(void **state) {
  struct parameters_fixture f;
  const Weir__Late *late;
  (void)state;
  parameters_fixture_init(&f, 1);
  push_version(&f, 0);
  late = tell_late(&f, 1, 2);
  assert_true(late->n_microbatches == 1 && late->n_chunks == 0); /* version 1 is not evaluated */
  push_version(&f, 1);
  push_eval(&f, 2, 1, 2);
  for (uint32_t block = 0; block < STATISTICS_BLOCK; block++)
    push_step(&f, block, 2);
  push_all_but_last(&f, STATISTICS_BLOCK, 2);
  push_part(&f, STATISTICS_BLOCK, 2, MICROBATCHES - 1, 2);
  late = tell_late(&f, 2, 4);
  assert_int_equal(late->n_microbatches, 0);
  assert_int_equal(late->n_chunks, 1);
  assert_range(late->chunks[0], 0, 1);
  push_eval(&f, 2, 0, 3);
  wait_told(&f, 6);
  late = tell_late(&f, 3, 7); /* the last version, to which no microbatch belongs */
  assert_int_equal(late->n_microbatches, 0);
  assert_range(late->chunks[0], 0, CHUNKS);
  parameters_fixture_fini(&f);
}

/* It was complete by the time that the shards looked, or waits for another server. */
static void a_step_that_lacks_nothing_is_not_told(void **state) {
  struct parameters_fixture f;
  struct err err;
  struct hosted_run *run;
  (void)state;
  parameters_fixture_init(&f, 1);
  run = run_table_find(&f.runs, "unit-1", 1, &err);
  push_version(&f, 0);
  hosted_run_tell_late(run, &(struct pace_late){.step = 0});
  hosted_run_tell_late(run, &(struct pace_late){.step = 9});
  shard_settle(f.shards[0]);
  shard_settle(f.shards[1]);
  assert_int_equal(f.n_told, 1);
  hosted_run_put(run);
  parameters_fixture_fini(&f);
}

static void a_run_knows_its_oldest_step_and_how_long_steps_take(void **state) {
  static const struct pace_options options = {.least_ms = 1, .first_ms = 1, .pause_max_ms = 1};
  static const uint64_t hour_ns = 3600 * UINT64_C(1000000000); /* no step of a test takes so long */
  struct parameters_fixture f;
  struct err err;
  struct hosted_run *run;
  struct pace_late late;
  (void)state;
  parameters_fixture_init(&f, 1);
  run = run_table_find(&f.runs, "unit-1", 1, &err);
  push_version(&f, 0);
  for (uint32_t block = 1; block < BLOCKS; block++)
    push_step(&f, block, 1);
  assert_true(pace_is_late(&run->pace, &options, run->pace.since_ns + hour_ns, &late));
  assert_true(late.step == 1 && late.waited_ns == hour_ns);
  push_step(&f, 0, 1);
  assert_true(pace_is_late(&run->pace, &options, run->pace.since_ns + hour_ns, &late));
  assert_int_equal(late.step, 2);
  assert_true(run->pace.is_evaluated);
  assert_int_equal(run->pace.plain.n, 1); /* the first says nothing */
  assert_false(hosted_run_is_finished(run));
  push_version(&f, 2);
  push_eval(&f, 3, 0, 3);
  assert_false(hosted_run_is_finished(run));
  push_eval(&f, 3, 1, 3);
  assert_true(hosted_run_is_finished(run));
  hosted_run_put(run);
  parameters_fixture_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_sum_that_overflows_is_doubted_judged_and_the_step_completes),
      cmocka_unit_test(doubted_parts_end_with_their_run),
      cmocka_unit_test(what_a_late_step_lacks_is_told_over_all_blocks),
      cmocka_unit_test(doubted_microbatches_are_missing),
      cmocka_unit_test(chunks_of_a_late_evaluation_are_told),
      cmocka_unit_test(a_step_that_lacks_nothing_is_not_told),
      cmocka_unit_test(a_run_knows_its_oldest_step_and_how_long_steps_take),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
