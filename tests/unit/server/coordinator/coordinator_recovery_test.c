/* The coordinator's core when servers and workers are lost: roll-backs, stores that differ, members that come
 * again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_run.h"
#include "tests/support/coordinator/core_succession.h"

enum { S3 = 5, S4, S5, AGAIN = 20 };

static void a_server_that_comes_back_goes_on_where_it_was(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  writes_blocks(f, S1, RUN, f->told[S1].owns, false);
  member_leaves(f, S1);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_string_equal(info_of_run(f, RUN).message, "server-1 (host:1) was lost: connection reset");
  assert_int_equal(info_of_run(f, RUN).servers, 1);
  time_passes(f, GRACE_MS - 100);
  server_joins_again(f, S1, AGAIN, RUN, 4);
  assert_string_equal(f->told[AGAIN].id, "server-1");
  assert_string_equal(f->told[AGAIN].keep, RUN);
  assert_int_equal(f->told[AGAIN].keep_step, 3);
  assert_int_equal(f->told[AGAIN].write_step, 4); /* told again, for the order may have been lost */
  assert_string_equal(info_of_run(f, RUN).message, "");
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
  reports_step(f, AGAIN, RUN, 5); /* of the present, before what was missed */
  assert_int_equal(info_of_run(f, RUN).step, 3);
  reports_steps(f, AGAIN, RUN, 3, 6);
  assert_int_equal(info_of_run(f, RUN).step, 6);
  member_writes(f, AGAIN, RUN);
  member_writes(f, S2, RUN);
  store_commits(f, RUN, NULL);
  assert_int_equal(core_run_newest(f), 4);
}

static void a_run_rolls_back_on_the_servers_that_remain(void **state) {
  struct core_fixture *f = *state;
  struct run_event_view view;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 7);
  core_run_checkpoint(f);
  f->is_store_away = true;
  member_leaves(f, S2);
  member_beats(f, S1), member_beats(f, W1), member_beats(f, W2);
  time_passes(f, GRACE_MS - 100);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  time_passes(f, 100);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_int_equal(info_of_run(f, RUN).incarnation, 1);
  assert_int_equal(info_of_run(f, RUN).step, 4);
  assert_int_equal(f->told[S1].loads, 1); /* not before the store has the incarnation */
  store_saves(f, RUN, 0, WEIR__RUN_STATE__LOADING);
  assert_int_equal(f->told[S1].loads, 1);
  store_saves(f, RUN, 1, WEIR__RUN_STATE__LOADING);
  assert_int_equal(f->told[S1].loads, 2);
  assert_int_equal(f->told[S1].load_servers, 1);
  assert_int_equal(f->told[S1].load_incarnation, 1);
  assert_int_equal(f->told[S1].load_step, 4);
  assert_string_equal(f->told[S1].manifest, "runs/mlp-aaaaaa/checkpoints/00000000000000000004");
  assert_non_null(strstr(info_of_run(f, RUN).message, "rolled back to step 4: server-2 (host:2) was lost"));
  assert_int_equal(f->told[W1].view, 1);
  assert_string_equal(f->told[W1].unload, ""); /* workers keep what they have */
  reports_step(f, S1, RUN, 7);                 /* of before */
  assert_int_equal(info_of_run(f, RUN).step, 4);
  f->incarnation = 1;
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  store_saves(f, RUN, 1, WEIR__RUN_STATE__LOADING);
  assert_int_equal(f->told[W1].view, 1); /* a successor would roll back what was computed by now */
  member_beats(f, S1), member_beats(f, W1), member_beats(f, W2);
  time_passes(f, 2000);
  assert_string_equal(info_of_run(f, RUN).message, "waiting for the store");
  store_saves(f, RUN, 1, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[W1].view, 2);
  assert_int_equal(f->told[W1].view_incarnation, 1);
  assert_string_equal(info_of_run(f, RUN).message, "");
  assert_int_equal(f->told[S1].write_step, 8);
  reports_step(f, S1, RUN, 4); /* steps come again, under their incarnation */
  assert_int_equal(info_of_run(f, RUN).step, 5);
  for (uint64_t at = 0; coordinator_run_event(f->coordinator, RUN, at, &view); at = view.event.number + 1)
    ;
  assert_int_equal(view.event.event_case, WEIR__RUN_EVENT__EVENT_STEP);
  assert_int_equal(view.event.step->incarnation, 1);
}

