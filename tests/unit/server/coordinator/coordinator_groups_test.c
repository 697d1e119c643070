/* Groups of workers that share a host, as the coordinator makes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/support/coordinator/core_fixture.h"

enum { S1 = 1, W1 = 3, W2, W3, W4, W5 };
static const char RUN[] = "mlp-aaaaaa";

static void joins_on(struct core_fixture *f, uint64_t key, const char *host, const char *device) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__WORKER;
  hello.host = "host";
  hello.pid = (uint32_t)key;
  hello.device = (char *)device;
  hello.executors = 1;
  hello.fingerprint = "build-1";
  hello.shm_host = (char *)host;
  says_hello(f, key, &hello);
}

/* Workers of hosts a, b, a, b, on CPUs, training with a collective. */
static void start_run(struct core_fixture *f, const char *collective) {
  static const char *const hosts[] = {"a", "b", "a", "b"};
  f->collective = collective;
  server_joins(f, S1);
  for (uint64_t i = 0; i < 4; i++)
    joins_on(f, W1 + i, hosts[i], "cpu");
  user_submits(f, RUN, 4, 0);
  for (uint64_t i = 0; i < 4; i++)
    worker_loads(f, W1 + i, RUN);
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void says_group_failed(struct core_fixture *f, uint64_t key, uint32_t group) {
  Weir__GroupFailed failed = WEIR__GROUP_FAILED__INIT;
  failed.run = (char *)RUN;
  failed.incarnation = f->incarnation;
  failed.view = f->told[key].view_number;
  failed.group = group;
  failed.message = "no space left on /dev/shm";
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_GROUP_FAILED, &failed);
}

static void workers_of_a_host_make_a_group_and_have_adjoining_shares(void **state) {
  struct core_fixture *f = *state;
  start_run(f, "shm");
  assert_true(f->told[W1].group && f->told[W1].group == f->told[W3].group);
  assert_true(f->told[W2].group && f->told[W2].group == f->told[W4].group);
  assert_int_not_equal(f->told[W1].group, f->told[W2].group);
  assert_int_equal(f->told[W1].end, f->told[W3].begin);
  assert_int_equal(f->told[W3].end, f->told[W2].begin);
  assert_int_equal(f->told[W2].end, f->told[W4].begin);
}

static void without_a_collective_workers_stay_as_they_came(void **state) {
  struct core_fixture *f = *state;
  start_run(f, NULL);
  for (uint64_t key = W1; key <= W4; key++)
    assert_int_equal(f->told[key].group, 0);
  assert_int_equal(f->told[W1].end, f->told[W2].begin);
}

static void nccl_is_for_workers_with_gpus_alone(void **state) {
  struct core_fixture *f = *state;
  f->admits_any = true;
  start_run(f, "nccl");
  assert_int_equal(f->told[W1].group, 0);
  joins_on(f, W5, "a", "cuda:0");
  worker_loads(f, W5, RUN);
  assert_int_equal(f->told[W5].group, 0); /* alone of its kind */
  joins_on(f, W5 + 1, "a", "cuda:1");
  worker_loads(f, W5 + 1, RUN);
  assert_true(f->told[W5].group && f->told[W5].group == f->told[W5 + 1].group);
  assert_int_equal(f->told[W1].group, 0);
  assert_int_equal(f->told[W3].group, 0);
}

static void a_worker_that_knows_no_host_goes_alone(void **state) {
  struct core_fixture *f = *state;
  start_run(f, "shm");
  joins_on(f, W5, "", "cpu");
  worker_loads(f, W5, RUN);
  assert_int_equal(f->told[W5].group, 0);
}

static void a_group_that_failed_gets_another_number_and_then_none(void **state) {
  struct core_fixture *f = *state;
  uint32_t first, second, others;
  start_run(f, "shm");
  first = f->told[W1].group, others = f->told[W2].group;
  says_group_failed(f, W3, first);
  second = f->told[W1].group;
  assert_true(second && second != first && second == f->told[W3].group);
  assert_int_equal(f->told[W2].group, others); /* is not disturbed */
  says_group_failed(f, W1, first);             /* has been heard */
  assert_int_equal(f->told[W1].group, second);
  says_group_failed(f, W1, second);
  assert_int_equal(f->told[W1].group, 0);
  assert_int_equal(f->told[W3].group, 0);
  assert_int_equal(f->told[W2].group, others);
}

