/* Runs claim the workers of a cluster: who is given how many, and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_run.h"

enum { W3 = 5, AGAIN = 20 };

static const char RUN2[] = "mlp-bbbbbb";
static const char RUN3[] = "mlp-cccccc";

/* Two workers, of one executor each. */
static void two_workers_join(struct core_fixture *f) {
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
}

static void run_begins(struct core_fixture *f, const char *run, const uint64_t *workers, int n) {
  for (int i = 0; i < n; i++) {
    assert_string_equal(f->told[workers[i]].load, run);
    worker_loads(f, workers[i], run);
  }
  server_loads(f, S1, run);
  assert_state(f, run, WEIR__RUN_STATE__RUNNING);
}

static void a_run_beside_another_has_half_of_the_workers(void **state) {
  struct core_fixture *f = *state;
  two_workers_join(f);
  user_submits(f, RUN, 1, 0);
  run_begins(f, RUN, (const uint64_t[]){W1, W2}, 2);
  user_submits(f, RUN2, 1, 0); /* it cannot begin without one: nothing is waited for */
  assert_string_equal(f->told[W1].unload, RUN);
  assert_int_equal(f->told[W2].end - f->told[W2].begin, MICROBATCHES);
  run_begins(f, RUN2, (const uint64_t[]){W1}, 1);
  user_cancels(f, RUN);
  assert_string_equal(f->told[W2].load, RUN2);
}

static void even_shares_wait_until_workers_have_served_for_a_while(void **state) {
  struct core_fixture *f = *state;
  two_workers_join(f);
  worker_joins(f, W3, 1);
  user_submits(f, RUN, 1, 1);
  user_submits(f, RUN2, 1, 0);
  run_begins(f, RUN, (const uint64_t[]){W1}, 1);
  run_begins(f, RUN2, (const uint64_t[]){W2, W3}, 2);
  f->now_ms += 1000;
  user_sets(f, RUN2, "workers.weight=0.1");
  user_sets(f, RUN, "workers.max=null");
  core_ticks(f);
  assert_string_equal(f->told[W2].unload, "");
  f->now_ms += 1001;
  core_ticks(f);
  assert_string_equal(f->told[W2].load, RUN);
}

static void a_higher_priority_has_its_minimum_at_once_and_gives_it_back(void **state) {
  struct core_fixture *f = *state;
  two_workers_join(f);
  user_submits(f, RUN, 1, 0);
  run_begins(f, RUN, (const uint64_t[]){W1, W2}, 2);
  f->priority = 1;
  user_submits(f, RUN2, 2, 0);
  run_begins(f, RUN2, (const uint64_t[]){W1, W2}, 2);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_string_equal(info_of_run(f, RUN).message, "waiting for workers: 0 of 1; mlp-bbbbbb has 2");
  user_cancels(f, RUN2);
  assert_string_equal(f->told[W1].load, RUN);
  worker_loads(f, W1, RUN);
  assert_int_equal(f->told[W1].end - f->told[W1].begin, MICROBATCHES);
  user_submits(f, RUN3, 2, 0); /* not before RUN has completed a step */
  assert_string_equal(f->told[W1].load, RUN);
  assert_state(f, RUN3, WEIR__RUN_STATE__QUEUED);
  assert_string_equal(info_of_run(f, RUN3).message,
                      "waiting for workers: 1 of 2; mlp-aaaaaa is to give up 1");
  reports_step(f, S1, RUN, 0);
  run_begins(f, RUN3, (const uint64_t[]){W1, W2}, 2);
}

static void a_gang_is_met_while_those_behind_it_use_what_is_there(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 2, 0);
  user_submits(f, RUN2, 1, 0);
  assert_string_equal(info_of_run(f, RUN).message, "waiting for workers: 1 of 2; mlp-bbbbbb has 1");
  run_begins(f, RUN2, (const uint64_t[]){W1}, 1);
  worker_joins(f, W2, 1);
  run_begins(f, RUN, (const uint64_t[]){W1, W2}, 2);
  assert_state(f, RUN2, WEIR__RUN_STATE__RUNNING);
}

