/* The kind of a run's servers: that of the first one, for the life of the run. That of a sweep's members: of
   the first that a trial had. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/coordinator/core_succession.h"

enum { S1 = 1, S2 = 2, W1 = 3, W2 = 4, S3 = 5, W3 = 6, AGAIN = 20 };
static const char RUN[] = "mlp-aaaaaa";
static const char SWEEP[] = "search-aaaaaa", T0[] = "search-aaaaaa-0000", T1[] = "search-aaaaaa-0001";
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

static void sweep_has_kind(struct core_fixture *f, const char *worker, const char *server) {
  Weir__SweepKind kind = WEIR__SWEEP_KIND__INIT;
  if (worker) {
    kind.worker = "worker-9 (host)";
    kind.fingerprint = (char *)worker;
  }
  if (server) {
    kind.server = "server-9 (host:9)";
    kind.server_fingerprint = (char *)server;
  }
  core_step(f, &(struct coordinator_event){.kind = EVENT_SWEEP_KIND, .sweep_kind = {SWEEP, &kind}});
}

static void other_worker_joins(struct core_fixture *f, uint64_t key) {
  member_joins(f, key, WEIR__ROLE__WORKER, 1, OTHER);
}

/* On the first worker, of "build-1". */
static void first_trial_begins(struct core_fixture *f) {
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  other_worker_joins(f, W2);
  f->sweep = SWEEP;
  sweep_has_kind(f, NULL, NULL);
  user_submits(f, T0, 1, 1);
  assert_string_equal(f->told[W1].load, T0);
}

static void assert_waits_for_the_kind(struct core_fixture *f, const char *run, const char *first) {
  const char *message = info_of_run(f, run).message;
  if (!strstr(message, "workers of its sweep's kind: 0 of the 1 there: worker-") ||
      !strstr(message, "is 'build-1, libm 2', ") || !strstr(message, first))
    fail_msg("'%s' does not name what it waits for", message);
}

static void the_first_worker_of_a_sweep_fixes_the_kind_of_all_its_trials(void **state) {
  struct core_fixture *f = *state;
  first_trial_begins(f);
  worker_loads(f, W1, T0);
  server_loads(f, S1, T0);
  assert_state(f, T0, WEIR__RUN_STATE__RUNNING);
  user_submits(f, T1, 1, 1);
  assert_string_equal(f->told[W2].load, "");
  f->sweep = NULL;
  user_submits(f, RUN, 1, 1); /* of no sweep */
  assert_string_equal(f->told[W2].load, RUN);
  worker_joins(f, W3, 1);
  assert_string_equal(f->told[W3].load, T1);
}

static void a_worker_that_loads_while_another_trial_fixes_the_kind_is_let_go(void **state) {
  struct core_fixture *f = *state;
  first_trial_begins(f);
  user_submits(f, T1, 1, 1);
  assert_string_equal(f->told[W2].load, T1);
  worker_loads(f, W1, T0);
  member_loads(f, W2, T1, "other data", SAMPLES);
  assert_string_equal(f->told[W2].unload, T1);
  worker_joins(f, W3, 1);
  assert_string_equal(f->told[W3].load, T1);
  worker_loads(f, W3, T1); /* what the other one found of the data says nothing */
  server_loads(f, S1, T1);
  assert_state(f, T1, WEIR__RUN_STATE__RUNNING);
}

static void a_trial_says_that_nobody_is_of_its_sweeps_kind(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  other_worker_joins(f, W2);
  f->sweep = SWEEP;
  sweep_has_kind(f, "build-1", NULL);
  user_submits(f, T0, 1, 1);
  assert_string_equal(f->told[W2].load, "");
  assert_waits_for_the_kind(f, T0, "worker-9 (host) is 'build-1'");
  worker_joins(f, W1, 1);
  assert_string_equal(f->told[W1].load, T0);
}

static void servers_of_another_kind_than_the_sweeps_get_no_trial(void **state) {
  struct core_fixture *f = *state;
  other_server_joins(f, S2);
  worker_joins(f, W1, 1);
  f->sweep = SWEEP;
  sweep_has_kind(f, NULL, "build-1");
  user_submits(f, T0, 1, 1);
  assert_non_null(strstr(info_of_run(f, T0).message, "waiting for a server; server-1 (host:2) is 'build-1, "
                                                     "libm 2', server-9 (host:9) is 'build-1': servers of a "
                                                     "sweep"));
  server_joins(f, S1);
  assert_string_equal(f->told[W1].load, T0);
  worker_loads(f, W1, T0);
  assert_string_equal(f->told[S1].load, T0);
  assert_string_equal(f->told[S2].load, "");
}

static void a_successor_knows_the_kind_from_the_runs_of_the_trials(void **state) {
  struct core_fixture *f = *state;
  first_trial_begins(f);
  worker_loads(f, W1, T0);
  server_loads(f, S1, T0);
  coordinator_is_succeeded(f, T0, record_of(f));
  sweep_has_kind(f, NULL, NULL);
  other_worker_joins(f, W3);
  other_server_joins(f, S3);
  user_submits(f, T1, 1, 1);
  pass_while_alive(f, W3, S3);
  assert_string_equal(f->told[W3].load, "");
  assert_string_equal(f->told[S3].load, "");
  assert_non_null(strstr(info_of_run(f, T1).message, "servers of a sweep in virtual order"));
  server_joins(f, AGAIN);
  assert_waits_for_the_kind(f, T1, "worker-1 (host) is 'build-1'");
}

