/* Links between workers and servers that are cut while both see the coordinator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/support/coordinator/core_fixture.h"

enum { S1 = 1, S2, W1, W2, W3, S3, S4, AGAIN, WEIGH_MS = 3000, GIVE_UP_MS = 10000, LEFT_OUT_MS = 60000 };
static const char RUN[] = "mlp-aaaaaa", OTHER[] = "mlp-bbbbbb";

static void start_run(struct core_fixture *f, const char *run, uint32_t max) {
  user_submits(f, run, 2, max);
  for (uint64_t key = W1; key <= W2; key++)
    worker_loads(f, key, run);
  for (uint64_t key = S1; key <= S2; key++)
    server_loads(f, key, run);
  assert_state(f, run, WEIR__RUN_STATE__RUNNING);
}

static int setup_run(void **state) {
  struct core_fixture *f;
  core_setup(state);
  f = *state;
  for (uint64_t key = S1; key <= S2; key++)
    server_joins(f, key);
  for (uint64_t key = W1; key <= W2; key++)
    worker_joins(f, key, 1);
  start_run(f, RUN, 2);
  return 0;
}

static void says(struct core_fixture *f, uint64_t key, const char *run, char **servers, size_t n) {
  Weir__Unreached unreached = WEIR__UNREACHED__INIT;
  unreached.run = (char *)run;
  unreached.incarnation = f->incarnation;
  unreached.servers = servers;
  unreached.n_servers = n;
  unreached.message = "connection refused";
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_UNREACHED, &unreached);
}

/* A server, or NULL: all are reached. */
static void misses(struct core_fixture *f, uint64_t key, char *server) {
  says(f, key, RUN, &server, server != NULL);
}

/* With everybody's heartbeats. */
static void lives(struct core_fixture *f, uint64_t ms) {
  for (uint64_t end_ms = f->now_ms + ms; f->now_ms < end_ms;) {
    for (uint64_t key = S1; key <= S4; key++)
      if (f->told[key].is_member && !f->told[key].is_closed)
        member_beats(f, key);
    time_passes(f, end_ms - f->now_ms < 1000 ? end_ms - f->now_ms : 1000);
  }
}

static void assert_computes(const struct core_fixture *f, uint64_t key, uint32_t microbatches) {
  assert_int_equal(f->told[key].end - f->told[key].begin, microbatches);
}

static void others_compute_for_a_worker_that_misses_a_server_they_reach(void **state) {
  struct core_fixture *f = *state;
  misses(f, W1, "server-2");
  lives(f, WEIGH_MS - 100);
  assert_computes(f, W1, MICROBATCHES / 2); /* others may say the same yet */
  lives(f, 100);
  assert_computes(f, W1, 0);
  assert_computes(f, W2, MICROBATCHES);
  assert_string_equal(worker_row(f, W1).state, "cut-off");
  assert_string_equal(worker_row(f, W1).message, "cannot reach server-2 (host:2): connection refused");
  assert_string_equal(worker_row(f, W2).state, "ready");
  assert_non_null(strstr(info_of_run(f, RUN).message, "worker-1 (host) cannot reach server-2 (host:2)"));
  assert_int_equal(info_of_run(f, RUN).workers, 1);
  assert_string_equal(f->told[W1].unload, ""); /* it keeps what it has loaded */
  lives(f, GIVE_UP_MS);
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
}

/* They are answered; what time has made due is decided by the next tick, or anything else that happens. */
static void by_a_heartbeat_nothing_is_decided(void **state) {
  struct core_fixture *f = *state;
  misses(f, W1, "server-2");
  f->now_ms += WEIGH_MS;
  member_beats(f, W2);
  assert_computes(f, W1, MICROBATCHES / 2);
  says(f, W2, OTHER, NULL, 0);
  assert_computes(f, W1, 0);
}

static void a_worker_that_reaches_its_servers_again_is_given_work(void **state) {
  struct core_fixture *f = *state;
  misses(f, W1, "server-2");
  lives(f, WEIGH_MS);
  misses(f, W1, "server-2"); /* still */
  assert_computes(f, W1, 0);
  misses(f, W1, NULL);
  assert_computes(f, W1, 0);
  assert_string_equal(worker_row(f, W1).state, "following"); /* it has yet to receive the weights */
  assert_true(f->told[W1].follows);
  worker_catches_up(f, W1, RUN, 0);
  assert_computes(f, W1, MICROBATCHES / 2);
  assert_computes(f, W2, MICROBATCHES / 2);
  assert_string_equal(worker_row(f, W1).state, "ready");
  assert_string_equal(worker_row(f, W1).message, "");
  assert_string_equal(info_of_run(f, RUN).message, "");
}