static void runs_take_workers_in_the_order_of_submission(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 1);
  user_submits(f, RUN2, 1, 0);
  assert_string_equal(f->told[W1].load, RUN);
  assert_state(f, RUN2, WEIR__RUN_STATE__QUEUED);
  worker_joins(f, W2, 1);
  assert_string_equal(f->told[W2].load, RUN2); /* the first has its most */
  user_cancels(f, RUN);
  assert_string_equal(f->told[W1].load, RUN2);
}

static void a_run_that_needs_many_is_not_starved_by_those_behind_it(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  user_submits(f, RUN, 2, 0);
  user_submits(f, RUN2, 1, 0);
  worker_joins(f, W1, 1);
  assert_string_equal(f->told[W1].load, RUN2);
  worker_joins(f, W2, 1);
  assert_string_equal(f->told[W1].load, RUN);
  assert_string_equal(f->told[W2].load, RUN);
  assert_state(f, RUN2, WEIR__RUN_STATE__QUEUED); /* it had not begun */
}

static void a_run_that_was_rolled_back_may_give_up_workers_after_its_next_step(void **state) {
  struct core_fixture *f = *state;
  two_workers_join(f);
  user_submits(f, RUN, 1, 0);
  run_begins(f, RUN, (const uint64_t[]){W1, W2}, 2);
  reports_steps(f, S1, RUN, 0, STEPS - 1);
  user_submits(f, RUN2, 1, 1); /* it takes one */
  user_cancels(f, RUN2);
  worker_loads(f, W1, RUN);
  member_leaves(f, S1);
  server_joins(f, S2);
  time_passes(f, GRACE_MS + 200); /* back to the start */
  f->incarnation = 1;
  server_loads(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(info_of_run(f, RUN).step, 0);
  reports_step(f, S2, RUN, 0);
  f->priority = 1;
  user_submits(f, RUN3, 1, 1);
  assert_true(strcmp(f->told[W1].load, RUN3) == 0 || strcmp(f->told[W2].load, RUN3) == 0);
}

static void a_worker_that_drains_has_no_work_under_another_coordinator_either(void **state) {
  struct core_fixture *f = *state;
  two_workers_join(f);
  user_submits(f, RUN, 1, 0);
  run_begins(f, RUN, (const uint64_t[]){W1, W2}, 2);
  user_drains(f, "worker-9"); /* there is none */
  user_drains(f, f->told[W2].id);
  assert_int_equal(f->told[W2].drains, 1);
  assert_string_equal(f->told[W2].unload, RUN);
  assert_int_equal(f->told[W1].end - f->told[W1].begin, MICROBATCHES);
  assert_string_equal(worker_row(f, W2).state, "draining");
  member_leaves(f, W2);
  worker_joins_again(f, W2, W3, RUN); /* it had not let go of it yet */
  assert_string_equal(f->told[W3].load, "");
  assert_string_equal(f->told[W3].unload, RUN);
  assert_string_equal(worker_row(f, W3).state, "draining");
  user_drains(f, f->told[W1].id);
  assert_string_equal(info_of_run(f, RUN).message, "waiting for workers: 0 of 1");
  worker_joins(f, W3 + 1, 1);
  assert_string_equal(f->told[W3 + 1].load, RUN);
}

static void workers_have_shares_in_the_order_in_which_they_joined_the_cluster(void **state) {
  struct core_fixture *f = *state;
  two_workers_join(f);
  user_submits(f, RUN, 1, 1);
  user_submits(f, RUN2, 1, 0);
  run_begins(f, RUN, (const uint64_t[]){W1}, 1);
  run_begins(f, RUN2, (const uint64_t[]){W2}, 1);
  user_cancels(f, RUN);
  worker_loads(f, W1, RUN2); /* it had joined before the other one */
  assert_int_equal(f->told[W1].begin, 0);
  assert_int_equal(f->told[W2].begin, MICROBATCHES / 2);
  assert_int_equal(f->told[W2].end, MICROBATCHES);
}

/* Two runs with a worker each, both of which lose their links. */
static void two_runs_lose_their_links(struct core_fixture *f) {
  two_workers_join(f);
  user_submits(f, RUN, 1, 1);
  user_submits(f, RUN2, 1, 1);
  run_begins(f, RUN, (const uint64_t[]){W1}, 1);
  run_begins(f, RUN2, (const uint64_t[]){W2}, 1);
  member_leaves(f, W1);
  member_leaves(f, W2);
}

static void a_worker_that_comes_back_stays_with_its_run_for_a_while(void **state) {
  struct core_fixture *f = *state;
  two_runs_lose_their_links(f);
  worker_joins_again(f, W2, W2 + AGAIN, RUN2);
  worker_loads(f, W2 + AGAIN, RUN2);
  time_passes(f, 1900);
  assert_int_equal(f->told[W2 + AGAIN].loads, 1);
  worker_joins_again(f, W1, W1 + AGAIN, RUN);
  worker_loads(f, W1 + AGAIN, RUN);
  time_passes(f, 1000);
  assert_string_equal(worker_row(f, W1 + AGAIN).run, RUN);
  assert_string_equal(worker_row(f, W2 + AGAIN).run, RUN2);
  assert_int_equal(f->told[W1 + AGAIN].loads + f->told[W2 + AGAIN].loads, 2);
}

static void a_worker_that_was_lent_meanwhile_goes_back_to_its_run(void **state) {
  struct core_fixture *f = *state;
  two_runs_lose_their_links(f);
  worker_joins_again(f, W2, W2 + AGAIN, RUN2);
  time_passes(f, 2100);
  assert_string_equal(f->told[W2 + AGAIN].load, RUN); /* the first in line */
  worker_loads(f, W2 + AGAIN, RUN);
  worker_joins_again(f, W1, W1 + AGAIN, RUN);
  assert_string_equal(f->told[W1 + AGAIN].load, RUN);
  assert_string_equal(f->told[W2 + AGAIN].load, RUN2);
  worker_loads(f, W1 + AGAIN, RUN);
  worker_loads(f, W2 + AGAIN, RUN2);
  time_passes(f, 3000);
  assert_int_equal(f->told[W1 + AGAIN].loads, 1);
  assert_int_equal(f->told[W2 + AGAIN].loads, 3);
}

static void a_higher_priority_takes_a_worker_that_comes_back(void **state) {
  struct core_fixture *f = *state;
  two_runs_lose_their_links(f);
  user_sets(f, RUN, "priority=1");
  worker_joins_again(f, W2, W2 + AGAIN, RUN2);
  assert_string_equal(f->told[W2 + AGAIN].load, RUN);
}

static void worker_joins_with_resting(struct core_fixture *f, uint64_t key, const char *const *runs, int n) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  Weir__HostedRun hosted[16], *list[16];
  for (int i = 0; i < n; i++) {
    list[i] = &hosted[i];
    weir__hosted_run__init(list[i]);
    hosted[i].run = (char *)runs[i];
    hosted[i].rests = true;
  }
  hello.role = WEIR__ROLE__WORKER;
  hello.host = "host";
  hello.pid = (uint32_t)key;
  hello.executors = 1;
  hello.fingerprint = "build-1";
  hello.runs = list;
  hello.n_runs = (size_t)n;
  says_hello(f, key, &hello);
}

