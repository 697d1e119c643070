/* Workers with fewer executors than a model has stages, and the teams that the coordinator makes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/support/coordinator/core_fixture.h"

enum { S1 = 1, W1 = 3, W2, W3, W4, W5 };
static const char RUN[] = "mlp-aaaaaa";

/* n workers of so many executors, and a run in three stages. */
static void start_run(struct core_fixture *f, uint64_t n, uint32_t executors) {
  f->stages = 3;
  server_joins(f, S1);
  for (uint64_t key = W1; key < W1 + n; key++)
    worker_joins(f, key, executors);
  user_submits(f, RUN, (uint32_t)n, 0);
  for (uint64_t key = W1; key < W1 + n; key++)
    worker_loads(f, key, RUN);
  server_loads(f, S1, RUN);
}

static void assert_stages(const struct core_fixture *f, uint64_t key, uint32_t begin, uint32_t end) {
  assert_string_equal(f->told[key].load, RUN);
  assert_int_equal(f->told[key].stage_begin, begin);
  assert_int_equal(f->told[key].stage_end, end);
}

/* The members, by their stages, are one team that has all microbatches of [begin, end). */
static void assert_team(const struct core_fixture *f, const uint64_t *keys, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const struct told *told = &f->told[keys[i]];
    assert_true(told->team > 0 && told->team == f->told[keys[0]].team);
    assert_int_equal(told->place, i);
    assert_int_equal(told->view_workers, n);
    assert_int_equal(told->group, 0);
    assert_true(told->begin == f->told[keys[0]].begin && told->end == f->told[keys[0]].end);
  }
}

static void workers_of_one_executor_have_a_stage_each_and_compute_the_same_microbatches(void **state) {
  struct core_fixture *f = *state;
  start_run(f, 3, 1);
  for (uint32_t s = 0; s < 3; s++)
    assert_stages(f, W1 + s, s, s + 1);
  assert_team(f, (const uint64_t[]){W1, W2, W3}, 3);
  assert_int_equal(f->told[W1].begin, 0);
  assert_int_equal(f->told[W1].end, MICROBATCHES);
}

/* They have no key of the servers, nor do servers have one of theirs. */
static void workers_of_a_team_get_tickets_for_each_other_and_the_key_to_check_them(void **state) {
  struct core_fixture *f = *state;
  static const unsigned char none[TICKET_KEY_BYTES];
  unsigned char key[TICKET_KEY_BYTES];
  start_run(f, 3, 1);
  ticket_derive_peer_key(f->told[S1].key, key);
  assert_memory_equal(f->told[S1].peer_key, none, TICKET_KEY_BYTES);
  for (uint64_t w = W1; w <= W3; w++) {
    struct ticket ticket;
    struct err err;
    assert_memory_equal(f->told[w].peer_key, key, TICKET_KEY_BYTES);
    assert_memory_equal(f->told[w].key, none, TICKET_KEY_BYTES);
    assert_int_equal(ticket_read(f->told[w].peer_ticket, &ticket, &err), 0);
    assert_int_equal(ticket.worker, w - W1 + 1);
    assert_true(ticket_is_genuine(&ticket, key, ""));
  }
}

static void workers_of_two_executors_have_two_stages_and_the_one_that_is_left(void **state) {
  struct core_fixture *f = *state;
  start_run(f, 2, 2);
  assert_stages(f, W1, 0, 2);
  assert_stages(f, W2, 2, 3);
  assert_team(f, (const uint64_t[]){W1, W2}, 2);
}

static void workers_with_enough_executors_have_all_stages(void **state) {
  struct core_fixture *f = *state;
  start_run(f, 2, 3);
  assert_stages(f, W1, 0, 0);
  assert_int_equal(f->told[W1].team, 0);
  assert_int_equal(f->told[W1].end, f->told[W2].begin);
  assert_string_equal(f->told[W1].peer_ticket, "");
}

static void a_worker_that_nobody_reaches_is_given_no_part(void **state) {
  struct core_fixture *f = *state;
  start_run(f, 1, 3); /* which computes */
  f->stages = 0;      /* those that join from now on say no address */
  worker_joins(f, W2, 1);
  assert_stages(f, W2, 0, 0);
}

