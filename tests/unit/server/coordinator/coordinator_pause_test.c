/* Runs that are paused, resumed and cancelled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"
#include "tests/support/coordinator/core_run.h"
#include "tests/support/coordinator/core_succession.h"

enum { S3 = 5, W3 = 6, AGAIN = 20 };

static Weir__Ending record_of_ending(struct core_fixture *f) {
  Weir__RunRecord *record = record_of(f);
  Weir__Ending ending = record->ending;
  message_free(record);
  return ending;
}

static void a_paused_run_holds_nothing_and_goes_on_from_its_checkpoint(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 1);
  f->told[S1].writes = 0;
  user_pauses(f, RUN);
  assert_int_equal(f->told[S1].write_step, 3); /* as soon as may be, in place of step 4 */
  assert_int_equal(f->told[S1].writes, 1);
  assert_string_equal(info_of_run(f, RUN).message, "pausing at step 3");
  reports_steps(f, S1, RUN, 1, 5);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  core_run_checkpoint(f);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  assert_string_equal(info_of_run(f, RUN).message, "paused at step 3");
  assert_int_equal(info_of_run(f, RUN).step, 3);
  assert_string_equal(f->told[W1].unload, RUN);
  assert_string_equal(f->told[S2].unload, RUN);
  assert_false(coordinator_run_is_over(f->coordinator, RUN));
  member_joins(f, W3, WEIR__ROLE__WORKER, 1, "build-2");
  assert_string_equal(f->told[W3].load, "");
  member_leaves(f, W1);
  member_leaves(f, W2);
  member_joins(f, AGAIN, WEIR__ROLE__WORKER, 1, "build-2");
  user_resumes(f, RUN, 2); /* there is none */
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  user_resumes(f, RUN, 3);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_string_equal(f->told[W3].load, RUN);
  f->incarnation = 1;
  assert_int_equal(f->told[S1].load_step, 3);
  assert_int_equal(f->told[S1].load_incarnation, 1);
  server_loads(f, S1, RUN);
  server_loads(f, S2, RUN);
  loads_and_probes(f, W3, RUN, "other data", "new probe");
  assert_non_null(strstr(worker_row(f, W3).message, "other data"));
  loads_and_probes(f, AGAIN, RUN, "data", "new probe"); /* of a new build */
  assert_string_equal(worker_row(f, AGAIN).state, "ready");
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING); /* both of two are needed, as at the first start */
  member_joins(f, AGAIN + 1, WEIR__ROLE__WORKER, 1, "build-2");
  loads_and_probes(f, AGAIN + 1, RUN, "data", "new probe");
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void a_run_that_has_not_begun_is_paused_at_once(void **state) {
  struct core_fixture *f = *state;
  user_submits(f, RUN, 1, 0);
  user_pauses(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  assert_string_equal(f->told[W1].load, "");
  user_resumes(f, RUN, 0);
  assert_string_equal(f->told[W1].load, RUN);
  f->incarnation = 1;
  worker_loads(f, W1, RUN);
  assert_string_equal(f->told[S1].load, RUN);
  user_pauses(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  assert_string_equal(f->told[S1].unload, RUN);
  user_cancels(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__CANCELLED);
}

static void an_answer_to_an_order_that_is_over_is_not_taken_for_another(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  user_pauses(f, RUN);
  user_resumes(f, RUN, 0);
  assert_int_equal(f->told[W1].load_incarnation, 1);
  worker_loads(f, W1, RUN); /* of before the pause */
  assert_string_equal(worker_row(f, W1).state, "loading");
  f->incarnation = 1;
  worker_loads(f, W1, RUN);
  assert_string_equal(worker_row(f, W1).state, "ready");
}

static void runs_short_of_workers_do_not_wait_for_each_other(void **state) {
  struct core_fixture *f = *state;
  static const char second[] = "mlp-bbbbbb";
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
  user_submits(f, RUN, 2, 2);
  worker_joins(f, W3, 1);
  worker_joins(f, AGAIN, 1);
  user_submits(f, second, 2, 2);
  assert_string_equal(f->told[AGAIN].load, second);
  member_leaves(f, W1);
  member_leaves(f, W3); /* both have one of two */
  core_ticks(f);
  assert_string_equal(f->told[AGAIN].load, RUN);
  assert_state(f, second, WEIR__RUN_STATE__QUEUED);
}

static void a_pause_does_not_wait_for_workers_that_are_gone(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 4);
  core_run_checkpoint(f);
  reports_steps(f, S1, RUN, 4, 6);
  member_leaves(f, W1);
  member_leaves(f, W2);
  user_pauses(f, RUN);
  member_beats(f, S1), member_beats(f, S2);
  time_passes(f, GRACE_MS);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  assert_string_equal(info_of_run(f, RUN).message, "paused at step 4");
}

static void a_resume_drops_what_comes_again(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 4);
  core_run_checkpoint(f);
  reports_steps(f, S1, RUN, 4, 8);
  core_run_checkpoint(f);
  user_cancels(f, RUN);
  user_resumes(f, RUN, 4);
  assert_int_equal(f->n_dropped, 1);
  assert_int_equal(f->dropped[0], 8);
  assert_int_equal(core_run_newest(f), 4);
  assert_int_equal(info_of_run(f, RUN).step, 4);
  assert_int_equal(info_of_run(f, RUN).finished_unix_ms, 0);
}