static void a_free_worker_goes_to_the_run_that_it_has_loaded(void **state) {
  struct core_fixture *f = *state;
  user_submits(f, RUN, 1, 1);
  user_submits(f, RUN2, 1, 1);
  user_submits(f, RUN3, 1, 1);
  worker_joins_with_resting(f, W1, (const char *[]){RUN2}, 1);
  worker_joins_with_resting(f, W2, (const char *[]){RUN3, RUN}, 2);
  worker_joins(f, W3, 1);
  assert_string_equal(f->told[W1].unload, ""); /* it may keep them */
  server_joins(f, S1);
  assert_string_equal(f->told[W1].load, RUN2);
  assert_string_equal(f->told[W2].load, RUN);
  assert_string_equal(f->told[W3].load, RUN3);
}

static void what_a_hello_says_of_resting_runs_need_not_be_true(void **state) {
  static const char *const runs[] = {"", RUN2, "no-such-run", RUN2, RUN, RUN3, "a", RUN, RUN3, RUN2};
  struct core_fixture *f = *state;
  user_submits(f, RUN, 1, 1);
  user_submits(f, RUN2, 1, 1);
  user_submits(f, RUN3, 1, 1);
  worker_joins_with_resting(f, W1, runs, sizeof runs / sizeof *runs);
  user_cancels(f, RUN); /* and it is forgotten altogether */
  core_step(f, &(struct coordinator_event){.kind = EVENT_RUN_FORGOTTEN, .run = RUN});
  server_joins(f, S1);
  assert_string_equal(f->told[W1].load, RUN2);
  worker_loads(f, W1, RUN2); /* it had to load it */
  server_loads(f, S1, RUN2);
  assert_state(f, RUN2, WEIR__RUN_STATE__RUNNING);
}

