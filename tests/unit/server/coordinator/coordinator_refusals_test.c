/* Members that differ, refuse or answer wrongly: who is left out, and when that fails the run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/support/coordinator/core_run.h"

enum { W3 = 5 };

static void a_worker_that_differs_is_refused_with_both_sides_named(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 3);
  member_joins(f, W3, WEIR__ROLE__WORKER, 1, "build-2");
  worker_loads(f, W3, RUN);
  assert_string_equal(worker_row(f, W3).state, "refused");
  assert_non_null(strstr(worker_row(f, W3).message, "build-1"));
  assert_non_null(strstr(worker_row(f, W3).message, "build-2"));
  assert_non_null(strstr(worker_row(f, W3).message, "train.deterministic false"));
  assert_string_equal(f->told[W3].unload, RUN);
  assert_string_equal(f->told[W3].load, ""); /* not asked again */
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[W1].view, 1);
  worker_joins(f, 10, 1);
  member_loads(f, 10, RUN, "other data", SAMPLES);
  assert_non_null(strstr(worker_row(f, 10).message, "other data"));
  worker_joins(f, 11, 1);
  member_loads(f, 11, RUN, "data", SAMPLES + 1);
  assert_string_equal(worker_row(f, 11).state, "refused");
  worker_joins(f, 12, 1);
  loads_and_probes(f, 12, RUN, "data", "other bits");
  assert_string_equal(worker_row(f, 12).state, "refused");
  assert_non_null(strstr(worker_row(f, 12).message, "other bits"));
  assert_non_null(strstr(worker_row(f, 12).message, "of probe"));
}