static void groups_that_failed_are_tried_again_when_the_workers_change(void **state) {
  struct core_fixture *f = *state;
  start_run(f, "shm");
  for (int i = 0; i < 2; i++)
    says_group_failed(f, W1, f->told[W1].group);
  assert_int_equal(f->told[W1].group, 0);
  member_leaves(f, W4);
  assert_true(f->told[W1].group && f->told[W1].group == f->told[W3].group);
}

/* Time goes by, and nobody is silent. */
static void stay(struct core_fixture *f, uint64_t ms) {
  for (uint64_t end_ms = f->now_ms + ms; f->now_ms < end_ms;) {
    time_passes(f, end_ms - f->now_ms < 1000 ? end_ms - f->now_ms : 1000);
    for (uint64_t key = S1; key <= W4; key++)
      member_beats(f, key);
  }
}

static void groups_that_failed_are_tried_again_after_ever_longer_pauses(void **state) {
  struct core_fixture *f = *state;
  uint32_t others;
  start_run(f, "shm");
  others = f->told[W2].group;
  says_group_failed(f, W1, f->told[W1].group);
  for (uint64_t pause_ms = 60000; pause_ms <= 240000; pause_ms *= 2) {
    uint32_t failed = f->told[W1].group;
    says_group_failed(f, W1, failed);
    assert_int_equal(f->told[W1].group, 0);
    stay(f, pause_ms - 1000);
    assert_int_equal(f->told[W1].group, 0);
    stay(f, 2000);
    assert_true(f->told[W1].group > failed && f->told[W1].group == f->told[W3].group);
    assert_int_equal(f->told[W2].group, others); /* is not disturbed */
  }
  member_leaves(f, W4);
  says_group_failed(f, W1, f->told[W1].group);
  says_group_failed(f, W1, f->told[W1].group);
  assert_int_equal(f->told[W1].group, 0);
  stay(f, 61000);
  assert_true(f->told[W1].group && f->told[W1].group == f->told[W3].group);
}

static void news_of_a_group_of_another_term_or_incarnation_is_ignored(void **state) {
  struct core_fixture *f = *state;
  uint32_t group;
  start_run(f, "shm");
  group = f->told[W1].group;
  f->told[W1].view_number += UINT64_C(1) << 32;
  says_group_failed(f, W1, group);
  f->told[W1].view_number -= UINT64_C(1) << 32;
  f->incarnation++;
  says_group_failed(f, W1, group);
  f->incarnation--;
  assert_int_equal(f->told[W1].group, group);
  says_group_failed(f, W1, group);
  assert_int_not_equal(f->told[W1].group, group);
}

/* Only a member of a group can say that it failed, and of its own run. */
static void news_of_a_group_by_who_is_not_in_it_is_ignored(void **state) {
  struct core_fixture *f = *state;
  Weir__GroupFailed failed = WEIR__GROUP_FAILED__INIT;
  uint32_t groups[W4 + 1];
  start_run(f, "shm");
  joins_on(f, W5, "", "cpu"); /* in none */
  worker_loads(f, W5, RUN);
  for (uint64_t key = W1; key <= W4; key++)
    groups[key] = f->told[key].group;
  says_group_failed(f, W5, groups[W1]);
  says_group_failed(f, W5, 0);
  says_group_failed(f, W1, groups[W2]);
  says_group_failed(f, W1, 0);
  says_group_failed(f, S1, groups[W1]);
  failed.incarnation = f->incarnation;
  failed.view = f->told[W1].view_number;
  failed.group = groups[W1];
  failed.run = "mlp-bbbbbb";
  member_says(f, W1, WEIR__MEMBER_MESSAGE__BODY_GROUP_FAILED, &failed);
  for (uint64_t key = W1; key <= W4; key++)
    assert_int_equal(f->told[key].group, groups[key]);
  assert_int_equal(f->told[W5].group, 0);
}

/* Where a member reads others' blocks in memory; NULL: an older program, or one that shares none. */
static void joins_sharing(struct core_fixture *f, uint64_t key, const char *share, const char *device) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  bool is_server = key < W1;
  char address[32];
  snprintf(address, sizeof address, "host:%d", (int)key);
  hello.role = is_server ? WEIR__ROLE__SERVER : WEIR__ROLE__WORKER;
  hello.host = "host";
  hello.pid = (uint32_t)key;
  hello.address = is_server ? address : "";
  hello.device = (char *)device;
  hello.executors = is_server ? 0 : 2;
  hello.fingerprint = "build-1";
  hello.shm_host = is_server ? "" : "a";
  hello.share_host = share ? (char *)share : "";
  says_hello(f, key, &hello);
}