static void two_runs_beside_a_held_one_never_wait_for_it(void **state) {
  struct core_fixture *f = *state;
  f->hold = 4;
  core_run_begin(f, 1);
  reports_steps(f, S1, RUN, 0, 4);
  reports_held(f, S1, RUN, 4), reports_held(f, S2, RUN, 4);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  f->hold = 0;
  user_submits(f, RUN2, 1, 1);
  user_submits(f, RUN3, 1, 1);
  assert_string_equal(f->told[W1].load, RUN2);
  assert_string_equal(f->told[W2].load, RUN3);
  worker_loads(f, W1, RUN2), worker_loads(f, W2, RUN3);
  for (uint64_t server = S1; server <= S2; server++)
    server_loads(f, server, RUN2), server_loads(f, server, RUN3);
  for (uint64_t step = 0; step < STEPS - 1; step++) { /* longer than any turn */
    time_passes(f, 3000);
    assert_string_equal(info_of_run(f, RUN2).message, "");
    assert_string_equal(info_of_run(f, RUN3).message, "");
    assert_int_equal(info_of_run(f, RUN2).workers + info_of_run(f, RUN3).workers, 2);
    for (uint64_t member = S1; member <= W2; member++)
      member_beats(f, member);
    reports_step(f, S1, RUN2, step), reports_step(f, S1, RUN3, step);
  }
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_run_beside_another_has_half_of_the_workers),
      TEST(even_shares_wait_until_workers_have_served_for_a_while),
      TEST(a_higher_priority_has_its_minimum_at_once_and_gives_it_back),
      TEST(a_gang_is_met_while_those_behind_it_use_what_is_there),
      TEST(runs_take_workers_in_the_order_of_submission),
      TEST(a_run_that_needs_many_is_not_starved_by_those_behind_it),
      TEST(a_run_that_was_rolled_back_may_give_up_workers_after_its_next_step),
      TEST(workers_have_shares_in_the_order_in_which_they_joined_the_cluster),
      TEST(a_worker_that_comes_back_stays_with_its_run_for_a_while),
      TEST(a_worker_that_was_lent_meanwhile_goes_back_to_its_run),
      TEST(a_higher_priority_takes_a_worker_that_comes_back),
      TEST(a_free_worker_goes_to_the_run_that_it_has_loaded),
      TEST(what_a_hello_says_of_resting_runs_need_not_be_true),
      TEST(a_worker_that_drains_has_no_work_under_another_coordinator_either),
      TEST(two_runs_beside_a_held_one_never_wait_for_it),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
