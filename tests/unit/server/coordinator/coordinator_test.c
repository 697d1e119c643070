/* The coordinator's core, driven by events: what it orders, publishes and decides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_run.h"

enum { S3 = 7, W3 = 5 };

static const char RUN2[] = "mlp-bbbbbb";

static void a_run_goes_from_queue_to_done(void **state) {
  struct core_fixture *f = *state;
  user_submits(f, RUN, 2, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_string_equal(info_of_run(f, RUN).message, "waiting for a server");
  server_joins(f, S1);
  server_joins(f, S2);
  worker_joins(f, W1, 1);
  assert_string_equal(info_of_run(f, RUN).message, "waiting for workers: 1 of 2");
  assert_string_equal(f->told[W1].load, "");
  worker_joins(f, W2, 3);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_string_equal(f->told[W1].load, RUN);
  assert_string_equal(f->told[W2].load, RUN);
  assert_string_equal(f->told[S1].load, ""); /* servers need the plan, and so the data */
  worker_loads(f, W1, RUN);
  assert_string_equal(f->told[S1].load, RUN);
  assert_true(f->told[S1].load_has_plan);
  assert_int_equal(f->told[S2].load_servers, 2);
  server_loads(f, S1, RUN);
  server_loads(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING); /* one worker of two */
  worker_loads(f, W2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[W1].view, 1);
  assert_int_equal(f->told[W1].end - f->told[W1].begin, 2);
  assert_int_equal(f->told[W2].end - f->told[W2].begin, 6);
  for (uint64_t i = 0; i < STEPS; i++) {
    f->now_ms += 100;
    reports_step(f, S1, RUN, i);
  }
  assert_int_equal(info_of_run(f, RUN).step, STEPS);
  member_completes(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  member_completes(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
  assert_int_equal(f->told[S1].write_step, STEPS);
  assert_int_equal(f->told[S2].write_step, STEPS);
  member_writes(f, S1, RUN);
  assert_int_equal(f->commits, 0);
  member_writes(f, S2, RUN);
  assert_int_equal(f->commits, 1);
  store_commits(f, RUN, NULL);
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
  assert_int_equal(f->releases, 1);
  assert_string_equal(f->told[W1].unload, RUN);
  assert_string_equal(f->told[W2].unload, RUN);
  assert_string_equal(f->told[S1].unload, RUN);
  assert_string_equal(info_of_run(f, RUN).weights_sha256,
                      "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff");
  assert_true(info_of_run(f, RUN).samples_per_second == STEPS * BATCH / 1.0);
}

static void events_are_numbered_and_end_with_done(void **state) {
  struct core_fixture *f = *state;
  struct run_event_view view;
  uint64_t number = 0, steps = 0;
  core_run_begin(f, 3);
  reports_steps(f, S1, RUN, 0, STEPS);
  reports_step(f, S1, RUN, 3); /* said twice, counted once */
  member_completes(f, S1, RUN);
  member_completes(f, S2, RUN);
  member_writes(f, S1, RUN);
  member_writes(f, S2, RUN);
  store_commits(f, RUN, NULL);
  assert_true(coordinator_run_event(f->coordinator, RUN, 0, &view));
  assert_int_equal(view.event.number, (uint64_t)TERM << 32); /* a successor's are higher */
  for (number = view.event.number; coordinator_run_event(f->coordinator, RUN, number, &view); number++) {
    assert_int_equal(view.event.number, number);
    if (view.event.event_case != WEIR__RUN_EVENT__EVENT_STEP)
      continue;
    assert_int_equal(view.event.step->step, steps++);
    assert_int_equal(view.event.step->workers, 2);
    assert_int_equal(view.event.step->samples, BATCH);
  }
  assert_int_equal(steps, STEPS);
  assert_int_equal(view.event.event_case, WEIR__RUN_EVENT__EVENT_DONE);
  assert_int_equal(view.event.done->steps, STEPS);
  assert_true(coordinator_run_is_over(f->coordinator, RUN));
  assert_false(coordinator_run_event(f->coordinator, RUN, UINT64_MAX, &view));
}

static void the_last_evaluation_is_awaited(void **state) {
  struct core_fixture *f = *state;
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  loaded.run = (char *)RUN;
  loaded.train_samples = SAMPLES;
  loaded.eval_samples = 100;
  member_says(f, W1, WEIR__MEMBER_MESSAGE__BODY_LOADED, &loaded);
  server_loads(f, S1, RUN);
  reports_steps(f, S1, RUN, 0, STEPS);
  member_completes(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  reports_eval(f, S1, RUN, STEPS);
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
  assert_true(info_of_run(f, RUN).accuracy == 0.75);
}

/* Two servers; the second, which has nothing to evaluate, is complete before the run has begun. */
static void begin_evaluation_alone(struct core_fixture *f) {
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  f->trains_nothing = true;
  server_joins(f, S1);
  server_joins(f, S2);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  loaded.run = (char *)RUN;
  loaded.train_samples = loaded.eval_samples = 100;
  member_says(f, W1, WEIR__MEMBER_MESSAGE__BODY_LOADED, &loaded);
  server_loads(f, S2, RUN);
  member_completes(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void a_run_of_no_steps_is_done_when_it_was_evaluated(void **state) {
  struct core_fixture *f = *state;
  begin_evaluation_alone(f);
  reports_eval(f, S1, RUN, 0);
  reports_eval(f, S1, RUN, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  member_completes(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
  assert_int_equal(f->told[S1].writes + f->commits, 0); /* there is nothing that the model does not hold */
  assert_true(info_of_run(f, RUN).accuracy == 0.75 && info_of_run(f, RUN).eval_loss == 0.5);
  assert_string_equal(info_of_run(f, RUN).weights_sha256, FIXTURE_SHA256);
  assert_string_equal(f->told[W1].unload, RUN);
}

static void a_run_with_several_workers_lends_one_to_an_evaluation(void **state) {
  static const char *const evaluation = "eval-000001";
  struct core_fixture *f = *state;
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  core_run_begin(f, 1); /* with two workers */
  f->trains_nothing = true;
  user_submits(f, evaluation, 1, 0);
  assert_string_equal(f->told[W1].unload, RUN);
  assert_string_equal(f->told[W1].load, evaluation);
  assert_int_equal(f->told[W2].end - f->told[W2].begin, MICROBATCHES); /* the other does it all, at once */
  loaded.run = (char *)evaluation;
  loaded.train_samples = loaded.eval_samples = 100;
  member_says(f, W1, WEIR__MEMBER_MESSAGE__BODY_LOADED, &loaded);
  server_loads(f, S1, evaluation);
  server_loads(f, S2, evaluation);
  reports_eval(f, S1, evaluation, 0);
  member_completes(f, S1, evaluation);
  member_completes(f, S2, evaluation);
  assert_state(f, evaluation, WEIR__RUN_STATE__DONE);
  core_ticks(f);
  assert_string_equal(f->told[W1].load, RUN); /* it is back */
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  user_submits(f, "eval-000002", 1, 0);
  assert_string_equal(f->told[W1].load, "eval-000002"); /* it computed nothing yet */
  member_leaves(f, W1);
  assert_string_equal(f->told[W2].load, RUN); /* which has lost a step's work lately */
  reports_step(f, S1, RUN, 0);
  assert_string_equal(f->told[W2].load, "eval-000002");
}

static void a_run_of_no_steps_that_was_paused_when_all_was_known_is_done_when_resumed(void **state) {
  struct core_fixture *f = *state;
  begin_evaluation_alone(f);
  reports_eval(f, S1, RUN, 0);
  user_pauses(f, RUN);
  member_leaves(f, S1); /* it has not said that it is complete */
  time_passes(f, GRACE_MS + 200);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  user_resumes(f, RUN, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
}

static void a_run_of_no_steps_that_loses_a_server_is_evaluated_anew(void **state) {
  struct core_fixture *f = *state;
  begin_evaluation_alone(f);
  member_leaves(f, S1);
  time_passes(f, GRACE_MS + 1000);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  f->incarnation = 1;
  assert_int_equal(f->told[S2].load_step, 0);
  server_loads(f, S2, RUN);
  reports_eval(f, S2, RUN, 0);
  member_completes(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
}

static void a_lost_worker_leaves_its_work_to_the_others(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 3);
  member_leaves(f, W2);
  assert_int_equal(f->told[W1].view, 2);
  assert_int_equal(f->told[W1].end - f->told[W1].begin, MICROBATCHES);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void every_heartbeat_is_answered_by_a_beat(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  assert_int_equal(f->told[S1].beats, 0);
  member_beats(f, S1);
  member_beats(f, S1);
  assert_int_equal(f->told[S1].beats, 2);
}

static void a_silent_member_is_closed_and_replaced(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 3);
  core_ticks(f);
  member_beats(f, W2);
  time_passes(f, MISSING_MS / 2);
  member_beats(f, S1), member_beats(f, S2), member_beats(f, W1);
  time_passes(f, MISSING_MS / 2);
  assert_false(f->told[W2].is_closed);
  time_passes(f, 1);
  assert_true(f->told[W2].is_closed);
  assert_false(f->told[W1].is_closed);
  assert_int_equal(f->told[W1].end - f->told[W1].begin, MICROBATCHES);
}

static void a_coordinator_that_was_frozen_blames_nobody_for_its_own_absence(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 3);
  core_ticks(f);
  time_passes(f, MISSING_MS - 100); /* all are silent */
  f->now_ms += 10 * MISSING_MS;
  core_ticks(f);
  assert_false(f->told[S1].is_closed);
  assert_false(f->told[W2].is_closed);
  member_beats(f, S1), member_beats(f, S2), member_beats(f, W1);
  time_passes(f, 101);
  assert_true(f->told[W2].is_closed); /* who stays silent is missing all the same */
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void a_joiner_loads_and_gets_work(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 3);
  worker_joins(f, W3, 4);
  assert_string_equal(f->told[W3].load, RUN);
  assert_int_equal(f->told[W1].view, 1); /* nothing changes before it is ready */
  worker_loads(f, W3, RUN);
  assert_int_equal(f->told[W1].view, 3); /* the second was for the joiner alone: it follows */
  assert_int_equal(f->told[W3].view, 3);
  assert_int_equal(f->told[W3].end - f->told[W3].begin, 4);
  assert_int_equal(f->told[W3].view_workers, 1); /* of the others it need not know */
}

static void a_drained_worker_hands_over_then_unloads(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 3);
  member_drains(f, W2);
  assert_int_equal(f->told[W1].view, 2);
  assert_int_equal(f->told[W1].end - f->told[W1].begin, MICROBATCHES);
  assert_string_equal(f->told[W2].unload, RUN);
  assert_string_equal(worker_row(f, W2).state, "draining");
  assert_string_equal(worker_row(f, W2).run, "");
  user_cancels(f, RUN);
  user_submits(f, RUN2, 1, 0);
  assert_string_equal(f->told[W1].load, RUN2);
  assert_string_equal(f->told[W2].load, ""); /* never asked again */
}

static void a_server_that_asks_to_leave_drains_once_there_is_another(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 3);
  member_drains(f, S2);
  assert_int_equal(f->told[S2].drains, 1);
  member_drains(f, S1); /* the other one is not for long */
  time_passes(f, 2000);
  assert_int_equal(f->told[S1].drains, 0);
  server_joins(f, S3);
  time_passes(f, 100);
  assert_int_equal(f->told[S1].drains, 1);
  time_passes(f, 2000);
  assert_int_equal(f->told[S1].no_others + f->told[S2].no_others, 0);
}

static void a_server_that_asks_to_leave_and_is_the_only_one_is_told_so_after_a_while(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 3);
  member_drains(f, S2);
  member_drains(f, S1);
  time_passes(f, 2900);
  assert_int_equal(f->told[S1].no_others, 0);
  member_drains(f, S1); /* who asks twice does not wait longer */
  time_passes(f, 200);
  assert_int_equal(f->told[S1].no_others, 1);
  member_drains(f, S2); /* once more: it drains already */
  time_passes(f, 1000);
  assert_int_equal(f->told[S1].no_others, 1);
  assert_int_equal(f->told[S1].drains + f->told[S2].no_others, 0);
}

static void a_run_without_workers_waits_and_goes_on(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 3);
  member_leaves(f, W1);
  member_drains(f, W2);
  assert_string_equal(f->told[W2].unload, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_string_equal(info_of_run(f, RUN).message, "waiting for workers: 0 of 1");
  worker_joins(f, W3, 2);
  worker_loads(f, W3, RUN);
  assert_int_equal(f->told[W3].end - f->told[W3].begin, MICROBATCHES);
  assert_string_equal(info_of_run(f, RUN).message, "");
}

static void a_cancelled_run_lets_everyone_go(void **state) {
  struct core_fixture *f = *state;
  struct run_event_view view;
  uint64_t last = 0;
  core_run_begin(f, 3);
  user_cancels(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__CANCELLED);
  assert_string_equal(f->told[W1].unload, RUN);
  assert_string_equal(f->told[S2].unload, RUN);
  assert_string_equal(worker_row(f, W1).state, "idle");
  user_cancels(f, RUN); /* and is over for good */
  store_commits(f, RUN, NULL);
  reports_step(f, S1, RUN, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__CANCELLED);
  while (coordinator_run_event(f->coordinator, RUN, last, &view))
    last = view.event.number + 1;
  assert_int_equal(view.event.event_case, WEIR__RUN_EVENT__EVENT_INFO);
  assert_int_equal(view.event.info->state, WEIR__RUN_STATE__CANCELLED);
}

/* Of the run's newest event; UNKNOWN: that is another kind's. */
static Weir__RunState newest_told(struct core_fixture *f, const char *run) {
  Weir__RunState told = WEIR__RUN_STATE__RUN_STATE_UNKNOWN;
  struct run_event_view view;
  for (uint64_t next = 0; coordinator_run_event(f->coordinator, run, next, &view);
       next = view.event.number + 1)
    told = view.event.event_case == WEIR__RUN_EVENT__EVENT_DONE   ? WEIR__RUN_STATE__DONE
           : view.event.event_case == WEIR__RUN_EVENT__EVENT_INFO ? view.event.info->state
                                                                  : WEIR__RUN_STATE__RUN_STATE_UNKNOWN;
  return told;
}

static void a_runs_end_is_told_once_the_store_has_it(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 3);
  user_submits(f, RUN2, 1, 0);
  f->is_store_away = true;
  user_cancels(f, RUN);
  assert_string_equal(f->told[W1].load, RUN2); /* others do not wait for the store */
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(info_of_run(f, RUN).finished_unix_ms, 0);
  assert_string_equal(info_of_run(f, RUN).message, "waiting for the store to keep that the run has stopped");
  store_saves(f, RUN, 0, WEIR__RUN_STATE__RUNNING); /* a record of before */
  core_ticks(f);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_not_equal(newest_told(f, RUN), WEIR__RUN_STATE__CANCELLED);
  assert_false(coordinator_run_has_told_end(f->coordinator, RUN));
  store_saves(f, RUN, 0, WEIR__RUN_STATE__CANCELLED);
  assert_state(f, RUN, WEIR__RUN_STATE__CANCELLED);
  assert_int_equal(newest_told(f, RUN), WEIR__RUN_STATE__CANCELLED);
  assert_true(coordinator_run_has_told_end(f->coordinator, RUN));
}

static void a_run_is_done_once_the_store_has_its_record(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 3);
  reports_steps(f, S1, RUN, 0, STEPS);
  member_completes(f, S1, RUN);
  member_completes(f, S2, RUN);
  member_writes(f, S1, RUN);
  member_writes(f, S2, RUN);
  f->is_store_away = true;
  store_commits(f, RUN, NULL);
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
  assert_int_not_equal(newest_told(f, RUN), WEIR__RUN_STATE__DONE);
  store_saves(f, RUN, 0, WEIR__RUN_STATE__DONE);
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
  assert_int_equal(newest_told(f, RUN), WEIR__RUN_STATE__DONE);
}

static void a_pause_is_told_once_the_store_has_it(void **state) {
  struct core_fixture *f = *state;
  user_submits(f, RUN, 1, 0);
  f->is_store_away = true;
  user_pauses(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_true(coordinator_run_awaits_store(f->coordinator, RUN));
  store_saves(f, RUN, 0, WEIR__RUN_STATE__QUEUED); /* a record of before */
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  store_saves(f, RUN, 0, WEIR__RUN_STATE__PAUSED);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  assert_int_equal(newest_told(f, RUN), WEIR__RUN_STATE__PAUSED);
  assert_false(coordinator_run_awaits_store(f->coordinator, RUN));
}

static void a_run_is_found_by_its_name_or_a_unique_prefix(void **state) {
  struct core_fixture *f = *state;
  struct err err = ERR_NONE;
  const char *id;
  user_submits(f, RUN, 1, 0);
  user_submits(f, RUN2, 1, 0);
  assert_int_equal(coordinator_find_run(f->coordinator, &viewer_of_all, "mlp-b", &id, &err), 0);
  assert_string_equal(id, RUN2);
  assert_int_equal(coordinator_find_run(f->coordinator, &viewer_of_all, "mlp", &id, &err), 0);
  assert_string_equal(id, RUN2); /* the newest of that name */
  assert_int_equal(coordinator_find_run(f->coordinator, &viewer_of_all, RUN, &id, &err), 0);
  assert_string_equal(id, RUN);
  f->sweep = "mlp-0000ff"; /* whose trials have its name */
  user_submits(f, "mlp-cccccc", 1, 0);
  assert_int_equal(coordinator_find_run(f->coordinator, &viewer_of_all, "mlp", &id, &err), 0);
  assert_string_equal(id, RUN2);
  assert_int_equal(coordinator_find_run(f->coordinator, &viewer_of_all, "mlp-", &id, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, RUN));
  assert_non_null(strstr(err.text, RUN2));
  assert_int_equal(coordinator_find_run(f->coordinator, &viewer_of_all, "cnn", &id, &err), ERR_NOT_FOUND);
  assert_int_equal(coordinator_find_run(f->coordinator, &viewer_of_all, "", &id, &err), ERR_INVALID);
}

static void a_hello_without_a_role_is_turned_away(void **state) {
  struct core_fixture *f = *state;
  member_joins(f, W1, WEIR__ROLE__ROLE_UNKNOWN, 1, "");
  assert_true(f->told[W1].is_closed);
  assert_int_equal(worker_row(f, W1).pid, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_run_goes_from_queue_to_done),
      TEST(events_are_numbered_and_end_with_done),
      TEST(the_last_evaluation_is_awaited),
      TEST(a_run_of_no_steps_is_done_when_it_was_evaluated),
      TEST(a_run_of_no_steps_that_was_paused_when_all_was_known_is_done_when_resumed),
      TEST(a_run_of_no_steps_that_loses_a_server_is_evaluated_anew),
      TEST(a_run_with_several_workers_lends_one_to_an_evaluation),
      TEST(a_lost_worker_leaves_its_work_to_the_others),
      TEST(every_heartbeat_is_answered_by_a_beat),
      TEST(a_silent_member_is_closed_and_replaced),
      TEST(a_coordinator_that_was_frozen_blames_nobody_for_its_own_absence),
      TEST(a_joiner_loads_and_gets_work),
      TEST(a_drained_worker_hands_over_then_unloads),
      TEST(a_server_that_asks_to_leave_drains_once_there_is_another),
      TEST(a_server_that_asks_to_leave_and_is_the_only_one_is_told_so_after_a_while),
      TEST(a_run_without_workers_waits_and_goes_on),
      TEST(a_cancelled_run_lets_everyone_go),
      TEST(a_runs_end_is_told_once_the_store_has_it),
      TEST(a_run_is_done_once_the_store_has_its_record),
      TEST(a_pause_is_told_once_the_store_has_it),
      TEST(a_run_is_found_by_its_name_or_a_unique_prefix),
      TEST(a_hello_without_a_role_is_turned_away),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