static void a_link_that_is_back_soon_changes_nothing(void **state) {
  struct core_fixture *f = *state;
  uint64_t view = f->told[W1].view;
  misses(f, W1, "server-2");
  lives(f, WEIGH_MS / 2);
  misses(f, W1, NULL);
  lives(f, 2 * WEIGH_MS);
  assert_int_equal(f->told[W1].view, view);
}

static void a_server_that_no_worker_reaches_is_left_out_by_a_roll_back(void **state) {
  struct core_fixture *f = *state;
  misses(f, W1, "server-2");
  misses(f, W2, "server-2");
  lives(f, GIVE_UP_MS - 100);
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
  assert_computes(f, W1, MICROBATCHES / 2);
  lives(f, 100);
  f->incarnation = 1;
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_non_null(strstr(info_of_run(f, RUN).message, "no worker reaches all servers: "));
  assert_non_null(strstr(info_of_run(f, RUN).message, "cannot reach server-2 (host:2)"));
  assert_string_equal(f->told[S2].unload, RUN);
  assert_int_equal(f->told[S1].load_incarnation, 1);
  assert_int_equal(f->told[S1].load_servers, 1);
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[W1].view_incarnation, 1);
  assert_computes(f, W1, MICROBATCHES / 2);
  assert_string_equal(worker_row(f, W1).message, "");
}

static void runs_have_a_server_that_was_cut_off_again_after_a_minute(void **state) {
  struct core_fixture *f = *state;
  misses(f, W1, "server-2");
  misses(f, W2, "server-2");
  lives(f, GIVE_UP_MS);
  f->incarnation = 1;
  user_cancels(f, RUN);
  lives(f, LEFT_OUT_MS - 1000);
  f->incarnation = 0;
  user_submits(f, OTHER, 1, 0);
  worker_loads(f, W1, OTHER);
  assert_string_equal(f->told[S1].load, OTHER);
  assert_string_not_equal(f->told[S2].load, OTHER);
  user_cancels(f, OTHER);
  lives(f, 1000);
  user_submits(f, "mlp-cccccc", 1, 0);
  worker_loads(f, W1, "mlp-cccccc");
  assert_string_equal(f->told[S2].load, "mlp-cccccc");
}

static void a_run_whose_servers_are_all_cut_off_waits_and_says_so(void **state) {
  struct core_fixture *f = *state;
  char *both[] = {"server-1", "server-2"};
  member_leaves(f, W2);
  says(f, W1, RUN, both, 2);
  lives(f, 2 * GIVE_UP_MS);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
  assert_computes(f, W1, MICROBATCHES); /* it tries on */
  assert_non_null(
      strstr(info_of_run(f, RUN).message,
             "worker-1 (host) cannot reach server-1 (host:1), server-2 (host:2): connection refused"));
}

static void servers_that_the_run_did_not_have_take_the_place_of_those_cut_off(void **state) {
  struct core_fixture *f = *state;
  char *both[] = {"server-1", "server-2"};
  member_joins(f, S3, WEIR__ROLE__SERVER, 0, "build-2");
  says(f, W1, RUN, both, 2);
  says(f, W2, RUN, both, 2);
  lives(f, 2 * GIVE_UP_MS);
  assert_int_equal(info_of_run(f, RUN).incarnation, 0); /* it might compute other bits */
  server_joins(f, S4);
  lives(f, 1000);
  assert_int_equal(info_of_run(f, RUN).incarnation, 1);
}

static void who_was_cut_off_tries_on_when_nobody_else_is_left(void **state) {
  struct core_fixture *f = *state;
  misses(f, W1, "server-2");
  lives(f, 2 * GIVE_UP_MS);
  assert_computes(f, W1, 0);
  member_leaves(f, W2);
  assert_computes(f, W1, MICROBATCHES);
  lives(f, GIVE_UP_MS - 100); /* another worker may come */
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
  lives(f, 100);
  assert_int_equal(info_of_run(f, RUN).incarnation, 1);
}

