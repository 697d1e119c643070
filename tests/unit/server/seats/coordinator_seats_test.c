/* A worker computes several runs at the same time: whom it has a seat for, and what each is dealt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_reissue.h"
#include "tests/support/coordinator/core_run.h"
#include "tests/support/coordinator/core_succession.h"

#define A "mlp-a"
#define B "mlp-b"
#define C "mlp-c"
#define D "mlp-d"
#define E "mlp-e"

enum { W3 = W2 + 1, AGAIN = 10, EXECUTORS = 4 };

static struct told_seat seat_of(const struct core_fixture *f, uint64_t worker, const char *run) {
  return told_seat_of(f->told[worker].seats, run);
}

static void assert_dealt(const struct core_fixture *f, uint64_t worker, const char *run, uint32_t executors) {
  struct told_seat seat = seat_of(f, worker, run);
  if (!seat.is_seated || seat.executors != executors)
    fail_msg("%s is %s, with %u executors of worker %d, not %u", run,
             seat.is_seated ? "seated" : "not seated", seat.executors, (int)worker, executors);
}

static void assert_seated(const struct core_fixture *f, uint64_t worker, const char *run, bool is_seated) {
  if (seat_of(f, worker, run).is_seated != is_seated)
    fail_msg("%s is %sseated on worker %d", run, is_seated ? "not " : "", (int)worker);
}

static void begin(struct core_fixture *f, int n_workers, uint32_t executors) {
  server_joins(f, S1);
  for (int i = 0; i < n_workers; i++)
    worker_joins(f, W1 + (uint64_t)i, executors);
}

/* The worker, which has a seat for it, and the server have loaded the run. */
static void loads(struct core_fixture *f, uint64_t worker, const char *run) {
  assert_seated(f, worker, run, true);
  worker_loads(f, worker, run);
  server_loads(f, S1, run);
}

static void submits_and_loads(struct core_fixture *f, uint64_t worker, const char *run) {
  user_submits(f, run, 1, 0);
  loads(f, worker, run);
}

/* A and B on one worker of four executors. */
static void two_runs_begin(struct core_fixture *f) {
  begin(f, 1, EXECUTORS);
  submits_and_loads(f, W1, A);
  submits_and_loads(f, W1, B);
  assert_state(f, A, WEIR__RUN_STATE__RUNNING);
  assert_state(f, B, WEIR__RUN_STATE__RUNNING);
}

static void two_runs_have_two_of_four_executors_each(void **state) {
  struct core_fixture *f = *state;
  begin(f, 1, EXECUTORS);
  submits_and_loads(f, W1, A);
  assert_dealt(f, W1, A, 0); /* all */
  user_submits(f, B, 1, 0);
  assert_dealt(f, W1, A, 0); /* while B loads */
  loads(f, W1, B);
  assert_dealt(f, W1, A, 2);
  assert_dealt(f, W1, B, 2);
  assert_int_equal(seat_of(f, W1, A).loads, 1);
  assert_int_equal(seat_of(f, W1, A).end - seat_of(f, W1, A).begin, MICROBATCHES);
  assert_int_equal(seat_of(f, W1, B).end - seat_of(f, W1, B).begin, MICROBATCHES);
  assert_string_equal(info_of_run(f, A).message, "");
  assert_int_equal(info_of_run(f, B).executors, 2);
  user_cancels(f, A);
  assert_dealt(f, W1, B, 0);
  assert_int_equal(seat_of(f, W1, B).loads, 1);
}

static void weights_of_one_and_three_have_one_and_three_executors(void **state) {
  struct core_fixture *f = *state;
  two_runs_begin(f);
  user_sets(f, B, "workers.weight=3");
  time_passes(f, 2500);
  assert_dealt(f, W1, A, 1);
  assert_dealt(f, W1, B, 3);
}

static void other_weights_change_nothing_within_two_seconds(void **state) {
  struct core_fixture *f = *state;
  two_runs_begin(f);
  user_sets(f, B, "workers.weight=3");
  time_passes(f, 1000);
  assert_dealt(f, W1, B, 2);
}

