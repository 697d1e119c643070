/* A server of which the coordinator hears nothing, but which the workers of the run reach. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/support/coordinator/core_run.h"
#include "tests/support/coordinator/core_succession.h"

enum { S3 = 5, W3, AGAIN = 20, AFTER_MS = 1000, KEPT_MS = 60000, WEIGH_MS = 3000 };

static void beats_with(struct core_fixture *f, uint64_t key, const char *run, char **servers, size_t n) {
  Weir__RunCounters counters = WEIR__RUN_COUNTERS__INIT;
  counters.run = (char *)run;
  counters.incarnation = f->incarnation;
  counters.reached = servers;
  counters.n_reached = n;
  member_tells(f, key, &counters);
}

/* The worker reaches server-2, or no server. */
static void beats(struct core_fixture *f, uint64_t key, bool reaches) {
  char *servers[] = {"server-2"};
  beats_with(f, key, RUN, servers, reaches);
}

/* Everybody but server S2 beats each second; worker W1 reaches server-2, and perhaps W2. */
static void lives(struct core_fixture *f, uint64_t ms, bool first, bool second) {
  for (uint64_t end_ms = f->now_ms + ms; f->now_ms < end_ms;) {
    time_passes(f, end_ms - f->now_ms < 1000 ? end_ms - f->now_ms : 1000);
    member_beats(f, S1);
    if (f->told[S3].is_member && !f->told[S3].is_closed)
      member_beats(f, S3);
    beats(f, W1, first);
    beats(f, W2, second);
  }
}

/* Server S2 is cut off from the coordinator; a checkpoint of step 4 is there. */
static struct core_fixture *begin(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 5);
  core_run_checkpoint(f);
  lives(f, 1000, true, true);
  member_leaves(f, S2);
  return f;
}

static void assert_goes_on(struct core_fixture *f, bool does) {
  assert_int_equal(info_of_run(f, RUN).incarnation, !does);
  assert_state(f, RUN, does ? WEIR__RUN_STATE__RUNNING : WEIR__RUN_STATE__LOADING);
}

static void a_server_that_workers_reach_is_kept_for_a_minute(void **state) {
  struct core_fixture *f = begin(state);
  lives(f, GRACE_MS + 1000, true, false); /* one is enough */
  assert_goes_on(f, true);
  assert_string_equal(info_of_run(f, RUN).message,
                      "server-2 (host:2) was lost: connection reset; server-2 (host:2) is not heard of, but "
                      "workers reach it: training goes on for a minute at most, and checkpoints wait");
  assert_int_equal(info_of_run(f, RUN).servers, 1);
  lives(f, KEPT_MS - GRACE_MS - 1000 - 100, true, true);
  assert_goes_on(f, true);
  lives(f, 100, true, true);
  assert_goes_on(f, false);
  assert_int_equal(f->told[S1].load_step, 4);
}

static void it_is_kept_with_its_part_when_it_is_heard_of_again(void **state) {
  struct core_fixture *f = begin(state);
  uint64_t writes = f->told[S1].writes;
  lives(f, 30000, true, true);
  assert_int_equal(f->told[S1].writes, writes); /* checkpoints wait */
  server_joins_again(f, S2, AGAIN, RUN, 7);
  assert_string_equal(f->told[AGAIN].keep, RUN);
  assert_string_equal(info_of_run(f, RUN).message, "");
  assert_goes_on(f, true);
  assert_int_equal(f->told[AGAIN].write_step, 8);
  lives(f, 1000, true, true);
  member_leaves(f, AGAIN); /* the next loss has a grace and confirmations of its own */
  assert_string_equal(info_of_run(f, RUN).message, "server-2 (host:2) was lost: connection reset");
  lives(f, GRACE_MS - 100, false, false);
  assert_goes_on(f, true);
  lives(f, 100, false, false);
  assert_goes_on(f, false);
}

/* It was killed: what a worker says at once is of before, and then its connections are reset, too. */
static void what_was_said_at_the_time_of_the_loss_does_not_count(void **state) {
  struct core_fixture *f = begin(state);
  beats(f, W1, true);
  time_passes(f, AFTER_MS - 1);
  beats(f, W1, true);
  beats(f, W2, true);
  lives(f, GRACE_MS - AFTER_MS, false, false);
  assert_goes_on(f, true);
  lives(f, 1, false, false);
  assert_goes_on(f, false);
}

static void a_server_that_workers_reach_no_more_is_given_up(void **state) {
  struct core_fixture *f = begin(state);
  lives(f, 20000, true, true);
  lives(f, GRACE_MS - 100, false, false); /* counted from the last time that one did */
  assert_goes_on(f, true);
  lives(f, 100, false, false);
  assert_goes_on(f, false);
}

static void another_server_that_is_lost_meanwhile_has_a_grace_of_its_own(void **state) {
  struct core_fixture *f = begin(state);
  lives(f, 20000, true, true);
  member_leaves(f, S1);
  for (int i = 0; i < 2; i++) {
    time_passes(f, 1000);
    beats(f, W1, true), beats(f, W2, true);
  }
  assert_goes_on(f, true);
  server_joins_again(f, S1, AGAIN, RUN, 5);
  assert_goes_on(f, true);
  assert_string_equal(f->told[AGAIN].keep, RUN);
}

