/* What a coordinator makes of the state that another had saved. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_run.h"
#include "tests/support/coordinator/core_succession.h"

enum { S3 = 5, W3 = 6, AGAIN = 20 };

static void a_successor_takes_up_servers_and_workers_where_they_are(void **state) {
  struct core_fixture *f = *state;
  struct run_event_view view;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  coordinator_is_succeeded(f, RUN, record_of(f));
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(info_of_run(f, RUN).step, 3);
  assert_true(info_of_run(f, RUN).loss == 2.5);
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
  worker_joins_again(f, W1, AGAIN, RUN);
  assert_string_equal(f->told[AGAIN].load, RUN);
  worker_loads(f, AGAIN, RUN);
  assert_int_equal(f->told[AGAIN].view, 1);
  assert_int_equal(f->told[AGAIN].view_incarnation, 0);
  time_passes(f, GRACE_MS + 100); /* all have to come back: three times the time */
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  server_joins_again(f, S1, AGAIN + 1, RUN, 5);
  server_joins_again(f, S2, AGAIN + 2, RUN, 6);
  assert_int_equal(f->told[AGAIN + 1].keep_step, 3);
  assert_string_equal(f->told[AGAIN + 2].keep, RUN);
  assert_int_equal(f->told[AGAIN + 2].write_step, 8); /* ahead of where the servers are */
  reports_steps(f, AGAIN + 1, RUN, 3, 6);
  assert_int_equal(info_of_run(f, RUN).step, 6);
  assert_true(coordinator_run_event(f->coordinator, RUN, 0, &view));
  assert_true(view.event.number < (uint64_t)TERM << 32);
  assert_true(coordinator_run_event(f->coordinator, RUN, (uint64_t)TERM << 32, &view));
  assert_int_equal(view.event.number, (uint64_t)TERM << 32);
}

static void the_end_awaits_the_steps_that_are_to_be_told_again(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  coordinator_is_succeeded(f, RUN, record_of(f));
  server_joins_again(f, S1, AGAIN, RUN, STEPS);
  server_joins_again(f, S2, AGAIN + 1, RUN, STEPS);
  member_completes(f, AGAIN, RUN);
  member_completes(f, AGAIN + 1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  reports_steps(f, AGAIN, RUN, 3, STEPS);
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
}

static void what_a_former_incarnation_left_above_the_base_is_dropped(void **state) {
  struct core_fixture *f = *state;
  Weir__CheckpointInfo infos[3];
  Weir__RunRecord *record;
  core_run_start(f, 3);
  record = record_of(f);
  record->incarnation = 2;
  record->base_step = 4;
  record->checkpoints = mem_new(3 * sizeof *record->checkpoints);
  for (record->n_checkpoints = 0; record->n_checkpoints < 3; record->n_checkpoints++) {
    Weir__CheckpointInfo *one = &infos[record->n_checkpoints];
    weir__checkpoint_info__init(one);
    one->step = 4 + 2 * record->n_checkpoints; /* 4 and 6 of incarnation 1, 8 of this one */
    one->incarnation = one->step == 8 ? 2 : 1;
    record->checkpoints[record->n_checkpoints] = message_copy(one);
  }
  coordinator_is_succeeded(f, RUN, record);
  assert_int_equal(f->n_dropped, 1);
  assert_int_equal(f->dropped[0], 6);
  assert_int_equal(core_run_newest(f), 8);
}

static void a_successor_rolls_back_when_servers_stay_away(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  coordinator_is_succeeded(f, RUN, record_of(f));
  server_joins(f, S3); /* fresh; two are to be replaced */
  assert_string_equal(f->told[S3].id, "server-3");
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  member_beats(f, S3);
  time_passes(f, GRACE_MS);
  member_beats(f, S3);
  time_passes(f, GRACE_MS);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  member_beats(f, S3);
  time_passes(f, GRACE_MS);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_int_equal(f->told[S3].load_incarnation, 1);
}

static void a_successor_begins_again_what_had_not_begun(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  coordinator_is_succeeded(f, RUN, record_of(f));
  assert_int_equal(info_of_run(f, RUN).incarnation, 1); /* servers may have been told of the one before */
  server_joins_again(f, S1, AGAIN, RUN, 0);
  assert_string_equal(f->told[AGAIN].unload, RUN);
  assert_string_equal(f->told[AGAIN].load, RUN);
  assert_int_equal(f->told[AGAIN].load_incarnation, 1);
}

/* A record of that state, and the last checkpoint, which was committed before another record said more. */
static void is_done_from(struct core_fixture *f, Weir__RunState state) {
  Weir__RunRecord *record;
  Weir__CheckpointInfo last = WEIR__CHECKPOINT_INFO__INIT;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, STEPS);
  record = record_of(f);
  record->state = state;
  last.step = STEPS;
  last.accuracy = last.eval_loss = NAN;
  last.weights_sha256 = (char *)sha256_of_weights;
  record->checkpoints = mem_new(sizeof *record->checkpoints);
  record->checkpoints[0] = message_copy(&last);
  record->n_checkpoints = 1;
  coordinator_is_succeeded(f, RUN, record);
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
  assert_string_equal(info_of_run(f, RUN).weights_sha256, sha256_of_weights);
  server_joins_again(f, S1, AGAIN, RUN, STEPS);
  assert_string_equal(f->told[AGAIN].unload, RUN);
}

static void a_run_that_only_had_to_say_so_is_done(void **state) {
  is_done_from(*state, WEIR__RUN_STATE__RUNNING);
}

/* Its hold was raised. */
static void a_run_that_was_still_held_by_its_record_is_done(void **state) {
  is_done_from(*state, WEIR__RUN_STATE__HELD);
}

static void a_damaged_record_is_left_out(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord record = WEIR__RUN_RECORD__INIT;
  Weir__RunSpec spec = WEIR__RUN_SPEC__INIT;
  struct coordinator_event event = {.kind = EVENT_RUN_RESTORED, .restored = {.record = &record}};
  uint32_t elems = 4;
  record.run = (char *)RUN;
  record.state = WEIR__RUN_STATE__RUNNING;
  core_step(f, &event);
  record.block_elems = &elems;
  record.n_block_elems = 1;
  record.spec = &spec;
  core_step(f, &event);
  record.state = 77;
  core_step(f, &event);
  assert_int_equal(coordinator_live_runs(f->coordinator), 0);
}

static void an_emptied_store_is_given_everything_again(void **state) {
  struct core_fixture *f = *state;
  struct coordinator_event emptied = {.kind = EVENT_STORE_EMPTIED};
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 4);
  core_run_checkpoint(f);
  f->saves = 0;
  core_step(f, &emptied);
  assert_int_equal(f->saves, 1);
  assert_int_equal(info_of_run(f, RUN).checkpoints, 0);
  assert_int_equal(f->told[S1].write_step, 6); /* a new one as soon as may be */
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_successor_takes_up_servers_and_workers_where_they_are),
      TEST(the_end_awaits_the_steps_that_are_to_be_told_again),
      TEST(what_a_former_incarnation_left_above_the_base_is_dropped),
      TEST(a_successor_rolls_back_when_servers_stay_away),
      TEST(a_successor_begins_again_what_had_not_begun),
      TEST(a_run_that_only_had_to_say_so_is_done),
      TEST(a_run_that_was_still_held_by_its_record_is_done),
      TEST(a_damaged_record_is_left_out),
      TEST(an_emptied_store_is_given_everything_again),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1); /* damaged records are logged as errors */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
