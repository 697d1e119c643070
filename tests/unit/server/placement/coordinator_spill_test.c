/* Runs that are held give up the memory of their servers where another run needs it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "tests/support/coordinator/core_run.h"
#include "tests/support/coordinator/core_succession.h"

enum { HOLD = 4, AGAIN = 20 };
enum {
  VALUES_HELD = 1,
  VALUES_TRAINING = 11
}; /* of each weight; the optimizer of these runs keeps nothing */

static const char second[] = "mlp-bbbbbb", third[] = "mlp-cccccc";

static uint64_t bytes_of(int values) {
  uint64_t weights = 0;
  for (int b = 0; b < BLOCKS; b++)
    weights += fixture_block_elems[b];
  return sizeof(float) * weights * (uint64_t)values;
}

/* A server with so much memory, and a worker. */
static void members_join(struct core_fixture *f, uint64_t memory_bytes) {
  f->memory_bytes = memory_bytes;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
}

/* The run is submitted with a hold, comes to it, and is checkpointed there. */
static void is_held(struct core_fixture *f, const char *run) {
  f->hold = HOLD;
  user_submits(f, run, 1, 1);
  f->hold = 0;
  worker_loads(f, W1, run);
  server_loads(f, S1, run);
  reports_steps(f, S1, run, 0, HOLD);
  reports_held(f, S1, run, HOLD);
  assert_state(f, run, WEIR__RUN_STATE__HELD);
}

static void is_checkpointed(struct core_fixture *f, const char *run) {
  member_writes(f, S1, run);
  store_commits(f, run, NULL);
}

static bool is_spilled(struct core_fixture *f, const char *run) {
  Weir__RunInfo info = info_of_run(f, run);
  return info.state == WEIR__RUN_STATE__HELD && info.servers == 0 &&
         strncmp(info.message, "spilled: ", strlen("spilled: ")) == 0;
}

static void a_held_run_takes_the_newest_version_alone(void **state) {
  struct core_fixture *f = *state;
  members_join(f, bytes_of(VALUES_TRAINING + VALUES_HELD));
  is_held(f, RUN);
  assert_int_equal(f->told[S1].holds, 1); /* which frees the rest */
  user_submits(f, second, 1, 1);
  assert_state(f, second, WEIR__RUN_STATE__LOADING);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  assert_int_equal(info_of_run(f, RUN).servers, 1);
}

static void a_held_run_is_spilled_for_one_that_needs_its_room(void **state) {
  struct core_fixture *f = *state;
  members_join(f, bytes_of(VALUES_TRAINING));
  is_held(f, RUN);
  user_submits(f, second, 1, 1);
  assert_state(f, second, WEIR__RUN_STATE__QUEUED); /* the checkpoint is not there yet */
  assert_string_equal(f->told[S1].unload, "");
  is_checkpointed(f, RUN);
  assert_string_equal(f->told[S1].unload, RUN);
  assert_true(is_spilled(f, RUN));
  assert_int_equal(info_of_run(f, RUN).step, HOLD);
  assert_state(f, second, WEIR__RUN_STATE__LOADING);
  worker_loads(f, W1, second);
  assert_string_equal(f->told[S1].load, second);
}

static void the_longest_held_goes_first_and_no_more_than_needed(void **state) {
  struct core_fixture *f = *state;
  members_join(f, bytes_of(VALUES_TRAINING + VALUES_HELD));
  is_held(f, RUN);
  is_checkpointed(f, RUN);
  time_passes(f, 1000);
  member_beats(f, S1);
  member_beats(f, W1);
  is_held(f, second);
  is_checkpointed(f, second);
  user_submits(f, third, 1, 1);
  assert_true(is_spilled(f, RUN));
  assert_int_equal(info_of_run(f, second).servers, 1);
  assert_state(f, third, WEIR__RUN_STATE__LOADING);
}

