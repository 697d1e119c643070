/* Servers that say how much of their memory runs may take: who begins, who waits, who is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_run.h"

static const char RUN2[] = "mlp-bbbbbb";

/* Eleven values of each weight: the optimizer of these runs keeps nothing. */
static uint64_t bytes_of_run(void) {
  uint64_t weights = 0;
  for (int i = 0; i < BLOCKS; i++)
    weights += fixture_block_elems[i];
  return 44 * weights;
}

static void a_run_waits_until_there_is_room_on_the_servers(void **state) {
  struct core_fixture *f = *state;
  char message[256];
  f->memory_bytes = 2 * bytes_of_run() - 1;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
  user_submits(f, RUN, 1, 1);
  user_submits(f, RUN2, 1, 1);
  assert_string_equal(f->told[W1].load, RUN);
  assert_string_equal(f->told[W2].load, "");
  worker_loads(f, W1, RUN);
  server_loads(f, S1, RUN);
  snprintf(message, sizeof message,
           "waiting for memory: %llu bytes of server-1 (host:1), which has %llu for runs, of which 1 run "
           "takes %llu",
           (unsigned long long)bytes_of_run(), (unsigned long long)(2 * bytes_of_run() - 1),
           (unsigned long long)bytes_of_run());
  assert_string_equal(info_of_run(f, RUN2).message, message);
  user_cancels(f, RUN);
  assert_true(strcmp(f->told[W1].load, RUN2) == 0 || strcmp(f->told[W2].load, RUN2) == 0);
}

static void two_runs_that_fit_train_beside_each_other(void **state) {
  struct core_fixture *f = *state;
  f->memory_bytes = 2 * bytes_of_run();
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
  user_submits(f, RUN, 1, 1);
  user_submits(f, RUN2, 1, 1);
  assert_string_equal(f->told[W1].load, RUN);
  assert_string_equal(f->told[W2].load, RUN2);
}

/* Both are chosen in the same settling, and there is room for one. */
static void only_one_of_two_that_begin_together_takes_the_room(void **state) {
  struct core_fixture *f = *state;
  user_submits(f, RUN, 1, 1);
  user_submits(f, RUN2, 1, 1);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
  f->memory_bytes = bytes_of_run();
  server_joins(f, S1);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_state(f, RUN2, WEIR__RUN_STATE__QUEUED);
  core_ticks(f);
  assert_state(f, RUN2, WEIR__RUN_STATE__QUEUED);
}

static void a_run_without_room_takes_no_workers(void **state) {
  struct core_fixture *f = *state;
  f->memory_bytes = bytes_of_run();
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  worker_loads(f, W2, RUN);
  server_loads(f, S1, RUN);
  user_submits(f, RUN2, 1, 0);
  reports_step(f, S1, RUN, 0);
  assert_string_equal(f->told[W1].unload, "");
  assert_string_equal(f->told[W2].unload, "");
  assert_int_equal(info_of_run(f, RUN).workers, 2);
}

static void a_server_that_says_nothing_has_no_bound(void **state) {
  struct core_fixture *f = *state;
  f->memory_bytes = 0;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 1);
  assert_string_equal(f->told[W1].load, RUN);
}

static void what_can_never_fit_is_refused_with_the_number(void **state) {
  struct core_fixture *f = *state;
  Weir__RunSpec *spec;
  struct err err = ERR_NONE;
  char text[256];
  user_submits(f, RUN, 1, 1);
  spec = coordinator_run_spec(f->coordinator, RUN);
  assert_int_equal(coordinator_check_room(f->coordinator, spec, fixture_block_elems, BLOCKS, &err), 0);
  f->memory_bytes = bytes_of_run() - 1;
  server_joins(f, S1);
  snprintf(
      text, sizeof text,
      "submit: the run takes %llu bytes of each parameter server, and server-1 (host:1) has %llu for runs",
      (unsigned long long)bytes_of_run(), (unsigned long long)bytes_of_run() - 1);
  assert_int_equal(coordinator_check_room(f->coordinator, spec, fixture_block_elems, BLOCKS, &err),
                   ERR_INVALID);
  assert_non_null(strstr(err.text, text));
  f->memory_bytes = 0;
  server_joins(f, S2); /* each has half then */
  err = ERR_NONE;
  assert_int_equal(coordinator_check_room(f->coordinator, spec, fixture_block_elems, BLOCKS, &err), 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_run_waits_until_there_is_room_on_the_servers),
      TEST(two_runs_that_fit_train_beside_each_other),
      TEST(only_one_of_two_that_begin_together_takes_the_room),
      TEST(a_run_without_room_takes_no_workers),
      TEST(a_server_that_says_nothing_has_no_bound),
      TEST(what_can_never_fit_is_refused_with_the_number),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