static void a_commit_that_a_cancelled_run_had_under_way_counts(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, STEPS);
  member_completes(f, S1, RUN);
  member_completes(f, S2, RUN);
  assert_int_equal(f->told[S1].write_step, STEPS);
  member_writes(f, S1, RUN);
  member_writes(f, S2, RUN);
  user_cancels(f, RUN);
  store_commits(f, RUN, NULL);
  assert_state(f, RUN, WEIR__RUN_STATE__CANCELLED);
  assert_int_equal(core_run_newest(f), STEPS);
  user_resumes(f, RUN, STEPS); /* nothing is left to do */
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
  assert_string_equal(info_of_run(f, RUN).weights_sha256, sha256_of_weights);
}

/* It is to pause or to stop. Its successor has it when its servers are back. */
static void succeed_while_ending(struct core_fixture *f, Weir__Ending ending) {
  Weir__RunRecord *record = record_of(f);
  assert_int_equal(record->state, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(record->ending, ending);
  coordinator_is_succeeded(f, RUN, record);
  server_joins_again(f, S1, S1 + AGAIN, RUN, 3);
  server_joins_again(f, S2, S2 + AGAIN, RUN, 3);
  worker_joins_again(f, W1, W1 + AGAIN, RUN);
  worker_loads(f, W1 + AGAIN, RUN);
}

static void ends_as_wished(struct core_fixture *f, Weir__RunState ended) {
  uint64_t step = f->told[S1 + AGAIN].write_step;
  assert_in_range(step, 1, STEPS - 1);
  reports_steps(f, S1 + AGAIN, RUN, 3, STEPS - 1);
  member_writes(f, S1 + AGAIN, RUN);
  member_writes(f, S2 + AGAIN, RUN);
  store_commits(f, RUN, NULL);
  assert_state(f, RUN, ended);
  assert_int_equal(info_of_run(f, RUN).step, step);
}

static void a_wish_to_pause_outlives_the_coordinator(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  user_pauses(f, RUN);
  succeed_while_ending(f, WEIR__ENDING__PAUSING);
  ends_as_wished(f, WEIR__RUN_STATE__PAUSED);
}

static void a_wish_to_stop_outlives_the_coordinator(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  user_stops(f, RUN);
  succeed_while_ending(f, WEIR__ENDING__STOPPING);
  ends_as_wished(f, WEIR__RUN_STATE__STOPPED);
}

static void lose_servers(Weir__RunRecord *record) {
  while (record->n_servers > 0)
    message_free(record->servers[--record->n_servers]);
}

/* The servers are gone, too: it is rolled back to its checkpoint, and is to pause there, or to stop soon. */
static void a_wish_outlives_everybody(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord *record, *other;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 4);
  core_run_checkpoint(f);
  user_stops(f, RUN);
  record = record_of(f);
  other = record_of(f);
  lose_servers(record);
  lose_servers(other);
  record->ending = WEIR__ENDING__PAUSING;
  coordinator_is_succeeded(f, RUN, record);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  other->incarnation++;
  coordinator_is_succeeded(f, RUN, other);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_int_equal(record_of_ending(f), WEIR__ENDING__STOPPING);
}

