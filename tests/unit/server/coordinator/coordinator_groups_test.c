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
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