static void a_run_of_one_microbatch_leaves_three_executors(void **state) {
  struct core_fixture *f = *state;
  begin(f, 1, EXECUTORS);
  f->microbatches = 1;
  submits_and_loads(f, W1, A);
  f->microbatches = 0;
  user_submits(f, B, 1, 0);
  worker_loads(f, W1, B);
  assert_dealt(f, W1, A, 1);
  server_loads(f, S1, B);
  assert_dealt(f, W1, B, 3);
}

static void a_fifth_run_waits_for_its_turn(void **state) {
  static const char *const runs[] = {A, B, C, D};
  struct core_fixture *f = *state;
  begin(f, 1, 8);
  for (int i = 0; i < 4; i++)
    submits_and_loads(f, W1, runs[i]);
  for (int i = 0; i < 4; i++)
    assert_dealt(f, W1, runs[i], 2);
  user_submits(f, E, 1, 0);
  assert_int_equal(told_seats_count(f->told[W1].seats), 4);
  assert_state(f, E, WEIR__RUN_STATE__QUEUED);
  user_cancels(f, C);
  assert_seated(f, W1, E, true);
}

static void a_worker_has_no_more_seats_than_executors(void **state) {
  struct core_fixture *f = *state;
  begin(f, 1, 2);
  submits_and_loads(f, W1, A);
  submits_and_loads(f, W1, B);
  user_submits(f, C, 1, 0);
  assert_seated(f, W1, C, false);
  assert_state(f, C, WEIR__RUN_STATE__QUEUED);
}

/* A, B and C compute for two minutes, and complete a step each tenth of a second. had: executors, summed up
   over tenths of a second. */
static void three_runs_compute(struct core_fixture *f, int n_workers, uint32_t executors, uint64_t had[3]) {
  static const char *const runs[] = {A, B, C};
  uint64_t steps[3] = {0};
  f->steps = 100000;
  begin(f, n_workers, executors);
  for (int i = 0; i < 3; i++)
    user_submits(f, runs[i], 1, 0);
  for (int t = 0; t < 1200; t++) {
    for (int i = 0; i < 3; i++) {
      bool computes = false;
      for (uint64_t worker = W1; worker < W1 + (uint64_t)n_workers; worker++) {
        if (!seat_of(f, worker, runs[i]).is_seated)
          continue;
        worker_loads(f, worker, runs[i]); /* ignored, where it has */
        server_loads(f, S1, runs[i]);
        computes |= seat_of(f, worker, runs[i]).end > 0;
      }
      had[i] += info_of_run(f, runs[i]).executors;
      if (computes)
        reports_step(f, S1, runs[i], steps[i]++);
    }
    for (uint64_t worker = W1; worker < W1 + (uint64_t)n_workers; worker++)
      member_beats(f, worker);
    member_beats(f, S1);
    time_passes(f, 100);
  }
}

static void assert_within_a_tenth(uint64_t had, uint64_t expected) {
  if (10 * had < 9 * expected || 10 * had > 11 * expected)
    fail_msg("it had %d executors for a tenth of a second, not %d", (int)had, (int)expected);
}

/* The one whose turn is over makes place for the one that waits, the other one stays. */
static void where_seats_are_taken_runs_take_turns(void **state) {
  struct core_fixture *f = *state;
  uint64_t had[3] = {0};
  three_runs_compute(f, 1, 2, had);
  for (int i = 0; i < 3; i++)
    assert_within_a_tenth(had[i], 1200 * 2 / 3);
  assert_non_null(strstr(info_of_run(f, A).message, "takes turns with 2 other runs"));
}

static void runs_that_all_have_seats_stay_where_they_are(void **state) {
  struct core_fixture *f = *state;
  uint64_t had[3] = {0};
  three_runs_compute(f, 2, EXECUTORS, had);
  assert_within_a_tenth(had[0] + had[1] + had[2], 1200 * 2 * EXECUTORS);
  for (int i = 0; i < 3; i++)
    assert_true(had[i] > 1100 * EXECUTORS / 2);
  assert_true(f->told[W1].loads + f->told[W2].loads <= 4);
  assert_string_equal(info_of_run(f, A).message, "");
}