static void
a_run_that_need_not_be_deterministic_takes_any_worker_and_server_with_the_same_data(void **state) {
  struct core_fixture *f = *state;
  f->admits_any = true;
  server_joins(f, S1);
  member_joins(f, S2, WEIR__ROLE__SERVER, 0, "build-2");
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  assert_int_equal(f->told[S2].load_servers, 2);
  server_loads(f, S1, RUN);
  server_loads(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  member_joins(f, W3, WEIR__ROLE__WORKER, 1, "build-2");
  loads_and_probes(f, W3, RUN, "data", "other bits");
  assert_string_equal(worker_row(f, W3).state, "following");
  worker_joins(f, 10, 1);
  member_loads(f, 10, RUN, "other data", SAMPLES);
  assert_string_equal(worker_row(f, 10).state, "refused");
}

static void bad_input_fails_the_run_once_nobody_may_think_otherwise(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
  user_submits(f, RUN, 1, 0);
  member_refuses(f, W1, RUN, "/data/labels.gz: no such file", true);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  member_refuses(f, W2, RUN, "/data/labels.gz: no such file", true);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_true(info_of_run(f, RUN).bad_input);
  assert_string_equal(info_of_run(f, RUN).message, "/data/labels.gz: no such file");
}

/* The worker's row and the run's state are the same in both cases. */
static void a_run_whose_failure_the_store_has_not_kept_is_known_from_one_that_waits(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  f->is_store_away = true;
  assert_false(info_of_run(f, RUN).stop_pending);
  member_refuses(f, W1, RUN, "/data/labels.gz: no such file", true);
  assert_string_equal(worker_row(f, W1).state, "refused");
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_true(info_of_run(f, RUN).stop_pending);
  assert_string_equal(info_of_run(f, RUN).message, "/data/labels.gz: no such file");
  store_saves(f, RUN, 0, WEIR__RUN_STATE__FAILED);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_false(info_of_run(f, RUN).stop_pending);
}

static void a_machine_that_cannot_is_not_bad_input(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  member_refuses(f, W1, RUN, "out of memory", false);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_non_null(strstr(info_of_run(f, RUN).message, "out of memory"));
  worker_joins(f, W2, 1);
  worker_loads(f, W2, RUN);
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void a_worker_that_refused_lets_go_of_the_run(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 3);
  member_refuses(f, W1, RUN, "out of memory", false);
  assert_string_equal(f->told[W1].unload, RUN);
  assert_string_equal(worker_row(f, W1).state, "refused");
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void too_little_data_is_bad_input(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  member_loads(f, W1, RUN, "data", 0);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_true(info_of_run(f, RUN).bad_input);
  assert_string_equal(f->told[W1].unload, RUN);
}

static void a_worker_that_claims_absurdly_much_data_is_refused(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
  user_submits(f, RUN, 1, 0);
  member_loads(f, W1, RUN, "data", UINT64_MAX);
  assert_string_equal(worker_row(f, W1).state, "refused");
  worker_loads(f, W2, RUN); /* and sets no standard for others */
  assert_string_equal(worker_row(f, W2).state, "ready");
}

static void a_server_that_refuses_fails_the_run(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  member_refuses(f, S1, RUN, "out of memory", false);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_non_null(strstr(info_of_run(f, RUN).message, "server-1"));
}

static void the_last_checkpoint_is_tried_until_the_store_takes_it(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 3);
  reports_steps(f, S1, RUN, 0, STEPS);
  member_completes(f, S1, RUN);
  member_completes(f, S2, RUN);
  cannot_write(f, S1, RUN, "/store: No space left on device", false);
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
  assert_non_null(strstr(info_of_run(f, RUN).store_message, "No space left"));
  assert_non_null(strstr(info_of_run(f, RUN).message, "waiting for the store"));
  assert_int_equal(f->told[S1].writes, 1);
  time_passes(f, 1000); /* the pause */
  assert_int_equal(f->told[S1].writes, 2);
  member_writes(f, S1, RUN);
  member_writes(f, S2, RUN);
  assert_int_equal(f->commits, 1);
  store_commits(f, RUN, "redis://store: connection refused");
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
  time_passes(f, 1900);
  assert_int_equal(f->told[S2].writes, 2);
  time_passes(f, 100); /* twice as long */
  assert_int_equal(f->told[S2].writes, 3);
  member_writes(f, S1, RUN);
  member_writes(f, S2, RUN);
  store_commits(f, RUN, NULL);
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
  assert_string_equal(info_of_run(f, RUN).store_message, "");
}

static void a_block_that_is_not_its_to_write_fails_the_run(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 3);
  reports_steps(f, S1, RUN, 0, STEPS);
  member_completes(f, S1, RUN);
  member_completes(f, S2, RUN);
  writes_blocks(f, S1, RUN, f->told[S2].owns, true);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_non_null(strstr(info_of_run(f, RUN).message, "block 0"));
}

static void a_block_that_nobody_wrote_fails_the_run(void **state) {
  struct core_fixture *f = *state;
  bool none[BLOCKS] = {false};
  core_run_begin(f, 3);
  reports_steps(f, S1, RUN, 0, STEPS);
  member_completes(f, S1, RUN);
  member_completes(f, S2, RUN);
  member_writes(f, S1, RUN);
  writes_blocks(f, S2, RUN, none, true);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_non_null(strstr(info_of_run(f, RUN).message, "block 0"));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_worker_that_differs_is_refused_with_both_sides_named),
      TEST(a_run_that_need_not_be_deterministic_takes_any_worker_and_server_with_the_same_data),
      TEST(bad_input_fails_the_run_once_nobody_may_think_otherwise),
      TEST(a_run_whose_failure_the_store_has_not_kept_is_known_from_one_that_waits),
      TEST(a_machine_that_cannot_is_not_bad_input),
      TEST(a_worker_that_refused_lets_go_of_the_run),
      TEST(too_little_data_is_bad_input),
      TEST(a_worker_that_claims_absurdly_much_data_is_refused),
      TEST(a_server_that_refuses_fails_the_run),
      TEST(the_last_checkpoint_is_tried_until_the_store_takes_it),
      TEST(a_block_that_is_not_its_to_write_fails_the_run),
      TEST(a_block_that_nobody_wrote_fails_the_run),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