static void servers_are_not_given_up_while_another_worker_loads(void **state) {
  struct core_fixture *f = *state;
  member_leaves(f, W2);
  misses(f, W1, "server-2");
  worker_joins(f, W3, 1);
  lives(f, 2 * GIVE_UP_MS);
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
  worker_loads(f, W3, RUN);
  assert_computes(f, W1, 0);
  assert_computes(f, W3, MICROBATCHES);
}

static void a_free_worker_takes_the_place_before_servers_are_given_up(void **state) {
  struct core_fixture *f = *state;
  worker_joins(f, W3, 1); /* the run has as many as it may have */
  misses(f, W1, "server-2");
  misses(f, W2, "server-2");
  lives(f, WEIGH_MS);
  assert_string_equal(f->told[W3].load, RUN);
  worker_loads(f, W3, RUN);
  assert_computes(f, W3, MICROBATCHES);
  lives(f, GIVE_UP_MS);
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
  misses(f, W3, "server-2"); /* it is no better */
  lives(f, GIVE_UP_MS);
  assert_int_equal(info_of_run(f, RUN).incarnation, 1);
}

static void the_best_placed_worker_says_which_servers_are_given_up(void **state) {
  struct core_fixture *f = *state;
  char *both[] = {"server-1", "server-2"};
  says(f, W1, RUN, both, 2);
  misses(f, W2, "server-1");
  lives(f, WEIGH_MS);
  assert_computes(f, W1, 0);
  assert_computes(f, W2, MICROBATCHES);
  lives(f, GIVE_UP_MS - WEIGH_MS);
  assert_string_equal(f->told[S1].unload, RUN);
  assert_string_equal(f->told[S2].load, RUN);
  assert_int_equal(f->told[S2].load_servers, 1);
}

static void a_worker_that_only_follows_computes_when_nobody_else_reaches_all_servers(void **state) {
  struct core_fixture *f = *state;
  user_cancels(f, RUN);
  start_run(f, OTHER, 3);
  worker_joins(f, W3, 1);
  member_loads(f, W3, OTHER, "data", SAMPLES);
  assert_string_equal(worker_row(f, W3).state, "following");
  says(f, W1, OTHER, (char *[]){"server-2"}, 1);
  lives(f, WEIGH_MS);
  assert_computes(f, W1, 0);
  assert_string_equal(worker_row(f, W3).state, "following");
  says(f, W2, OTHER, (char *[]){"server-2"}, 1);
  lives(f, WEIGH_MS);
  assert_computes(f, W3, MICROBATCHES);
  assert_computes(f, W2, 0);
  lives(f, GIVE_UP_MS);
  assert_int_equal(info_of_run(f, OTHER).incarnation, 0);
}

static void a_worker_that_follows_and_misses_a_server_is_cut_off(void **state) {
  struct core_fixture *f = *state;
  user_cancels(f, RUN);
  start_run(f, OTHER, 3);
  worker_joins(f, W3, 1);
  member_loads(f, W3, OTHER, "data", SAMPLES);
  says(f, W3, OTHER, (char *[]){"server-2"}, 1);
  lives(f, WEIGH_MS);
  assert_string_equal(worker_row(f, W3).state, "cut-off");
  assert_false(f->told[W3].follows);
  says(f, W3, OTHER, NULL, 0);
  assert_string_equal(worker_row(f, W3).state, "following");
  assert_true(f->told[W3].follows);
  assert_computes(f, W1, MICROBATCHES / 2);
}

static void a_worker_whose_place_was_taken_is_free_when_it_reaches_all(void **state) {
  struct core_fixture *f = *state;
  misses(f, W1, "server-2");
  lives(f, WEIGH_MS);
  worker_joins(f, W3, 1);
  worker_loads(f, W3, RUN);
  assert_computes(f, W3, MICROBATCHES / 2);
  misses(f, W1, NULL);
  assert_string_equal(f->told[W1].unload, RUN);
  assert_string_equal(worker_row(f, W1).state, "idle");
}

static void a_cut_off_worker_leaves_and_runs_end_as_others_do(void **state) {
  struct core_fixture *f = *state;
  misses(f, W1, "server-2");
  lives(f, WEIGH_MS);
  member_drains(f, W1);
  assert_string_equal(f->told[W1].unload, RUN);
  assert_string_equal(worker_row(f, W1).message, "");
  worker_joins(f, W3, 1);
  worker_loads(f, W3, RUN);
  misses(f, W3, "server-1");
  lives(f, WEIGH_MS);
  assert_string_equal(worker_row(f, W3).state, "cut-off");
  user_cancels(f, RUN);
  assert_string_equal(f->told[W3].unload, RUN);
  assert_string_equal(worker_row(f, W3).state, "idle");
}