static void a_restarted_server_is_not_waited_for(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  member_leaves(f, S2);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  server_replaces(f, S2, S3, "host", "build-1");
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_string_equal(f->told[S3].id, "server-3");
  assert_int_equal(f->told[S3].load_servers, 2);
  assert_int_equal(f->told[S3].load_step, 0);
  assert_string_equal(f->told[S3].manifest, "");
  member_leaves(f, W1); /* one worker is enough to go on */
  f->incarnation = 1;
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  server_loads(f, S3, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[W2].view_incarnation, 1);
}

/* It may be that the lost one comes back, with its part. */
static void a_server_elsewhere_replaces_nobody(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  member_leaves(f, S2);
  server_joins(f, S3);
  server_replaces(f, S2, S4, "another host", "build-1"); /* the address means another machine there */
  server_replaces(f, S2, S5, "host", "build-2");         /* it may not have the run */
  member_beats(f, S1), member_beats(f, S3), member_beats(f, W1), member_beats(f, W2);
  time_passes(f, GRACE_MS - 100);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  server_joins_again(f, S2, AGAIN, RUN, 0);
  assert_string_equal(f->told[AGAIN].keep, RUN);
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
}

static void a_restarted_server_counts_after_the_coordinator_was_away_too(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  member_leaves(f, S1);
  member_leaves(f, S2);
  server_replaces(f, S2, S3, "host", "build-1"); /* two are to be replaced */
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  f->now_ms += GRACE_MS - 100;
  core_ticks(f);
  server_joins_again(f, S1, AGAIN, RUN, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_int_equal(f->told[S3].load_servers, 2);
}

static void a_run_without_servers_waits_for_one(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  member_leaves(f, S1);
  member_leaves(f, S2);
  member_beats(f, W1), member_beats(f, W2);
  time_passes(f, GRACE_MS);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_non_null(strstr(info_of_run(f, RUN).message, "waiting for a server"));
  server_joins(f, S3);
  assert_int_equal(f->told[S3].load_servers, 1);
}

static void a_server_that_comes_back_too_late_lets_go(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  member_leaves(f, S2);
  member_beats(f, S1), member_beats(f, W1), member_beats(f, W2);
  time_passes(f, GRACE_MS);
  server_joins_again(f, S2, AGAIN, RUN, 3);
  assert_string_equal(f->told[AGAIN].unload, RUN);
  assert_string_equal(f->told[AGAIN].keep, "");
}

static void a_roll_back_waits_for_the_commit_in_flight(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 5);
  member_writes(f, S1, RUN);
  member_writes(f, S2, RUN);
  member_leaves(f, S2);
  server_replaces(f, S2, S3, "host", "build-1");
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  store_commits(f, RUN, NULL);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_int_equal(f->told[S1].load_step, 4);
}

static void a_lost_checkpoint_gives_way_to_the_one_before(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRefused refused = WEIR__RUN_REFUSED__INIT;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 4);
  core_run_checkpoint(f);
  reports_steps(f, S1, RUN, 4, 8);
  core_run_checkpoint(f);
  member_leaves(f, S2);
  server_replaces(f, S2, S3, "host", "build-1");
  assert_int_equal(f->told[S1].load_step, 8);
  refused.run = (char *)RUN;
  refused.incarnation = 1;
  refused.message = "block 3 is damaged";
  refused.lost_checkpoint = true;
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_REFUSED, &refused);
  member_says(f, S3, WEIR__MEMBER_MESSAGE__BODY_REFUSED, &refused); /* the same one */
  assert_int_equal(f->n_dropped, 0);                                /* it may be the servers that are wrong */
  assert_int_equal(f->told[S1].load_incarnation, 2);
  assert_int_equal(f->told[S1].load_step, 4);
  assert_int_equal(f->told[S3].load_step, 4);
}