static void nothing_is_spilled_that_would_not_do(void **state) {
  struct core_fixture *f = *state;
  members_join(f, bytes_of(2 * VALUES_TRAINING - 1));
  worker_joins(f, W2, 1);
  is_held(f, RUN);
  is_checkpointed(f, RUN);
  user_submits(f, second, 1, 1);
  user_submits(f, third, 1, 1);
  assert_state(f, third, WEIR__RUN_STATE__QUEUED);
  assert_int_equal(info_of_run(f, RUN).servers, 1);
}

/* RUN is spilled for the second run, which then ends. */
static void come_to_be_spilled(struct core_fixture *f) {
  members_join(f, bytes_of(VALUES_TRAINING));
  is_held(f, RUN);
  is_checkpointed(f, RUN);
  user_submits(f, second, 1, 1);
  assert_true(is_spilled(f, RUN));
}

static void a_raised_hold_loads_the_run_again(void **state) {
  struct core_fixture *f = *state;
  come_to_be_spilled(f);
  user_raises(f, RUN, 8);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_non_null(strstr(info_of_run(f, RUN).message, "waiting for memory"));
  user_cancels(f, second);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  f->incarnation = 1;
  worker_loads(f, W1, RUN);
  assert_string_equal(f->told[S1].load, RUN);
  assert_int_equal(f->told[S1].load_step, HOLD);
  assert_int_equal(f->told[S1].load_incarnation, 1);
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[W1].hold, 8);
}

/* It grows when it goes on. */
static void a_run_whose_hold_is_raised_needs_room_for_all_of_it(void **state) {
  struct core_fixture *f = *state;
  members_join(f, bytes_of(VALUES_TRAINING + VALUES_HELD));
  is_held(f, RUN);
  is_checkpointed(f, RUN);
  user_submits(f, second, 1, 1);
  assert_int_equal(info_of_run(f, RUN).servers, 1);
  user_raises(f, RUN, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_string_equal(f->told[S1].unload, RUN);
  user_cancels(f, second);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
}

static void a_spilled_run_pauses_and_stops(void **state) {
  struct core_fixture *f = *state;
  come_to_be_spilled(f);
  user_pauses(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  user_cancels(f, second);
  user_resumes(f, RUN, HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
}

/* The hash of its weights is made of its blocks. */
static void a_spilled_run_that_is_stopped_is_loaded_for_its_result(void **state) {
  struct core_fixture *f = *state;
  come_to_be_spilled(f);
  user_stops(f, RUN);
  assert_true(is_spilled(f, RUN));
  user_cancels(f, second);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  f->incarnation = 1;
  server_loads(f, S1, RUN);
  reports_held(f, S1, RUN, HOLD);
  is_checkpointed(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__STOPPED);
}

static void a_successor_leaves_a_spilled_run_where_it_is(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord *record;
  Weir__CheckpointInfo info = WEIR__CHECKPOINT_INFO__INIT;
  members_join(f, 0);
  is_held(f, RUN);
  record = record_of(f);
  while (record->n_servers > 0)
    message_free(record->servers[--record->n_servers]);
  record->incarnation = 1;
  record->base_step = info.step = HOLD;
  record->checkpoints = mem_new(sizeof *record->checkpoints);
  record->checkpoints[0] = message_copy(&info);
  record->n_checkpoints = 1;
  coordinator_is_succeeded(f, RUN, record);
  server_joins(f, AGAIN);
  time_passes(f, 1000);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  assert_int_equal(f->told[AGAIN].loads, 0);
  worker_joins(f, AGAIN + 1, 1);
  user_raises(f, RUN, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_held_run_takes_the_newest_version_alone),
      TEST(a_held_run_is_spilled_for_one_that_needs_its_room),
      TEST(the_longest_held_goes_first_and_no_more_than_needed),
      TEST(nothing_is_spilled_that_would_not_do),
      TEST(a_raised_hold_loads_the_run_again),
      TEST(a_run_whose_hold_is_raised_needs_room_for_all_of_it),
      TEST(a_spilled_run_pauses_and_stops),
      TEST(a_spilled_run_that_is_stopped_is_loaded_for_its_result),
      TEST(a_successor_leaves_a_spilled_run_where_it_is),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