static void a_server_elsewhere_does_not_replace_it_and_one_in_its_place_does(void **state) {
  struct core_fixture *f = begin(state);
  lives(f, 10000, true, true);
  server_joins(f, S3);
  lives(f, 10000, true, true);
  assert_goes_on(f, true);
  server_replaces(f, S2, AGAIN, "host", "build-1");
  assert_goes_on(f, false);
}

static void a_worker_that_misses_it_is_cut_off_while_another_reaches_it(void **state) {
  struct core_fixture *f = begin(state);
  Weir__Unreached unreached = WEIR__UNREACHED__INIT;
  char *servers[] = {"server-2"};
  lives(f, 5000, false, true);
  assert_goes_on(f, true);
  unreached.run = (char *)RUN;
  unreached.servers = servers;
  unreached.n_servers = 1;
  unreached.message = "no answer";
  member_says(f, W1, WEIR__MEMBER_MESSAGE__BODY_UNREACHED, &unreached);
  lives(f, WEIGH_MS, false, true);
  assert_string_equal(worker_row(f, W1).state, "cut-off");
  assert_string_equal(worker_row(f, W1).message, "cannot reach server-2 (host:2): no answer");
  assert_int_equal(f->told[W2].end - f->told[W2].begin, MICROBATCHES);
  assert_goes_on(f, true);
}

static void silence_counts_only_while_the_coordinator_listens(void **state) {
  struct core_fixture *f = begin(state);
  lives(f, 10000, true, true);
  f->now_ms += 10000; /* it was frozen: no tick */
  core_ticks(f);
  assert_goes_on(f, true);
  lives(f, 5000, true, true);
  assert_goes_on(f, true);
}

static void a_successor_keeps_it_for_a_minute_too(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  coordinator_is_succeeded(f, RUN, record_of(f));
  server_joins_again(f, S1, AGAIN, RUN, 3);
  worker_joins_again(f, W1, AGAIN + 1, RUN);
  worker_loads(f, AGAIN + 1, RUN);
  for (int second = 0; second < 59; second++) {
    time_passes(f, 1000);
    member_beats(f, AGAIN);
    beats(f, AGAIN + 1, true);
  }
  assert_goes_on(f, true);
  time_passes(f, 1000);
  assert_goes_on(f, false);
}

/* The one that was killed had joined the coordinator that died, which had yet to keep that in the store. */
static void one_in_its_place_that_an_earlier_coordinator_knew_replaces_it_too(void **state) {
  struct core_fixture *f = *state;
  Weir__Hello hello = WEIR__HELLO__INIT;
  Weir__RunRecord *before;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  before = record_of(f);
  member_leaves(f, S2);
  server_replaces(f, S2, S3, "host", "build-1");
  assert_string_equal(f->told[S3].id, "server-3");
  coordinator_is_succeeded(f, RUN, before);
  server_joins_again(f, S1, AGAIN, RUN, 3);
  worker_joins_again(f, W1, AGAIN + 1, RUN);
  worker_loads(f, AGAIN + 1, RUN);
  beats(f, AGAIN + 1, true);
  assert_goes_on(f, true);
  hello.role = WEIR__ROLE__SERVER;
  hello.id = "server-3";
  hello.host = "host";
  hello.pid = S3;
  hello.address = "host:2";
  hello.fingerprint = "build-1";
  says_hello(f, AGAIN + 2, &hello);
  assert_goes_on(f, false);
  assert_int_equal(f->told[AGAIN + 2].load_servers, 2);
}

static void what_makes_no_sense_confirms_nothing(void **state) {
  struct core_fixture *f = begin(state);
  char *one[] = {"server-2"}, *none[] = {"", "%s%n"}, *many[] = {"server-2", "server-2", "server-2"};
  worker_joins(f, W3, 1); /* loads the run */
  time_passes(f, AFTER_MS);
  beats_with(f, W1, "", one, 1);
  beats_with(f, W1, "mlp-bbbbbb", one, 1);
  beats_with(f, W1, RUN, none, 2);
  beats_with(f, W1, RUN, many, 3); /* more than the run has */
  beats_with(f, W3, RUN, one, 1);
  beats_with(f, S1, RUN, one, 1); /* no worker */
  f->incarnation = 7;
  beats_with(f, W1, RUN, one, 1); /* not of this incarnation */
  f->incarnation = UINT64_MAX;
  beats_with(f, W1, RUN, one, 1);
  f->incarnation = 0;
  lives(f, GRACE_MS - AFTER_MS, false, false);
  assert_goes_on(f, false);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_server_that_workers_reach_is_kept_for_a_minute),
      TEST(it_is_kept_with_its_part_when_it_is_heard_of_again),
      TEST(what_was_said_at_the_time_of_the_loss_does_not_count),
      TEST(a_server_that_workers_reach_no_more_is_given_up),
      TEST(another_server_that_is_lost_meanwhile_has_a_grace_of_its_own),
      TEST(a_server_elsewhere_does_not_replace_it_and_one_in_its_place_does),
      TEST(a_worker_that_misses_it_is_cut_off_while_another_reaches_it),
      TEST(silence_counts_only_while_the_coordinator_listens),
      TEST(a_successor_keeps_it_for_a_minute_too),
      TEST(one_in_its_place_that_an_earlier_coordinator_knew_replaces_it_too),
      TEST(what_makes_no_sense_confirms_nothing),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1); /* heartbeats and losses are logged by the dozen */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