static void refuses_store(struct core_fixture *f, uint64_t key, uint64_t incarnation) {
  Weir__RunRefused refused = WEIR__RUN_REFUSED__INIT;
  refused.run = (char *)RUN;
  refused.incarnation = incarnation;
  refused.message = "this server's store, file:///b, is not the coordinator's";
  refused.wrong_store = true;
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_REFUSED, &refused);
}

static void a_server_of_another_store_is_left_out_and_no_checkpoint_suffers(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 4);
  core_run_checkpoint(f);
  member_leaves(f, S2);
  server_replaces(f, S2, S3, "host", "build-1");
  assert_int_equal(f->told[S3].load_step, 4);
  refuses_store(f, S3, 1);
  assert_int_equal(f->told[S1].load_incarnation, 2);
  assert_int_equal(f->told[S1].load_step, 4);
  assert_int_equal(f->told[S1].load_servers, 1);
  assert_int_equal(f->told[S3].load_incarnation, 1);
  assert_int_equal(f->n_dropped, 0);
  assert_string_equal(server_message(f, 0), "");
  assert_non_null(strstr(server_message(f, 1), "file:///b, is not the coordinator's"));
  f->incarnation = 2;
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void a_run_without_another_server_waits_and_asks_again(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  member_leaves(f, S2);
  member_leaves(f, S1);
  server_joins(f, S3);
  time_passes(f, GRACE_MS + 100);
  assert_int_equal(f->told[S3].load_incarnation, 1);
  refuses_store(f, S3, 1);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_non_null(strstr(info_of_run(f, RUN).message, "waiting for a server"));
  assert_non_null(strstr(info_of_run(f, RUN).message, "file:///b, is not the coordinator's"));
  assert_int_equal(f->told[S3].loads, 1);
  for (int i = 0; i < 12; i++) {
    member_beats(f, S3), member_beats(f, W1), member_beats(f, W2);
    time_passes(f, 1000);
  }
  assert_int_equal(f->told[S3].loads, 2);
  f->incarnation = f->told[S3].load_incarnation;
  server_loads(f, S3, RUN);
  assert_string_equal(server_message(f, 0), "");
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void a_run_whose_model_is_lost_fails_and_says_so(void **state) {
  struct core_fixture *f = *state;
  struct coordinator_event event = {.kind = EVENT_MODEL_LOST, .model_lost = {RUN, "block feed is missing"}};
  core_run_start(f, 3);
  core_step(f, &event);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_non_null(strstr(info_of_run(f, RUN).message, "the store has lost the model: block feed is missing"));
  core_step(f, &event);
}

static void a_server_that_cannot_load_is_asked_again_before_the_run_fails(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  member_leaves(f, S2);
  server_replaces(f, S2, S3, "host", "build-1");
  for (f->incarnation = 1; f->incarnation < 7; f->incarnation++) {
    assert_int_equal(f->told[S1].load_incarnation, f->incarnation);
    member_refuses(f, S3, RUN, "out of memory", false);
    assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
    for (int i = 0; i < 8; i++) {
      member_beats(f, S1), member_beats(f, S3), member_beats(f, W1), member_beats(f, W2);
      time_passes(f, 2000);
    }
  }
  member_refuses(f, S3, RUN, "out of memory", false);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
}

static void a_worker_that_returns_is_asked_for_the_run_that_it_has(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  member_leaves(f, W1);
  worker_joins_again(f, W1, AGAIN, RUN);
  assert_string_equal(f->told[AGAIN].id, "worker-1");
  assert_string_equal(f->told[AGAIN].load, RUN);
  worker_loads(f, AGAIN, RUN);
  assert_int_equal(f->told[AGAIN].end - f->told[AGAIN].begin, MICROBATCHES / 2);
  worker_joins_again(f, W2, AGAIN + 1, "mlp-gone");
  assert_string_equal(f->told[AGAIN + 1].unload, "mlp-gone");
}

static void the_new_link_of_a_process_ends_its_former_one(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  server_joins_again(f, S2, AGAIN, RUN, 3);
  assert_true(f->told[S2].is_closed);
  assert_string_equal(f->told[AGAIN].id, "server-2");
  assert_string_equal(f->told[AGAIN].keep, RUN);
  server_joins(f, S3); /* nothing is lost: nothing is replaced */
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void two_members_never_have_one_id(void **state) {
  struct core_fixture *f = *state;
  Weir__Hello hello = WEIR__HELLO__INIT;
  server_joins(f, S1);
  hello.role = WEIR__ROLE__SERVER;
  hello.host = "another host";
  hello.address = "another:1";
  hello.id = "server-1"; /* of a former coordinator's counting */
  says_hello(f, AGAIN, &hello);
  assert_string_equal(f->told[AGAIN].id, "server-2");
  assert_false(f->told[S1].is_closed);
  hello.address = "another:2";
  hello.id = "server-7";
  says_hello(f, AGAIN + 1, &hello);
  assert_string_equal(f->told[AGAIN + 1].id, "server-7");
  server_joins(f, S2);
  assert_string_equal(f->told[S2].id, "server-8");
  hello.address = "another:3";
  hello.id = "server-99999999999999999999";
  says_hello(f, AGAIN + 2, &hello);
  assert_string_equal(f->told[AGAIN + 2].id, "server-9");
}

static void a_member_of_a_higher_term_is_refused_and_the_store_asked(void **state) {
  struct core_fixture *f = *state;
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__WORKER;
  hello.term = TERM + 1;
  user_submits(f, RUN, 1, 0);
  says_hello(f, W1, &hello);
  assert_int_equal(f->deposed, 0);
  assert_int_equal(f->doubts, 1);
  assert_int_equal(f->actions.count, 2);
  assert_int_equal(f->actions.items[0].kind, ACTION_CLOSE);
  assert_int_equal(f->actions.items[0].code, ERR_STALE);
}

/* It has lost what it had: nobody else leads, and members would never obey so low a term. */
static void the_first_coordinator_of_an_empty_store_steps_down_for_members_of_a_higher_term(void **state) {
  struct core_fixture *f = *state;
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__WORKER;
  hello.term = TERM + 1;
  says_hello(f, W1, &hello);
  assert_int_equal(f->deposed, 1);
  assert_int_equal(f->actions.count, 1);
  user_submits(f, RUN, 1, 0);
  assert_int_equal(f->actions.count, 0); /* nothing follows */
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_server_that_comes_back_goes_on_where_it_was),
      TEST(a_run_rolls_back_on_the_servers_that_remain),
      TEST(a_restarted_server_is_not_waited_for),
      TEST(a_server_elsewhere_replaces_nobody),
      TEST(a_restarted_server_counts_after_the_coordinator_was_away_too),
      TEST(a_run_without_servers_waits_for_one),
      TEST(a_server_that_comes_back_too_late_lets_go),
      TEST(a_roll_back_waits_for_the_commit_in_flight),
      TEST(a_lost_checkpoint_gives_way_to_the_one_before),
      TEST(a_server_of_another_store_is_left_out_and_no_checkpoint_suffers),
      TEST(a_run_without_another_server_waits_and_asks_again),
      TEST(a_run_whose_model_is_lost_fails_and_says_so),
      TEST(a_server_that_cannot_load_is_asked_again_before_the_run_fails),
      TEST(a_worker_that_returns_is_asked_for_the_run_that_it_has),
      TEST(the_new_link_of_a_process_ends_its_former_one),
      TEST(two_members_never_have_one_id),
      TEST(a_member_of_a_higher_term_is_refused_and_the_store_asked),
      TEST(the_first_coordinator_of_an_empty_store_steps_down_for_members_of_a_higher_term),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1); /* damaged records are logged as errors */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