static void trials_that_need_not_be_deterministic_take_any_kind(void **state) {
  struct core_fixture *f = *state;
  f->admits_any = true;
  first_trial_begins(f);
  worker_loads(f, W1, T0);
  user_submits(f, T1, 1, 1);
  assert_string_equal(f->told[W2].load, T1);
}

static void a_sweep_that_is_reopened_may_go_on_with_another_kind(void **state) {
  struct core_fixture *f = *state;
  Weir__SweepKind kind = WEIR__SWEEP_KIND__INIT;
  struct coordinator_event event = {.kind = EVENT_SWEEP_KIND, .sweep_kind = {SWEEP, &kind}};
  first_trial_begins(f);
  worker_loads(f, W1, T0);
  server_loads(f, S1, T0);
  user_cancels(f, T0);
  member_leaves(f, W1);
  user_submits(f, T1, 1, 1);
  assert_waits_for_the_kind(f, T1, "worker-1 (host) is 'build-1'");
  kind.is_reopened = true;
  core_step(f, &event);
  assert_string_equal(f->told[W2].load, T1);
  event.sweep_kind.kind = NULL;
  core_step(f, &event); /* the sweep is forgotten, not its runs */
  worker_loads(f, W2, T1);
  server_loads(f, S1, T1);
  assert_state(f, T1, WEIR__RUN_STATE__RUNNING);
}

static void foreign_worker_joins(struct core_fixture *f, uint64_t key) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__WORKER;
  hello.host = "host";
  hello.pid = (uint32_t)key;
  hello.executors = 1;
  hello.foreign = true;
  says_hello(f, key, &hello);
}

static void a_foreign_worker_gets_no_run_that_is_deterministic_or_in_stages(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  foreign_worker_joins(f, W1);
  user_submits(f, RUN, 1, 0);
  assert_string_equal(f->told[W1].load, "");
  assert_non_null(
      strstr(info_of_run(f, RUN).message,
             "workers that may compute it: 0 of the 1 there: worker-1 (host) is another program"));
  user_cancels(f, RUN);
  f->admits_any = true;
  f->stages = 2;
  user_submits(f, T0, 1, 0);
  assert_string_equal(f->told[W1].load, "");
  user_cancels(f, T0);
  f->stages = 0;
  user_submits(f, T1, 1, 0);
  assert_string_equal(f->told[W1].load, T1);
}

static void a_foreign_worker_gets_no_run_whose_gradients_are_late(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  foreign_worker_joins(f, W1);
  f->admits_any = true;
  f->staleness = 1;
  user_submits(f, RUN, 1, 0);
  assert_string_equal(f->told[W1].load, "");
  worker_joins(f, W2, 1);
  assert_string_equal(f->told[W2].load, RUN);
}

static void a_foreign_worker_is_passed_over_for_one_that_suits(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  foreign_worker_joins(f, W1);
  worker_joins(f, W2, 1);
  user_submits(f, RUN, 1, 1);
  f->admits_any = true;
  user_submits(f, T0, 1, 1); /* each has the one worker that it may have */
  assert_string_equal(f->told[W1].load, T0);
  assert_string_equal(f->told[W2].load, RUN);
}

static void what_a_foreign_worker_does_not_know_others_say(void **state) {
  struct core_fixture *f = *state;
  f->admits_any = true;
  server_joins(f, S1);
  foreign_worker_joins(f, W1);
  user_submits(f, RUN, 1, 0);
  member_loads(f, W1, RUN, "", SAMPLES);
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  worker_joins(f, W2, 1);
  worker_loads(f, W2, RUN);
  assert_int_equal(info_of_run(f, RUN).workers, 2);
  worker_joins(f, W3, 1);
  member_loads(f, W3, RUN, "other data", SAMPLES);
  assert_string_equal(f->told[W3].unload, RUN);
  foreign_worker_joins(f, AGAIN);
  member_loads(f, AGAIN, RUN, "", SAMPLES + 1); /* how many samples there are it does know */
  assert_string_equal(f->told[AGAIN].unload, RUN);
  assert_int_equal(info_of_run(f, RUN).workers, 2);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_server_of_another_kind_is_refused_with_both_named),
      TEST(the_kind_outlives_the_servers_that_it_came_from),
      TEST(the_kind_outlives_the_coordinator),
      TEST(a_run_that_was_paused_may_go_on_with_another_kind),
      TEST(a_run_that_need_not_be_deterministic_takes_any_kind),
      TEST(the_first_worker_of_a_sweep_fixes_the_kind_of_all_its_trials),
      TEST(a_worker_that_loads_while_another_trial_fixes_the_kind_is_let_go),
      TEST(a_trial_says_that_nobody_is_of_its_sweeps_kind),
      TEST(servers_of_another_kind_than_the_sweeps_get_no_trial),
      TEST(a_successor_knows_the_kind_from_the_runs_of_the_trials),
      TEST(trials_that_need_not_be_deterministic_take_any_kind),
      TEST(a_sweep_that_is_reopened_may_go_on_with_another_kind),
      TEST(a_foreign_worker_gets_no_run_that_is_deterministic_or_in_stages),
      TEST(a_foreign_worker_gets_no_run_whose_gradients_are_late),
      TEST(a_foreign_worker_is_passed_over_for_one_that_suits),
      TEST(what_a_foreign_worker_does_not_know_others_say),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
