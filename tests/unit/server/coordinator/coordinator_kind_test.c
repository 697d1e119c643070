/* The kind of a run's servers: that of the first one, for the life of the run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/coordinator/core_succession.h"

enum { S1 = 1, S2 = 2, W1 = 3, S3 = 5, AGAIN = 20 };
static const char RUN[] = "mlp-aaaaaa";
#define OTHER "build-1, libm 2"

static void start_run(struct core_fixture *f) {
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void other_server_joins(struct core_fixture *f, uint64_t key) {
  member_joins(f, key, WEIR__ROLE__SERVER, 0, OTHER);
}

/* Both servers, with their kinds. */
static void assert_names_both(const char *text) {
  if (!strstr(text, "server-2 (host:2) is 'build-1, libm 2', server-1 (host:1) is 'build-1'"))
    fail_msg("'%s' does not name both", text);
}

/* Nobody waits any longer for servers that a coordinator has not seen again. */
static void pass_while_alive(struct core_fixture *f, uint64_t one, uint64_t other) {
  for (int i = 0; i < 4; i++) {
    member_beats(f, one), member_beats(f, other);
    time_passes(f, GRACE_MS);
  }
}

static void a_server_of_another_kind_is_refused_with_both_named(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  other_server_joins(f, S2);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  assert_int_equal(f->told[S1].load_servers, 1);
  assert_string_equal(f->told[S2].load, "");
  assert_string_equal(server_message(f, 0), "");
  assert_names_both(server_message(f, 1));
  server_loads(f, S1, RUN);
  user_cancels(f, RUN);
  assert_string_equal(server_message(f, 1), ""); /* no run refuses it any more */
}

static void the_kind_outlives_the_servers_that_it_came_from(void **state) {
  struct core_fixture *f = *state;
  start_run(f);
  member_leaves(f, S1);
  other_server_joins(f, S2);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING); /* it replaces nobody: the lost one may come back */
  member_beats(f, W1);
  time_passes(f, GRACE_MS);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_string_equal(f->told[S2].load, "");
  assert_non_null(strstr(info_of_run(f, RUN).message, "waiting for a server"));
  assert_names_both(info_of_run(f, RUN).message);
  server_joins(f, S3);
  assert_int_equal(f->told[S3].load_servers, 1);
  assert_string_equal(f->told[S2].load, "");
  f->incarnation = f->told[S3].load_incarnation;
  server_loads(f, S3, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void the_kind_outlives_the_coordinator(void **state) {
  struct core_fixture *f = *state;
  start_run(f);
  coordinator_is_succeeded(f, RUN, record_of(f));
  worker_joins_again(f, W1, AGAIN, RUN);
  worker_loads(f, AGAIN, RUN);
  other_server_joins(f, S2);
  pass_while_alive(f, AGAIN, S2);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_string_equal(f->told[S2].load, "");
  assert_names_both(info_of_run(f, RUN).message);
}

static void a_run_that_was_paused_may_go_on_with_another_kind(void **state) {
  struct core_fixture *f = *state;
  start_run(f);
  member_leaves(f, S1);
  other_server_joins(f, S2);
  member_beats(f, W1);
  time_passes(f, GRACE_MS);
  assert_names_both(info_of_run(f, RUN).message);
  user_pauses(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  user_resumes(f, RUN, 0);
  f->incarnation = info_of_run(f, RUN).incarnation;
  worker_loads(f, W1, RUN);
  assert_string_equal(f->told[S2].load, RUN);
  server_loads(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  coordinator_is_succeeded(f, RUN, record_of(f)); /* that kind is kept now */
  server_joins(f, S3);
  pass_while_alive(f, S3, S3);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_string_equal(f->told[S3].load, "");
}

static void a_run_that_need_not_be_deterministic_takes_any_kind(void **state) {
  struct core_fixture *f = *state;
  f->admits_any = true;
  server_joins(f, S1);
  other_server_joins(f, S2);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  assert_int_equal(f->told[S1].load_servers, 2);
  assert_string_equal(f->told[S2].load, RUN);
  assert_string_equal(server_message(f, 1), "");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_server_of_another_kind_is_refused_with_both_named),
      TEST(the_kind_outlives_the_servers_that_it_came_from),
      TEST(the_kind_outlives_the_coordinator),
      TEST(a_run_that_was_paused_may_go_on_with_another_kind),
      TEST(a_run_that_need_not_be_deterministic_takes_any_kind),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
