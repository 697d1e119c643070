/* Runs that end early by what their evaluations say (train.early_stopping). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_run.h"
#include "tests/support/coordinator/core_succession.h"

enum { EVERY = 2, AGAIN = 20 };

static Weir__EvalSpec eval;
static Weir__EarlyStoppingSpec stopping;

/* RUN, of STEPS steps, evaluated after each two. */
static void begin_with(struct core_fixture *f, const char *metric, const char *goal, uint32_t patience,
                       double min_delta) {
  weir__eval_spec__init(&eval);
  eval.has_every_steps = true;
  eval.every_steps = EVERY;
  weir__early_stopping_spec__init(&stopping);
  stopping.metric = (char *)metric;
  stopping.goal = (char *)goal;
  stopping.has_patience = stopping.has_min_delta = true;
  stopping.patience = patience;
  stopping.min_delta = min_delta;
  f->eval = &eval;
  f->evaluates = true;
  f->early_stopping = &stopping;
  core_run_begin(f, 1);
}

static void begin(struct core_fixture *f, const char *metric, uint32_t patience, double min_delta) {
  begin_with(f, metric, NULL, patience, min_delta);
}

static void both_are_held(struct core_fixture *f, uint64_t version) {
  reports_held(f, S1, RUN, version);
  reports_held(f, S2, RUN, version);
}

/* The steps to the next evaluated version, and what its evaluation says. */
static void evaluates(struct core_fixture *f, uint64_t version, double loss, double accuracy) {
  Weir__EvalReport report = WEIR__EVAL_REPORT__INIT;
  reports_steps(f, S1, RUN, version - EVERY, version);
  both_are_held(f, version);
  report.run = (char *)RUN;
  report.step = version;
  report.loss = loss;
  report.accuracy = accuracy;
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_EVAL, &report);
}

static void ends_at(struct core_fixture *f, uint64_t version, const char *message) {
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
  assert_int_equal(f->told[S1].write_step, version);
  core_run_checkpoint(f);
  assert_true(f->commit_is_last);
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
  assert_int_equal(info_of_run(f, RUN).step, version);
  assert_int_equal(info_of_run(f, RUN).steps, STEPS);
  assert_int_equal(info_of_run(f, RUN).patience->last_step, version);
  assert_string_equal(info_of_run(f, RUN).weights_sha256, sha256_of_weights);
  assert_string_equal(info_of_run(f, RUN).message, message);
}

static void members_stand_at_an_evaluated_version_until_its_evaluation_counts(void **state) {
  struct core_fixture *f = *state;
  begin(f, "accuracy", 3, 0);
  for (uint64_t version = EVERY; version < STEPS; version += EVERY) {
    assert_int_equal(f->told[S1].hold, version);
    assert_int_equal(f->told[S2].hold, version);
    assert_int_equal(f->told[W1].hold, version);
    assert_int_equal(f->told[W2].hold, version);
    evaluates(f, version, 1, (double)version);
    assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
    assert_int_equal(info_of_run(f, RUN).hold, 0);
  }
  assert_int_equal(f->told[S1].hold, 0); /* the last version is the end in any case */
  assert_int_equal(f->told[W1].hold, 0);
  assert_int_equal(f->told[S1].loads, 1);
  assert_int_equal(f->told[W1].loads, 1);
  assert_int_equal(info_of_run(f, RUN).patience->waited, 0);
}

static void a_run_ends_once_its_patience_is_spent(void **state) {
  struct core_fixture *f = *state;
  begin(f, "loss", 2, 0);
  evaluates(f, 2, 0.5, 0.1);
  evaluates(f, 4, 0.5, 0.2); /* the same is no better */
  assert_int_equal(info_of_run(f, RUN).patience->waited, 1);
  evaluates(f, 6, 0.75, 0.3);
  ends_at(f, 6, "stopped early: loss was best at version 2 (0.5), and no better in 2 evaluations since");
}

static void a_value_is_better_only_by_more_than_min_delta(void **state) {
  struct core_fixture *f = *state;
  begin(f, "accuracy", 1, 0.25);
  evaluates(f, 2, 1, 0.25);
  evaluates(f, 4, 1, 0.75);
  evaluates(f, 6, 1, 1);
  ends_at(f, 6,
          "stopped early: accuracy was best at version 4 (0.75), and no better by more than 0.25 in 1 "
          "evaluation since");
}

static void the_goal_may_be_given(void **state) {
  struct core_fixture *f = *state;
  begin_with(f, "loss", "max", 1, 0);
  evaluates(f, 2, 0.5, 0.1);
  evaluates(f, 4, 0.75, 0.1);
  evaluates(f, 6, 0.25, 0.1);
  ends_at(f, 6, "stopped early: loss was best at version 4 (0.75), and no better in 1 evaluation since");
}