/* Two workers of one host train by auto, and the servers share memory with others so. */
static void start_by_auto(struct core_fixture *f, const char *const servers[2], const char *workers,
                          const char *device) {
  for (uint64_t i = 0; i < 2; i++)
    joins_sharing(f, S1 + i, servers[i], "");
  for (uint64_t i = 0; i < 2; i++)
    joins_sharing(f, W1 + i, workers, device);
  user_submits(f, RUN, 2, 0);
  for (uint64_t i = 0; i < 2; i++)
    worker_loads(f, W1 + i, RUN);
  for (uint64_t i = 0; i < 2; i++)
    server_loads(f, S1 + i, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void assert_grouped(struct core_fixture *f, bool are_grouped) {
  Weir__RunInfo info = info_of_run(f, RUN);
  assert_int_equal(f->told[W1].group != 0, are_grouped);
  assert_int_equal(f->told[W1].group, f->told[W2].group);
  assert_string_equal(info.collective, are_grouped ? "shm" : "none");
  assert_int_equal(info.grouped_workers, are_grouped ? 2 : 0);
}

static void by_auto_workers_that_share_memory_with_all_servers_go_alone(void **state) {
  struct core_fixture *f = *state;
  start_by_auto(f, (const char *const[]){"m", "m"}, "m", "cpu");
  assert_grouped(f, false);
}

static void by_auto_a_server_elsewhere_is_a_reason_for_a_group(void **state) {
  struct core_fixture *f = *state;
  start_by_auto(f, (const char *const[]){"m", "elsewhere"}, "m", "cpu");
  assert_grouped(f, true);
}

static void by_auto_a_server_that_shares_no_memory_is_elsewhere(void **state) {
  struct core_fixture *f = *state;
  start_by_auto(f, (const char *const[]){"m", NULL}, "m", "cpu");
  assert_grouped(f, true);
}

static void by_auto_workers_that_share_no_memory_and_gpus_go_alone(void **state) {
  struct core_fixture *f = *state;
  start_by_auto(f, (const char *const[]){"elsewhere", "elsewhere"}, NULL, "cpu");
  assert_grouped(f, false);
  core_teardown(state);
  core_setup(state);
  f = *state;
  start_by_auto(f, (const char *const[]){"elsewhere", "elsewhere"}, "m", "cuda:0");
  assert_grouped(f, false);
}

static void a_group_of_auto_ends_where_another_run_gets_a_seat_and_comes_back(void **state) {
  struct core_fixture *f = *state;
  static const char OTHER[] = "mlp-bbbbbb";
  start_by_auto(f, (const char *const[]){"elsewhere", "elsewhere"}, "m", "cpu");
  assert_grouped(f, true);
  user_submits(f, OTHER, 1, 1);
  worker_loads(f, W1, OTHER);
  for (uint64_t i = 0; i < 2; i++)
    server_loads(f, S1 + i, OTHER);
  assert_state(f, OTHER, WEIR__RUN_STATE__RUNNING);
  assert_grouped(f, false);
  user_cancels(f, OTHER);
  assert_grouped(f, true);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(workers_of_a_host_make_a_group_and_have_adjoining_shares),
      TEST(without_a_collective_workers_stay_as_they_came),
      TEST(nccl_is_for_workers_with_gpus_alone),
      TEST(a_worker_that_knows_no_host_goes_alone),
      TEST(a_group_that_failed_gets_another_number_and_then_none),
      TEST(groups_that_failed_are_tried_again_when_the_workers_change),
      TEST(groups_that_failed_are_tried_again_after_ever_longer_pauses),
      TEST(news_of_a_group_of_another_term_or_incarnation_is_ignored),
      TEST(news_of_a_group_by_who_is_not_in_it_is_ignored),
      TEST(by_auto_workers_that_share_memory_with_all_servers_go_alone),
      TEST(by_auto_a_server_elsewhere_is_a_reason_for_a_group),
      TEST(by_auto_a_server_that_shares_no_memory_is_elsewhere),
      TEST(by_auto_workers_that_share_no_memory_and_gpus_go_alone),
      TEST(a_group_of_auto_ends_where_another_run_gets_a_seat_and_comes_back),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
