/* Runs that are held at a version: they keep their servers and give back their workers, until the hold is
   raised; and runs that are stopped with their result kept. */
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

enum { HOLD = 4, S3 = 5, AGAIN = 20 };

static const char other[] = "mlp-bbbbbb";

static void both_are_held(struct core_fixture *f, uint64_t version) {
  reports_held(f, S1, RUN, version);
  reports_held(f, S2, RUN, version);
}

/* A run that was submitted with a hold and has come to it; its checkpoint is ordered. */
static void come_to_the_hold(struct core_fixture *f) {
  f->hold = HOLD;
  core_run_begin(f, 1);
  assert_int_equal(f->told[S1].hold, HOLD);
  assert_int_equal(f->told[W1].hold, HOLD);
  reports_steps(f, S1, RUN, 0, HOLD);
  both_are_held(f, HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
}

static void a_run_at_its_hold_gives_back_its_workers_and_keeps_its_servers(void **state) {
  struct core_fixture *f = *state;
  f->hold = HOLD;
  core_run_begin(f, 1);
  reports_steps(f, S1, RUN, 0, HOLD);
  reports_held(f, S1, RUN, HOLD);
  reports_held(f, S2, RUN, HOLD - 1); /* of no hold of the run */
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  f->incarnation = 3;
  reports_held(f, S2, RUN, HOLD); /* of no incarnation of it */
  f->incarnation = 0;
  reports_held(f, W1, RUN, HOLD); /* no server of it */
  reports_held(f, S2, "mlp-none", HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  reports_held(f, S2, RUN, HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  assert_int_equal(f->told[W1].rests + f->told[W2].rests, 2);
  assert_string_equal(f->told[S1].unload, "");
  assert_string_equal(worker_row(f, W1).state, "idle");
  assert_int_equal(info_of_run(f, RUN).workers, 0);
  assert_int_equal(info_of_run(f, RUN).servers, 2);
  assert_int_equal(info_of_run(f, RUN).step, HOLD);
  assert_int_equal(info_of_run(f, RUN).hold, HOLD);
  assert_string_equal(info_of_run(f, RUN).message, "");
  assert_int_equal(coordinator_live_runs(f->coordinator), 0);
  f->hold = 0;
  user_submits(f, other, 2, 0);
  assert_string_equal(f->told[W1].load, other);
  assert_string_equal(f->told[W2].load, other);
  time_passes(f, GRACE_MS); /* and takes no turn */
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
}

static void a_run_is_held_once_all_of_its_steps_were_told(void **state) {
  struct core_fixture *f = *state;
  f->hold = HOLD;
  core_run_begin(f, 1);
  reports_steps(f, S1, RUN, 0, HOLD - 1);
  both_are_held(f, HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  reports_step(f, S1, RUN, HOLD - 1);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
}

static void a_run_is_held_once_the_version_was_evaluated(void **state) {
  struct core_fixture *f = *state;
  Weir__EvalSpec eval = WEIR__EVAL_SPEC__INIT;
  eval.has_every_steps = true;
  eval.every_steps = 2;
  f->eval = &eval;
  f->evaluates = true;
  f->hold = HOLD;
  core_run_begin(f, 1);
  reports_steps(f, S1, RUN, 0, HOLD);
  both_are_held(f, HOLD);
  reports_eval(f, S1, RUN, 2);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_string_equal(worker_row(f, W1).state, "ready");
  reports_eval(f, S1, RUN, HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
}

static void a_held_run_is_checkpointed_where_it_is_held(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3); /* every four steps */
  user_cancels(f, RUN);
  f->hold = 6;
  user_submits(f, other, 2, 0);
  worker_loads(f, W1, other), worker_loads(f, W2, other);
  server_loads(f, S1, other), server_loads(f, S2, other);
  reports_steps(f, S1, other, 0, 3);
  assert_int_equal(f->told[S1].write_step, 4);
  member_writes(f, S1, other), member_writes(f, S2, other);
  store_commits(f, other, NULL);
  f->told[S1].writes = 0;
  reports_steps(f, S1, other, 3, 6); /* the next boundary lies behind the hold */
  assert_int_equal(f->told[S1].writes, 0);
  reports_held(f, S1, other, 6), reports_held(f, S2, other, 6);
  assert_int_equal(f->told[S1].write_step, 6);
  member_writes(f, S1, other), member_writes(f, S2, other);
  store_commits(f, other, "connection refused");
  time_passes(f, 2000);
  assert_int_equal(f->told[S1].writes, 2); /* once more */
  member_writes(f, S1, other), member_writes(f, S2, other);
  store_commits(f, other, NULL);
  assert_int_equal(info_of_run(f, other).checkpoint_step, 6);
  time_passes(f, 2000);
  assert_int_equal(f->told[S1].writes, 2);
  assert_state(f, other, WEIR__RUN_STATE__HELD);
}

static void a_raised_hold_goes_on_without_loading_the_servers(void **state) {
  struct core_fixture *f = *state;
  come_to_the_hold(f);
  f->told[S1].loads = f->told[W1].loads = 0;
  user_raises(f, RUN, 3);
  user_raises(f, RUN, HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  user_raises(f, RUN, 8);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[S1].holds, 2); /* that all servers are at it, and that it was raised */
  assert_int_equal(f->told[S2].hold, 8);
  assert_int_equal(f->told[S1].loads, 0);
  assert_int_equal(f->told[W1].loads, 1);
  worker_loads(f, W1, RUN);
  worker_loads(f, W2, RUN);
  assert_int_equal(f->told[W1].hold, 8);
  assert_true(f->told[W1].end > f->told[W1].begin);
  both_are_held(f, HOLD); /* what is told late */
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  reports_steps(f, S1, RUN, HOLD, 8);
  both_are_held(f, 8);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  user_sets(f, RUN, "train.hold=null");
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[S1].hold, 0);
  worker_loads(f, W1, RUN);
  assert_int_equal(f->told[W1].hold, 0);
  reports_steps(f, S1, RUN, 8, STEPS);
  member_completes(f, S1, RUN);
  member_completes(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
  core_run_checkpoint(f);
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
}

static void a_hold_that_is_raised_in_time_holds_nothing_up(void **state) {
  struct core_fixture *f = *state;
  f->hold = HOLD;
  core_run_begin(f, 1);
  reports_steps(f, S1, RUN, 0, HOLD);
  user_raises(f, RUN, STEPS); /* which is the end, and so no hold */
  assert_int_equal(f->told[S1].hold, 0);
  assert_int_equal(f->told[W1].hold, 0);
  assert_int_equal(info_of_run(f, RUN).hold, 0);
  both_are_held(f, HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_string_equal(worker_row(f, W1).state, "ready");
  user_raises(f, RUN, 5); /* never lowered */
  assert_int_equal(f->told[S1].hold, 0);
}

static void a_hold_that_is_raised_while_servers_load_reaches_them(void **state) {
  struct core_fixture *f = *state;
  f->hold = HOLD;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  assert_int_equal(f->told[S1].hold, HOLD);
  user_raises(f, RUN, 8);
  assert_int_equal(f->told[S1].holds, 0);
  server_loads(f, S1, RUN);
  assert_int_equal(f->told[S1].holds, 1);
  assert_int_equal(f->told[S1].hold, 8);
}

static void a_held_run_whose_server_dies_needs_no_worker_to_come_back(void **state) {
  struct core_fixture *f = *state;
  come_to_the_hold(f);
  core_run_checkpoint(f);
  member_leaves(f, S2);
  server_replaces(f, S2, S3, "host", "build-1");
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  f->incarnation = 1;
  assert_int_equal(f->told[S3].load_step, HOLD);
  f->told[W1].loads = 0;
  server_loads(f, S1, RUN);
  server_loads(f, S3, RUN);
  reports_held(f, S1, RUN, HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  reports_held(f, S3, RUN, HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  assert_int_equal(f->told[W1].loads, 0);
  user_raises(f, RUN, 0);
  assert_int_equal(f->told[W1].loads, 1);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void a_held_run_that_lost_steps_computes_them_again(void **state) {
  struct core_fixture *f = *state;
  come_to_the_hold(f);
  member_leaves(f, S2);
  server_replaces(f, S2, S3, "host", "build-1");
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  f->incarnation = 1;
  assert_int_equal(f->told[S3].load_step, 0);
  server_loads(f, S1, RUN);
  server_loads(f, S3, RUN);
  assert_string_equal(f->told[W1].load, RUN);
  worker_loads(f, W1, RUN);
  worker_loads(f, W2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  reports_steps(f, S1, RUN, 0, HOLD);
  reports_held(f, S1, RUN, HOLD);
  reports_held(f, S3, RUN, HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
}

static void a_successor_finds_a_held_run_held(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord *record;
  come_to_the_hold(f);
  core_run_checkpoint(f);
  record = record_of(f);
  assert_int_equal(record->state, WEIR__RUN_STATE__HELD);
  f->hosted_hold = HOLD;
  coordinator_is_succeeded(f, RUN, record);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  worker_joins(f, AGAIN, 1);
  server_joins_again(f, S1, AGAIN + 1, RUN, HOLD);
  server_joins_again(f, S2, AGAIN + 2, RUN, HOLD);
  assert_string_equal(f->told[AGAIN + 1].keep, RUN);
  assert_int_equal(f->told[AGAIN + 1].hold, HOLD);
  time_passes(f, 100);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  assert_string_equal(f->told[AGAIN].load, "");
  user_raises(f, RUN, 6);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[AGAIN + 2].hold, 6);
  assert_string_equal(f->told[AGAIN].load, RUN);
}

/* Servers were told, and the store was not. */
static void a_successor_learns_from_servers_that_the_hold_was_raised(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord *record;
  come_to_the_hold(f);
  record = record_of(f);
  user_raises(f, RUN, 8);
  coordinator_is_succeeded(f, RUN, record);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  f->hosted_hold = 8;
  server_joins_again(f, S1, AGAIN, RUN, 6);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[AGAIN].hold, 8);
  f->hosted_hold = HOLD; /* which the order never reached */
  server_joins_again(f, S2, AGAIN + 1, RUN, HOLD);
  assert_int_equal(f->told[AGAIN + 1].hold, 8);
  assert_int_equal(info_of_run(f, RUN).hold, 8);
}

static void a_successor_loads_a_held_run_that_nobody_has_without_workers(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord *record;
  Weir__CheckpointInfo info = WEIR__CHECKPOINT_INFO__INIT, *list = &info;
  come_to_the_hold(f);
  core_run_checkpoint(f);
  record = record_of(f);
  info.step = HOLD;
  record->checkpoints = mem_new(sizeof *record->checkpoints);
  record->checkpoints[0] = message_copy(list);
  record->n_checkpoints = 1;
  coordinator_is_succeeded(f, RUN, record);
  server_joins(f, S3);
  for (int i = 0; i < 3; i++) {
    member_beats(f, S3);
    time_passes(f, GRACE_MS);
  }
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  f->incarnation = 1;
  assert_int_equal(f->told[S3].load_step, HOLD);
  server_loads(f, S3, RUN);
  reports_held(f, S3, RUN, HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
}

static void a_held_run_is_paused_and_resumed_to_its_hold(void **state) {
  struct core_fixture *f = *state;
  come_to_the_hold(f);
  user_pauses(f, RUN);
  assert_string_equal(info_of_run(f, RUN).message, "pausing at step 4");
  core_run_checkpoint(f);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  assert_string_equal(f->told[S1].unload, RUN);
  f->told[W1].loads = 0;
  user_resumes(f, RUN, HOLD);
  f->incarnation = 1;
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_string_equal(f->told[S1].load, RUN);
  server_loads(f, S1, RUN), server_loads(f, S2, RUN);
  both_are_held(f, HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  assert_int_equal(f->told[W1].loads, 0);
  user_pauses(f, RUN); /* there is a checkpoint */
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  user_cancels(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__CANCELLED);
}

static void a_pause_that_its_hold_comes_before_takes_effect_there(void **state) {
  struct core_fixture *f = *state;
  f->hold = HOLD;
  core_run_begin(f, 1);
  reports_steps(f, S1, RUN, 0, HOLD - 1);
  user_pauses(f, RUN);
  assert_int_equal(f->told[S1].writes, 0);
  reports_step(f, S1, RUN, HOLD - 1);
  both_are_held(f, HOLD);
  assert_int_equal(f->told[S1].write_step, HOLD);
  core_run_checkpoint(f);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
}

static void holds_that_cannot_be_are_named(void **state) {
  struct core_fixture *f = *state;
  Weir__EvalSpec eval = WEIR__EVAL_SPEC__INIT;
  struct err err = ERR_NONE;
  eval.has_every_steps = true;
  eval.every_steps = 2;
  f->eval = &eval;
  f->evaluates = true;
  f->hold = HOLD;
  core_run_begin(f, 1);
  assert_int_equal(coordinator_check_hold(f->coordinator, RUN, 6, &err), 0);
  assert_int_equal(coordinator_check_hold(f->coordinator, RUN, 0, &err), 0);
  assert_int_equal(coordinator_check_hold(f->coordinator, RUN, STEPS, &err), 0);
  assert_int_equal(coordinator_check_hold(f->coordinator, RUN, 5, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "version 5 is not evaluated"));
  assert_int_equal(coordinator_check_hold(f->coordinator, RUN, STEPS + 1, &err), ERR_INVALID);
  assert_int_equal(coordinator_check_hold(f->coordinator, RUN, 2, &err), ERR_INVALID);
  assert_int_equal(coordinator_check_hold(f->coordinator, "mlp-none", 6, &err), ERR_NOT_FOUND);
  user_raises(f, RUN, 0);
  assert_int_equal(coordinator_check_hold(f->coordinator, RUN, 6, &err), ERR_INVALID);
  user_cancels(f, RUN);
  assert_int_equal(coordinator_check_hold(f->coordinator, RUN, 6, &err), ERR_INVALID);
  user_raises(f, RUN, 6);
  user_raises(f, "mlp-none", 6);
}

static void assert_is_stopped(struct core_fixture *f, uint64_t step) {
  struct run_event_view view, last = {0};
  for (uint64_t at = 0; coordinator_run_event(f->coordinator, RUN, at, &view); at = view.event.number + 1)
    last = view;
  assert_state(f, RUN, WEIR__RUN_STATE__STOPPED);
  assert_string_equal(info_of_run(f, RUN).weights_sha256, sha256_of_weights);
  assert_int_equal(info_of_run(f, RUN).step, step);
  assert_int_equal(info_of_run(f, RUN).steps, STEPS);
  assert_int_equal(core_run_newest(f), step);
  assert_true(coordinator_run_is_over(f->coordinator, RUN));
  assert_int_equal(last.event.event_case, WEIR__RUN_EVENT__EVENT_DONE);
  assert_int_equal(last.event.done->steps, step);
  assert_string_equal(last.event.done->weights_sha256, sha256_of_weights);
}

static void a_run_that_is_stopped_ends_with_its_next_checkpoint(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 1);
  user_stops(f, "mlp-none");
  reports_steps(f, S1, RUN, 0, 3);
  user_stops(f, RUN);
  assert_int_equal(f->told[S1].write_step, 4);
  assert_string_equal(info_of_run(f, RUN).message, "stopping at step 4");
  user_pauses(f, RUN); /* it stays so */
  reports_steps(f, S1, RUN, 3, 7);
  core_run_checkpoint(f);
  assert_is_stopped(f, 4);
  assert_string_equal(f->told[S1].unload, RUN);
  user_resumes(f, RUN, 4);
  user_stops(f, RUN);
  user_cancels(f, RUN);
  user_pauses(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__STOPPED);
}

/* It has no hash: nobody asked for one. */
static void a_checkpoint_that_was_under_way_is_made_once_more(void **state) {
  struct core_fixture *f = *state;
  come_to_the_hold(f);
  core_run_checkpoint(f);
  f->told[S1].writes = 0;
  user_stops(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  assert_int_equal(f->told[S1].writes, 1);
  assert_int_equal(f->told[S1].write_step, HOLD);
  core_run_checkpoint(f);
  assert_is_stopped(f, HOLD);
}

static void a_run_that_is_stopping_survives_a_server(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  core_run_checkpoint(f); /* of step 4 */
  user_stops(f, RUN);
  member_leaves(f, S2);
  server_replaces(f, S2, S3, "host", "build-1");
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  f->incarnation = 1;
  server_loads(f, S1, RUN), server_loads(f, S3, RUN);
  worker_loads(f, W1, RUN), worker_loads(f, W2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[S1].write_step, 6);
  reports_steps(f, S1, RUN, 4, 6);
  member_writes(f, S1, RUN), member_writes(f, S3, RUN);
  store_commits(f, RUN, NULL);
  assert_is_stopped(f, 6);
}

static void a_run_that_comes_to_its_end_before_it_stops_is_done(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 1);
  reports_steps(f, S1, RUN, 0, STEPS - 1);
  user_stops(f, RUN);
  reports_step(f, S1, RUN, STEPS - 1);
  member_completes(f, S1, RUN), member_completes(f, S2, RUN);
  core_run_checkpoint(f);
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
}

static void a_successor_knows_that_a_run_was_stopped(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord *record;
  core_run_start(f, 1);
  reports_steps(f, S1, RUN, 0, 3);
  user_stops(f, RUN);
  reports_steps(f, S1, RUN, 3, 7);
  core_run_checkpoint(f);
  record = record_of(f);
  assert_int_equal(record->state, WEIR__RUN_STATE__STOPPED);
  assert_string_equal(record->weights_sha256, sha256_of_weights);
  coordinator_is_succeeded(f, RUN, record);
  assert_state(f, RUN, WEIR__RUN_STATE__STOPPED);
  assert_string_equal(info_of_run(f, RUN).weights_sha256, sha256_of_weights);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_run_at_its_hold_gives_back_its_workers_and_keeps_its_servers),
      TEST(a_run_is_held_once_all_of_its_steps_were_told),
      TEST(a_run_is_held_once_the_version_was_evaluated),
      TEST(a_held_run_is_checkpointed_where_it_is_held),
      TEST(a_raised_hold_goes_on_without_loading_the_servers),
      TEST(a_hold_that_is_raised_in_time_holds_nothing_up),
      TEST(a_hold_that_is_raised_while_servers_load_reaches_them),
      TEST(a_held_run_whose_server_dies_needs_no_worker_to_come_back),
      TEST(a_held_run_that_lost_steps_computes_them_again),
      TEST(a_successor_finds_a_held_run_held),
      TEST(a_successor_learns_from_servers_that_the_hold_was_raised),
      TEST(a_successor_loads_a_held_run_that_nobody_has_without_workers),
      TEST(a_held_run_is_paused_and_resumed_to_its_hold),
      TEST(a_pause_that_its_hold_comes_before_takes_effect_there),
      TEST(holds_that_cannot_be_are_named),
      TEST(a_run_that_is_stopped_ends_with_its_next_checkpoint),
      TEST(a_checkpoint_that_was_under_way_is_made_once_more),
      TEST(a_run_that_is_stopping_survives_a_server),
      TEST(a_run_that_comes_to_its_end_before_it_stops_is_done),
      TEST(a_successor_knows_that_a_run_was_stopped),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