static void a_run_waits_until_a_team_is_whole_and_says_for_whom(void **state) {
  struct core_fixture *f = *state;
  f->stages = 3;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
  user_submits(f, RUN, 1, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_string_equal(info_of_run(f, RUN).message,
                      "waiting for workers: 2 of 3; so many make a team of 3 stages");
  worker_joins(f, W3, 2); /* of another kind: two such would be enough */
  worker_loads(f, W1, RUN);
  worker_loads(f, W2, RUN);
  server_loads(f, S1, RUN);
  assert_stages(f, W3, 0, 2);
  worker_loads(f, W3, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_string_equal(info_of_run(f, RUN).message,
                      "waiting for workers: no worker of 1 executor has stage 2: 3 such "
                      "workers make a team of 3 stages");
  assert_int_equal(f->told[W1].team, 0);
  worker_joins(f, W4, 1);
  assert_stages(f, W4, 2, 3);
  worker_loads(f, W4, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_string_equal(info_of_run(f, RUN).message, "");
  assert_team(f, (const uint64_t[]){W1, W2, W4}, 3);
  assert_true(f->told[W3].begin == f->told[W3].end);
}

static void kind_joins(struct core_fixture *f, uint64_t key, const char *kind) {
  member_joins(f, key, WEIR__ROLE__WORKER, 1, kind);
}

/* As a CPU and a GPU are in a run that need not be deterministic. */
static void workers_of_different_kinds_are_never_in_one_team(void **state) {
  struct core_fixture *f = *state;
  f->stages = 3;
  f->admits_any = true;
  server_joins(f, S1);
  kind_joins(f, W1, "one");
  kind_joins(f, W2, "another");
  kind_joins(f, W3, "one");
  user_submits(f, RUN, 3, 0);
  for (uint64_t key = W1; key <= W3; key++)
    worker_loads(f, key, RUN);
  server_loads(f, S1, RUN);
  assert_stages(f, W1, 0, 1);
  assert_stages(f, W2, 0, 1);
  assert_stages(f, W3, 1, 2);
  kind_joins(f, W4, "another");
  assert_stages(f, W4, 1, 2);
  worker_loads(f, W4, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  kind_joins(f, W5, "one");
  assert_stages(f, W5, 2, 3);
  worker_loads(f, W5, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_team(f, (const uint64_t[]){W1, W3, W5}, 3);
  assert_true(f->told[W2].team == 0 && f->told[W4].team == 0);
}

static void a_team_that_loses_a_worker_waits_for_another_and_is_a_new_one(void **state) {
  struct core_fixture *f = *state;
  uint32_t first;
  start_run(f, 3, 1);
  first = f->told[W1].team;
  member_leaves(f, W2);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_true(f->told[W1].team == 0 && f->told[W1].begin == f->told[W1].end);
  assert_int_equal(worker_row(f, W1).microbatches, 0);
  assert_non_null(strstr(info_of_run(f, RUN).message, "no worker of 1 executor has stage 1: 3 such workers"));
  worker_joins(f, W4, 1);
  assert_stages(f, W4, 1, 2);
  worker_loads(f, W4, RUN);
  assert_team(f, (const uint64_t[]){W1, W4, W3}, 3);
  assert_int_not_equal(f->told[W1].team, first);
}

static void a_spare_worker_takes_the_stages_of_one_that_died(void **state) {
  struct core_fixture *f = *state;
  start_run(f, 3, 1);
  worker_joins(f, W4, 1);
  worker_loads(f, W4, RUN);
  assert_stages(f, W4, 0, 1);
  member_leaves(f, W3);
  assert_stages(f, W4, 2, 3);
  assert_int_equal(f->told[W4].loads, 2);
  assert_int_equal(f->told[W1].loads, 1); /* it was in the team, and the spare was not */
  loads_and_probes(f, W4, RUN, "data", "probe");
  assert_team(f, (const uint64_t[]){W1, W2, W4}, 3);
}

static void an_answer_to_an_order_for_other_stages_counts_for_nothing(void **state) {
  struct core_fixture *f = *state;
  start_run(f, 3, 1);
  worker_joins(f, W4, 1);
  worker_loads(f, W4, RUN);
  member_leaves(f, W3);
  f->told[W4].stage_begin = 0, f->told[W4].stage_end = 1;
  worker_loads(f, W4, RUN);
  assert_int_equal(f->told[W1].team, 0);
  f->told[W4].stage_begin = 2, f->told[W4].stage_end = 3;
  worker_loads(f, W4, RUN);
  assert_team(f, (const uint64_t[]){W1, W2, W4}, 3);
}

static void several_teams_share_the_microbatches_and_one_that_breaks_leaves_the_others(void **state) {
  struct core_fixture *f = *state;
  const uint64_t first[] = {W1, W2, W3}, second[] = {W4, W5, W5 + 1};
  uint32_t number;
  start_run(f, 6, 1);
  assert_team(f, first, 3);
  assert_team(f, second, 3);
  assert_int_not_equal(f->told[W1].team, f->told[W4].team);
  assert_int_equal(f->told[W1].end, f->told[W4].begin);
  member_leaves(f, W1);
  assert_team(f, second, 3);
  assert_int_equal(f->told[W4].begin, 0);
  assert_int_equal(f->told[W4].end, MICROBATCHES);
  number = f->told[W4].team;
  worker_joins(f, W1 + 10, 1);
  worker_loads(f, W1 + 10, RUN);
  assert_team(f, (const uint64_t[]){W1 + 10, W2, W3}, 3);
  assert_int_not_equal(f->told[W4].team, number); /* its range is another */
}

static void a_team_that_has_failed_is_made_anew_at_once_however_often(void **state) {
  struct core_fixture *f = *state;
  const uint64_t keys[] = {W1, W2, W3};
  start_run(f, 3, 1);
  for (int i = 0; i < 5; i++) {
    uint32_t number = f->told[W1].team;
    Weir__GroupFailed failed = WEIR__GROUP_FAILED__INIT;
    failed.run = (char *)RUN;
    failed.view = f->told[W2].view_number;
    failed.group = number;
    failed.message = "lost";
    member_says(f, W2, WEIR__MEMBER_MESSAGE__BODY_GROUP_FAILED, &failed);
    assert_team(f, keys, 3);
    assert_int_not_equal(f->told[W1].team, number);
  }
}

static void a_view_for_others_leaves_a_team_its_number(void **state) {
  struct core_fixture *f = *state;
  uint32_t number;
  start_run(f, 3, 1);
  number = f->told[W1].team;
  worker_joins(f, W4, 1);
  worker_loads(f, W4, RUN); /* it has no team */
  assert_int_equal(f->told[W1].team, number);
  assert_team(f, (const uint64_t[]){W1, W2, W3}, 3);
}

static void the_probe_is_compared_among_workers_of_the_same_stages(void **state) {
  struct core_fixture *f = *state;
  f->stages = 3;
  server_joins(f, S1);
  for (uint64_t key = W1; key <= W5; key++)
    worker_joins(f, key, 1);
  user_submits(f, RUN, 5, 0);
  loads_and_probes(f, W1, RUN, "data", "first");
  loads_and_probes(f, W2, RUN, "data", "second");
  loads_and_probes(f, W3, RUN, "data", "third");
  loads_and_probes(f, W4, RUN, "data", "first");
  assert_string_equal(worker_row(f, W4).state, "ready");
  loads_and_probes(f, W5, RUN, "data", "first");
  assert_string_equal(worker_row(f, W5).state, "refused");
  assert_non_null(strstr(worker_row(f, W5).message,
                         "a probe gradient of hash first, others with these stages of second"));
}

static void a_worker_that_joins_again_keeps_the_stages_that_it_has(void **state) {
  struct core_fixture *f = *state;
  start_run(f, 3, 1);
  member_leaves(f, W1);
  member_leaves(f, W3);
  worker_joins_again(f, W3, W5, RUN);
  assert_stages(f, W5, 2, 3);
  worker_joins_again(f, W1, W4, RUN);
  assert_stages(f, W4, 0, 1);
}

/* By the worker with stage 1 of three. */
static void says_of_mates(struct core_fixture *f, Weir__UnreachedMate **mates, size_t n) {
  Weir__RunCounters counters = WEIR__RUN_COUNTERS__INIT;
  counters.run = (char *)RUN;
  counters.incarnation = f->incarnation;
  counters.unreached_mates = mates;
  counters.n_unreached_mates = n;
  member_tells(f, W2, &counters);
  core_ticks(f);
}

static void a_worker_that_misses_workers_of_its_team_is_named_until_it_reaches_them(void **state) {
  struct core_fixture *f = *state;
  Weir__UnreachedMate below = WEIR__UNREACHED_MATE__INIT, above = WEIR__UNREACHED_MATE__INIT;
  Weir__UnreachedMate *both[] = {&above, &below};
  char garbage[2000];
  start_run(f, 3, 1);
  below.team = above.team = f->told[W1].team;
  above.is_above = true;
  above.message = "connection refused";
  memset(garbage, '\n', sizeof garbage);
  garbage[sizeof garbage - 1] = 0;
  says_of_mates(f, both, 1);
  assert_string_equal(worker_row(f, W2).message,
                      "cannot reach worker-3 (host:5), which has stage 2 of its team: connection refused");
  assert_string_equal(info_of_run(f, RUN).message,
                      "worker-2 (host) cannot reach worker-3 (host:5), which has "
                      "stage 2 of its team: connection refused");
  assert_string_equal(worker_row(f, W1).message, "");
  above.message = garbage; /* of the same: nothing is written anew */
  says_of_mates(f, both, 1);
  assert_non_null(strstr(info_of_run(f, RUN).message, "connection refused"));
  says_of_mates(f, both, 2);
  assert_non_null(strstr(info_of_run(f, RUN).message, "worker-1 (host:3), which has stage 0 of its team: "));
  assert_non_null(
      strstr(worker_row(f, W2).message, "worker-3 (host:5), which has stage 2 of its team: ????"));
  assert_true(strlen(info_of_run(f, RUN).message) < 600);
  says_of_mates(f, NULL, 0);
  assert_string_equal(worker_row(f, W2).message, "");
  assert_string_equal(info_of_run(f, RUN).message, "");
}

static void of_another_team_or_of_nobody_it_says_nothing(void **state) {
  struct core_fixture *f = *state;
  Weir__UnreachedMate above = WEIR__UNREACHED_MATE__INIT, *mates[] = {&above, &above, &above};
  start_run(f, 3, 1);
  above.is_above = true;
  above.team = f->told[W1].team + 1;
  says_of_mates(f, mates, 3);
  assert_string_equal(info_of_run(f, RUN).message, "");
  above.team = 0;
  says_of_mates(f, mates, 3);
  assert_string_equal(info_of_run(f, RUN).message, "");
  above.team = f->told[W1].team;
  says_of_mates(f, mates, 3);
  assert_non_null(strstr(info_of_run(f, RUN).message, "cannot reach worker-3"));
  member_leaves(f, W3); /* with its team ends what was said of it */
  assert_string_equal(worker_row(f, W2).message, "");
  assert_null(strstr(info_of_run(f, RUN).message, "cannot reach"));
  says_of_mates(f, mates, 3);
  assert_null(strstr(info_of_run(f, RUN).message, "cannot reach"));
}

static void late_microbatches_are_not_given_to_members_of_teams(void **state) {
  struct core_fixture *f = *state;
  Weir__Range range = WEIR__RANGE__INIT, *ranges[] = {&range};
  Weir__Late late = WEIR__LATE__INIT;
  start_run(f, 6, 1);
  range.end = 2;
  late.run = (char *)RUN;
  late.waited_seconds = 10;
  late.microbatches = ranges;
  late.n_microbatches = 1;
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_LATE, &late);
  for (uint64_t key = W1; key < W1 + 6; key++)
    assert_int_equal(f->told[key].reissues, 0);
  worker_joins(f, W1 + 10, 3);
  worker_loads(f, W1 + 10, RUN);
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_LATE, &late);
  assert_int_equal(f->told[W1 + 10].reissues, 1);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(workers_of_one_executor_have_a_stage_each_and_compute_the_same_microbatches),
      TEST(workers_of_a_team_get_tickets_for_each_other_and_the_key_to_check_them),
      TEST(workers_of_two_executors_have_two_stages_and_the_one_that_is_left),
      TEST(workers_with_enough_executors_have_all_stages),
      TEST(a_worker_that_nobody_reaches_is_given_no_part),
      TEST(a_run_waits_until_a_team_is_whole_and_says_for_whom),
      TEST(workers_of_different_kinds_are_never_in_one_team),
      TEST(a_team_that_loses_a_worker_waits_for_another_and_is_a_new_one),
      TEST(a_spare_worker_takes_the_stages_of_one_that_died),
      TEST(an_answer_to_an_order_for_other_stages_counts_for_nothing),
      TEST(several_teams_share_the_microbatches_and_one_that_breaks_leaves_the_others),
      TEST(a_team_that_has_failed_is_made_anew_at_once_however_often),
      TEST(a_view_for_others_leaves_a_team_its_number),
      TEST(the_probe_is_compared_among_workers_of_the_same_stages),
      TEST(a_worker_that_joins_again_keeps_the_stages_that_it_has),
      TEST(a_worker_that_misses_workers_of_its_team_is_named_until_it_reaches_them),
      TEST(of_another_team_or_of_nobody_it_says_nothing),
      TEST(late_microbatches_are_not_given_to_members_of_teams),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