static void a_run_goes_to_the_worker_with_the_fewest_seats(void **state) {
  struct core_fixture *f = *state;
  begin(f, 2, EXECUTORS);
  submits_and_loads(f, W1, A);
  loads(f, W2, A);
  user_submits(f, B, 1, 0);
  assert_int_equal(told_seats_count(f->told[W1].seats), 1); /* whole workers first */
  assert_int_equal(told_seats_count(f->told[W2].seats), 1);
  loads(f, seat_of(f, W1, B).is_seated ? W1 : W2, B);
  submits_and_loads(f, W1, C);
  submits_and_loads(f, W2, D);
  assert_dealt(f, W1, C, 2);
  assert_dealt(f, W2, D, 2);
}

static void a_run_beside_moves_to_a_worker_that_joins(void **state) {
  struct core_fixture *f = *state;
  two_runs_begin(f);
  worker_joins(f, W2, EXECUTORS);
  assert_seated(f, W1, B, true); /* it goes on while the other loads */
  assert_seated(f, W2, B, true);
  reports_step(f, S1, B, 0);
  worker_loads(f, W2, B);
  core_ticks(f);
  assert_seated(f, W1, B, false);
  assert_dealt(f, W1, A, 0);
  assert_dealt(f, W2, B, 0);
  assert_int_equal(seat_of(f, W2, B).end - seat_of(f, W2, B).begin, MICROBATCHES);
}

static void a_higher_priority_takes_the_worker_and_gives_it_back(void **state) {
  struct core_fixture *f = *state;
  two_runs_begin(f);
  reports_step(f, S1, A, 0);
  reports_step(f, S1, B, 0);
  f->priority = 5;
  user_submits(f, C, 1, 0);
  time_passes(f, 2000);
  assert_int_equal(told_seats_count(f->told[W1].seats), 1);
  assert_seated(f, W1, C, true);
  loads(f, W1, C);
  assert_dealt(f, W1, C, 0);
  user_cancels(f, C);
  assert_seated(f, W1, A, true);
  assert_seated(f, W1, B, true);
  assert_state(f, A, WEIR__RUN_STATE__RUNNING);
}

static void a_higher_priority_leaves_what_it_has_no_use_for(void **state) {
  struct core_fixture *f = *state;
  two_runs_begin(f);
  f->priority = 5;
  f->microbatches = 2;
  user_submits(f, C, 1, 0);
  worker_loads(f, W1, C);
  assert_dealt(f, W1, A, 1);
  assert_dealt(f, W1, B, 1);
  assert_int_equal(seat_of(f, W1, A).unloads, 0);
  server_loads(f, S1, C);
  assert_dealt(f, W1, C, 2);
}

static void a_worker_that_leaves_takes_both_seats(void **state) {
  struct core_fixture *f = *state;
  two_runs_begin(f);
  member_leaves(f, W1);
  worker_joins(f, W2, EXECUTORS);
  assert_seated(f, W2, A, true);
  assert_seated(f, W2, B, true);
  loads(f, W2, A);
  loads(f, W2, B);
  assert_dealt(f, W2, A, 2);
  assert_dealt(f, W2, B, 2);
}

static void a_worker_that_drains_gives_up_both_seats_and_gets_no_other(void **state) {
  struct core_fixture *f = *state;
  two_runs_begin(f);
  worker_joins(f, W2, EXECUTORS);
  worker_loads(f, W2, B);
  user_drains(f, "worker-1");
  assert_int_equal(told_seats_count(f->told[W1].seats), 0);
  assert_string_equal(worker_row(f, W1).state, "draining");
  assert_seated(f, W2, A, true);
  assert_seated(f, W2, B, true);
  user_submits(f, C, 1, 0);
  assert_int_equal(told_seats_count(f->told[W1].seats), 0);
}