static void a_roll_back_for_another_reason_asks_all_workers_again(void **state) {
  struct core_fixture *f = *state;
  misses(f, W1, "server-2");
  lives(f, WEIGH_MS);
  member_leaves(f, S2);
  lives(f, GRACE_MS);
  f->incarnation = 1;
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_computes(f, W1, MICROBATCHES / 2);
  lives(f, GIVE_UP_MS);
  assert_int_equal(info_of_run(f, RUN).incarnation, 1);
}

static void a_lost_server_that_comes_back_is_no_cause_for_a_roll_back(void **state) {
  struct core_fixture *f = *state;
  misses(f, W1, "server-2");
  misses(f, W2, "server-2");
  lives(f, GIVE_UP_MS - 1000);
  member_leaves(f, S2);
  lives(f, 1500);
  server_joins_again(f, S2, AGAIN, RUN, 0);
  core_ticks(f);
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

/* What is sent holds although the run lets go of its servers at once. */
static void a_run_may_be_paused_in_the_step_in_which_its_workers_are_cut_off(void **state) {
  struct core_fixture *f = *state;
  worker_joins(f, W3, 1);
  misses(f, W1, "server-2");
  misses(f, W2, "server-2");
  user_pauses(f, RUN);
  f->now_ms += GRACE_MS;
  says(f, W3, OTHER, NULL, 0); /* anything but a heartbeat */
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  assert_string_equal(f->told[W1].unload, RUN);
}

static void what_makes_no_sense_is_ignored(void **state) {
  struct core_fixture *f = *state;
  char *none[] = {"", "server-9", "worker-2", "server-2 ", "%s%n"}, *both[] = {"server-2", "server-2"};
  uint64_t view = f->told[W2].view;
  worker_joins(f, W3, 1);      /* has no run */
  says(f, W1, RUN, none, 5);   /* no servers of the run */
  says(f, W1, OTHER, both, 2); /* another run */
  says(f, W1, "", both, 2);
  says(f, W3, RUN, both, 2);
  says(f, S1, RUN, both, 2); /* no worker */
  f->incarnation = 7;
  says(f, W1, RUN, both, 2); /* not of this incarnation */
  f->incarnation = 0;
  lives(f, 2 * WEIGH_MS);
  assert_int_equal(f->told[W2].view, view);
  assert_string_equal(info_of_run(f, RUN).message, "");
  says(f, W1, RUN, both, 2); /* one server, named twice */
  lives(f, WEIGH_MS);
  assert_string_equal(worker_row(f, W1).message, "cannot reach server-2 (host:2): connection refused");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_run, core_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(others_compute_for_a_worker_that_misses_a_server_they_reach),
      TEST(by_a_heartbeat_nothing_is_decided),
      TEST(a_worker_that_reaches_its_servers_again_is_given_work),
      TEST(a_link_that_is_back_soon_changes_nothing),
      TEST(a_server_that_no_worker_reaches_is_left_out_by_a_roll_back),
      TEST(runs_have_a_server_that_was_cut_off_again_after_a_minute),
      TEST(a_run_whose_servers_are_all_cut_off_waits_and_says_so),
      TEST(servers_that_the_run_did_not_have_take_the_place_of_those_cut_off),
      TEST(who_was_cut_off_tries_on_when_nobody_else_is_left),
      TEST(servers_are_not_given_up_while_another_worker_loads),
      TEST(a_free_worker_takes_the_place_before_servers_are_given_up),
      TEST(the_best_placed_worker_says_which_servers_are_given_up),
      TEST(a_worker_that_only_follows_computes_when_nobody_else_reaches_all_servers),
      TEST(a_worker_that_follows_and_misses_a_server_is_cut_off),
      TEST(a_worker_whose_place_was_taken_is_free_when_it_reaches_all),
      TEST(a_cut_off_worker_leaves_and_runs_end_as_others_do),
      TEST(a_roll_back_for_another_reason_asks_all_workers_again),
      TEST(a_lost_server_that_comes_back_is_no_cause_for_a_roll_back),
      TEST(a_run_may_be_paused_in_the_step_in_which_its_workers_are_cut_off),
      TEST(what_makes_no_sense_is_ignored),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