static void what_is_no_number_is_no_better(void **state) {
  struct core_fixture *f = *state;
  begin(f, "loss", 2, 0);
  evaluates(f, 2, NAN, 0.1);
  assert_int_equal(info_of_run(f, RUN).patience->best_step, 0);
  evaluates(f, 4, NAN, 0.1);
  ends_at(f, 4, "stopped early: loss was not a number in 2 evaluations");
}

static void a_run_ends_once_all_servers_have_its_last_version(void **state) {
  struct core_fixture *f = *state;
  begin(f, "loss", 1, 0);
  evaluates(f, 2, 0.5, 0.1);
  reports_steps(f, S1, RUN, 2, 4);
  reports_eval(f, S1, RUN, 4); /* loss 0.5 */
  reports_held(f, S1, RUN, 4);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  reports_held(f, S2, RUN, 4);
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
}

/* Its manifest has no hash of the weights then. */
static void a_checkpoint_from_before_the_decision_is_made_again(void **state) {
  struct core_fixture *f = *state;
  weir__checkpoint_spec__init(&f->every);
  f->every.has_every_steps = true;
  f->every.every_steps = 4;
  f->checkpoint = &f->every;
  begin(f, "loss", 1, 0);
  evaluates(f, 2, 0.5, 0.1);
  reports_steps(f, S1, RUN, 2, 4);
  assert_int_equal(f->told[S1].write_step, 4);
  member_writes(f, S1, RUN), member_writes(f, S2, RUN);
  assert_false(f->commit_is_last);
  evaluates(f, 4, 0.5, 0.1);
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
  f->told[S1].writes = 0;
  store_commits(f, RUN, NULL);
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
  assert_int_equal(f->told[S1].writes, 1);
  ends_at(f, 4, "stopped early: loss was best at version 2 (0.5), and no better in 1 evaluation since");
}

static void a_hold_before_the_end_holds_the_run_there(void **state) {
  struct core_fixture *f = *state;
  f->hold = 4;
  begin(f, "loss", 2, 0);
  evaluates(f, 2, 0.5, 0.1);
  assert_int_equal(f->told[S1].hold, 4);
  evaluates(f, 4, 0.5, 0.1);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  user_raises(f, RUN, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[S1].hold, 6);
  evaluates(f, 6, 0.5, 0.1);
  ends_at(f, 6, "stopped early: loss was best at version 2 (0.5), and no better in 2 evaluations since");
}

static void a_run_may_end_at_its_hold(void **state) {
  struct core_fixture *f = *state;
  f->hold = 4;
  begin(f, "loss", 1, 0);
  evaluates(f, 2, 0.5, 0.1);
  evaluates(f, 4, 0.5, 0.1);
  ends_at(f, 4, "stopped early: loss was best at version 2 (0.5), and no better in 1 evaluation since");
}

static void a_successor_knows_what_has_counted(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord *record;
  begin(f, "loss", 2, 0);
  evaluates(f, 2, 0.5, 0.1);
  record = record_of_run(f, RUN);
  assert_int_equal(record->patience->step, 2);
  evaluates(f, 4, 0.5, 0.1); /* which the events have, and the record has not */
  coordinator_is_succeeded(f, RUN, record);
  assert_int_equal(info_of_run(f, RUN).patience->waited, 1);
  server_joins_again(f, S1, AGAIN + S1, RUN, 4);
  server_joins_again(f, S2, AGAIN + S2, RUN, 4);
  assert_int_equal(f->told[AGAIN + S1].hold, 6);
}

static void a_successor_ends_a_run_that_was_to_end(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord *record;
  begin(f, "loss", 1, 0);
  evaluates(f, 2, 0.5, 0.1);
  reports_steps(f, S1, RUN, 2, 4);
  record = record_of_run(f, RUN);
  reports_eval(f, S1, RUN, 4);
  coordinator_is_succeeded(f, RUN, record);
  server_joins_again(f, S1, AGAIN + S1, RUN, 4);
  server_joins_again(f, S2, AGAIN + S2, RUN, 4);
  assert_int_equal(f->told[AGAIN + S1].hold, 4);
  reports_held(f, AGAIN + S1, RUN, 4);
  reports_held(f, AGAIN + S2, RUN, 4);
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(members_stand_at_an_evaluated_version_until_its_evaluation_counts),
      TEST(a_run_ends_once_its_patience_is_spent),
      TEST(a_value_is_better_only_by_more_than_min_delta),
      TEST(the_goal_may_be_given),
      TEST(what_is_no_number_is_no_better),
      TEST(a_run_ends_once_all_servers_have_its_last_version),
      TEST(a_checkpoint_from_before_the_decision_is_made_again),
      TEST(a_hold_before_the_end_holds_the_run_there),
      TEST(a_run_may_end_at_its_hold),
      TEST(a_successor_knows_what_has_counted),
      TEST(a_successor_ends_a_run_that_was_to_end),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