static void a_run_that_has_no_memory_beside_others_waits_for_its_turn(void **state) {
  Weir__RunRefused refused = WEIR__RUN_REFUSED__INIT;
  struct core_fixture *f = *state;
  f->steps = 1000;
  begin(f, 1, EXECUTORS);
  submits_and_loads(f, W1, A);
  user_submits(f, B, 1, 0);
  assert_seated(f, W1, B, true);
  refused.run = (char *)B;
  refused.message = (char *)"128 MiB are needed and 64 are free";
  refused.no_memory_beside = true;
  member_says(f, W1, WEIR__MEMBER_MESSAGE__BODY_REFUSED, &refused);
  time_passes(f, 1000);
  assert_seated(f, W1, B, false);
  assert_int_equal(seat_of(f, W1, B).loads, 1); /* it is not asked for the same again */
  assert_dealt(f, W1, A, 0);
  for (uint64_t at = 0; !seat_of(f, W1, B).is_seated; at++) {
    assert_true(at < 300);
    member_beats(f, W1);
    reports_step(f, S1, A, at);
    time_passes(f, 100);
  }
  assert_seated(f, W1, A, false); /* it has the worker alone */
  loads(f, W1, B);
  user_submits(f, C, 1, 0);
  assert_seated(f, W1, C, false); /* which it then has to itself */
}

static void a_run_of_stages_is_put_beside_no_other_nor_another_beside_it(void **state) {
  struct core_fixture *f = *state;
  begin(f, 1, EXECUTORS);
  f->stages = 2;
  submits_and_loads(f, W1, A);
  f->stages = 0;
  user_submits(f, B, 1, 0);
  assert_seated(f, W1, B, false);
  user_cancels(f, A);
  loads(f, W1, B);
  f->stages = 2;
  user_submits(f, C, 1, 0);
  assert_seated(f, W1, C, false);
}

/* Of four executors. */
static void joins_on(struct core_fixture *f, uint64_t key, const char *host, const char *device) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__WORKER;
  hello.host = hello.shm_host = (char *)host;
  hello.pid = (uint32_t)key;
  hello.device = (char *)device;
  hello.executors = EXECUTORS;
  hello.fingerprint = "build-1";
  says_hello(f, key, &hello);
}

static void a_gpu_has_one_seat(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  joins_on(f, W1, "host", "cuda:0");
  submits_and_loads(f, W1, A);
  user_submits(f, B, 1, 0);
  assert_seated(f, W1, B, false);
  assert_state(f, B, WEIR__RUN_STATE__QUEUED);
}

static void workers_in_a_group_have_no_run_beside_it(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  joins_on(f, W1, "host", "cpu");
  joins_on(f, W2, "host", "cpu");
  f->collective = "shm";
  user_submits(f, A, 2, 0);
  f->collective = NULL;
  loads(f, W1, A);
  loads(f, W2, A);
  assert_int_not_equal(f->told[W1].group, 0);
  user_submits(f, B, 1, 0);
  assert_seated(f, W1, B, false);
  assert_seated(f, W2, B, false);
}

static void a_worker_in_quarantine_loses_both_seats(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  joins_on(f, W1, "a", "cpu");
  joins_on(f, W2, "b", "cpu");
  user_submits(f, RUN, 2, 2);
  loads(f, W1, RUN);
  loads(f, W2, RUN);
  submits_and_loads(f, W1, B);
  server_judges(
      f, &(struct finding){.block = 1, .changed = {{W1, 0, 1}}, .n_changed = 1, .by = UINT64_C(1) << W2});
  assert_string_equal(worker_row(f, W1).state, "quarantined");
  assert_int_equal(told_seats_count(f->told[W1].seats), 0);
  f->incarnation = 1; /* both have rolled back */
  server_loads(f, S1, RUN);
  loads(f, W2, B);
  assert_dealt(f, W2, RUN, 2);
  assert_dealt(f, W2, B, 2);
}

/* Names both runs, with what it had of them. */
static void joins_again_with_both(struct core_fixture *f, uint64_t key, uint64_t from, Weir__Role role) {
  Weir__HostedRun hosted[2] = {WEIR__HOSTED_RUN__INIT, WEIR__HOSTED_RUN__INIT};
  Weir__HostedRun *list[2] = {&hosted[0], &hosted[1]};
  Weir__Hello hello = WEIR__HELLO__INIT;
  hosted[0].run = (char *)A;
  hosted[1].run = (char *)B;
  hello.role = role;
  hello.host = "host";
  hello.address = role == WEIR__ROLE__SERVER ? "host:1" : "";
  hello.device = "cpu";
  hello.id = f->told[from].id;
  hello.pid = (uint32_t)from;
  hello.executors = EXECUTORS;
  hello.fingerprint = "build-1";
  hello.runs = list;
  hello.n_runs = 2;
  says_hello(f, key, &hello);
}