static void a_wish_that_a_record_cannot_have_is_ignored(void **state) {
  struct core_fixture *f = *state;
  static const Weir__RunState others[] = {WEIR__RUN_STATE__QUEUED, WEIR__RUN_STATE__PAUSED,
                                          WEIR__RUN_STATE__CANCELLED, WEIR__RUN_STATE__FAILED};
  core_run_start(f, 3);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    Weir__RunRecord *record = record_of(f);
    record->state = others[i];
    record->ending = (Weir__Ending)(1 + i % 2 * 1000);
    coordinator_is_succeeded(f, RUN, record);
    assert_state(f, RUN, others[i]);
    assert_int_equal(record_of_ending(f), WEIR__ENDING__NO_ENDING);
  }
}

static void runs_come_and_go(struct core_fixture *f, const char *name, int n) {
  for (int i = 0; i < n; i++) {
    char id[32];
    snprintf(id, sizeof id, "%s-%d", name, i);
    user_submits(f, id, 1, 0);
    user_cancels(f, id);
  }
}

static bool is_known(struct core_fixture *f, const char *run) {
  return coordinator_run_spec(f->coordinator, run) != NULL;
}

static void trials_that_are_over_push_out_each_other_alone(void **state) {
  struct core_fixture *f = *state;
  f->sweep = "search-aaaaaa";
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, STEPS);
  member_completes(f, S1, RUN);
  member_completes(f, S2, RUN);
  core_run_checkpoint(f);
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
  f->sweep = NULL;
  runs_come_and_go(f, "mine", 2);
  f->sweep = "search-aaaaaa";
  runs_come_and_go(f, "trial", TRIALS_KEPT + 1); /* the newest goes with the next one */
  assert_true(is_known(f, RUN));                 /* it has a result */
  assert_false(is_known(f, "trial-0"));
  assert_true(is_known(f, "trial-2"));
  assert_true(is_known(f, "mine-0"));
  f->sweep = NULL;
  runs_come_and_go(f, "other", RUNS_KEPT);
  assert_false(is_known(f, "mine-0"));
  assert_true(is_known(f, "mine-1"));
  assert_true(is_known(f, "trial-2"));
}

static void add_steps(struct core_fixture *f, const char *id, int n) {
  for (int i = 0; i < n; i++) {
    struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_STEP, .step = WEIR__STEP_EVENT__INIT};
    event.step.step = (uint64_t)i;
    event_log_add(&coordinator_run(f->coordinator, id)->events, &event);
  }
}

static int steps_kept(struct core_fixture *f, const char *id) {
  return coordinator_run(f->coordinator, id)->events.steps.count;
}

static void histories_of_runs_that_are_over_are_short_once_they_take_too_much(void **state) {
  enum { MANY = 4 * EVENT_LOG_OLD_STEPS };
  struct core_fixture *f = *state;
  user_submits(f, "live", 1, 0);
  add_steps(f, "live", MANY);
  runs_come_and_go(f, "old", 2);
  add_steps(f, "old-0", MANY);
  add_steps(f, "old-1", MANY);
  runs_come_and_go(f, "new", 1);
  assert_int_equal(steps_kept(f, "old-0"), MANY); /* there is room */
  f->coordinator->options.events_old_bytes =
      event_log_bytes(&coordinator_run(f->coordinator, "old-1")->events) * 3 / 2;
  runs_come_and_go(f, "newer", 1);
  assert_in_range(steps_kept(f, "old-0"), 1, EVENT_LOG_OLD_STEPS);
  assert_int_equal(steps_kept(f, "old-1"), MANY);
  assert_int_equal(steps_kept(f, "live"), MANY);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_paused_run_holds_nothing_and_goes_on_from_its_checkpoint),
      TEST(a_run_that_has_not_begun_is_paused_at_once),
      TEST(an_answer_to_an_order_that_is_over_is_not_taken_for_another),
      TEST(runs_short_of_workers_do_not_wait_for_each_other),
      TEST(a_pause_does_not_wait_for_workers_that_are_gone),
      TEST(a_resume_drops_what_comes_again),
      TEST(a_commit_that_a_cancelled_run_had_under_way_counts),
      TEST(trials_that_are_over_push_out_each_other_alone),
      TEST(histories_of_runs_that_are_over_are_short_once_they_take_too_much),
      TEST(a_wish_to_pause_outlives_the_coordinator),
      TEST(a_wish_to_stop_outlives_the_coordinator),
      TEST(a_wish_outlives_everybody),
      TEST(a_wish_that_a_record_cannot_have_is_ignored),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1); /* damaged records are logged as errors */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