static void a_worker_that_comes_back_keeps_both_runs(void **state) {
  struct core_fixture *f = *state;
  two_runs_begin(f);
  member_leaves(f, W1);
  joins_again_with_both(f, AGAIN, W1, WEIR__ROLE__WORKER);
  assert_int_equal(seat_of(f, AGAIN, A).loads, 1);
  assert_int_equal(seat_of(f, AGAIN, B).loads, 1);
  assert_string_equal(f->told[AGAIN].unload, "");
  worker_loads(f, AGAIN, A);
  worker_loads(f, AGAIN, B);
  assert_dealt(f, AGAIN, A, 2);
  assert_dealt(f, AGAIN, B, 2);
}

static void a_worker_keeps_both_runs_under_another_coordinator(void **state) {
  struct core_fixture *f = *state;
  struct coordinator_event event = {.kind = EVENT_RUN_RESTORED};
  Weir__RunRecord *first, *second;
  two_runs_begin(f);
  reports_step(f, S1, A, 0);
  reports_step(f, S1, B, 0);
  first = record_of_run(f, A);
  second = record_of_run(f, B);
  coordinator_is_succeeded(f, A, first);
  event.restored.record = second;
  core_step(f, &event);
  joins_again_with_both(f, AGAIN, W1, WEIR__ROLE__WORKER);
  joins_again_with_both(f, AGAIN + 1, S1, WEIR__ROLE__SERVER);
  message_free(second);
  assert_string_equal(f->told[AGAIN].unload, "");
  worker_loads(f, AGAIN, A);
  worker_loads(f, AGAIN, B);
  assert_dealt(f, AGAIN, A, 2);
  assert_dealt(f, AGAIN, B, 2);
  assert_int_equal(info_of_run(f, A).incarnation + info_of_run(f, B).incarnation, 0);
}

static void both_seats_are_told_to_people(void **state) {
  struct core_fixture *f = *state;
  Weir__ListWorkersReply reply;
  const Weir__WorkerInfo *row;
  struct arena arena;
  two_runs_begin(f);
  arena_init(&arena);
  coordinator_list_workers(f->coordinator, &viewer_of_all, f->now_ms, &arena, &reply);
  row = reply.workers[0];
  assert_string_equal(row->run, A); /* as for workers of one run */
  assert_int_equal(row->n_seats, 2);
  assert_string_equal(row->seats[0]->run, A);
  assert_string_equal(row->seats[1]->run, B);
  assert_string_equal(row->seats[1]->state, "ready");
  assert_int_equal(row->seats[0]->executors + row->seats[1]->executors, EXECUTORS);
  arena_fini(&arena);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(two_runs_have_two_of_four_executors_each),
      TEST(weights_of_one_and_three_have_one_and_three_executors),
      TEST(other_weights_change_nothing_within_two_seconds),
      TEST(a_run_of_one_microbatch_leaves_three_executors),
      TEST(a_fifth_run_waits_for_its_turn),
      TEST(a_worker_has_no_more_seats_than_executors),
      TEST(where_seats_are_taken_runs_take_turns),
      TEST(runs_that_all_have_seats_stay_where_they_are),
      TEST(a_run_goes_to_the_worker_with_the_fewest_seats),
      TEST(a_run_beside_moves_to_a_worker_that_joins),
      TEST(a_higher_priority_takes_the_worker_and_gives_it_back),
      TEST(a_higher_priority_leaves_what_it_has_no_use_for),
      TEST(a_worker_that_leaves_takes_both_seats),
      TEST(a_worker_that_drains_gives_up_both_seats_and_gets_no_other),
      TEST(a_run_that_has_no_memory_beside_others_waits_for_its_turn),
      TEST(a_run_of_stages_is_put_beside_no_other_nor_another_beside_it),
      TEST(a_gpu_has_one_seat),
      TEST(workers_in_a_group_have_no_run_beside_it),
      TEST(a_worker_that_comes_back_keeps_both_runs),
      TEST(a_worker_keeps_both_runs_under_another_coordinator),
      TEST(a_worker_in_quarantine_loses_both_seats),
      TEST(both_seats_are_told_to_people),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
