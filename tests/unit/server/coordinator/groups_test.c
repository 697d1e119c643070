/* Which workers make groups: the coordinator's side. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "server/coordinator/shares/groups.h"

enum { WORKERS_MAX = 200 };

static void workers_of_a_host_are_neighbours_and_others_stay(void **state) {
  const char *hosts[] = {"a", NULL, "b", "a", "c", "b", NULL, "a"};
  const int expected[] = {0, 3, 7, 1, 2, 5, 4, 6};
  int order[8];
  (void)state;
  groups_order(hosts, 8, order);
  assert_memory_equal(order, expected, sizeof order);
}

/* Workers of these hosts ('-': none) with so many microbatches each. */
static int workers_of(const char *hosts, const uint32_t *microbatches, struct group_worker *workers) {
  static const char *const names[] = {"a", "b", "c"};
  uint32_t at = 0;
  int n = (int)strlen(hosts);
  for (int i = 0; i < n; i++) {
    workers[i] = (struct group_worker){.host = hosts[i] == '-' ? NULL : names[hosts[i] - 'a'],
                                       .microbatches = {at, at + microbatches[i]}};
    at += microbatches[i];
  }
  return n;
}

static void assert_numbers(const struct group_worker *workers, int n, const uint32_t *numbers) {
  for (int i = 0; i < n; i++)
    assert_int_equal(workers[i].grouping.number, numbers[i]);
}

static void neighbours_of_one_host_make_a_group_and_one_alone_makes_none(void **state) {
  struct group_worker workers[7];
  uint32_t seen = 4;
  int n = workers_of("aabcc-a", (uint32_t[]){1, 2, 1, 1, 1, 1, 1}, workers);
  (void)state;
  groups_number(workers, n, &seen);
  assert_numbers(workers, n, (uint32_t[]){5, 5, 0, 6, 6, 0, 0});
  assert_int_equal(workers[0].grouping.size, 2);
  assert_int_equal(seen, 6);
}

static void a_worker_without_microbatches_is_in_no_group_and_parts_none(void **state) {
  struct group_worker workers[5];
  uint32_t seen = 0;
  int n = workers_of("aaabb", (uint32_t[]){1, 0, 1, 1, 0}, workers);
  (void)state;
  groups_number(workers, n, &seen);
  assert_numbers(workers, n, (uint32_t[]){1, 0, 1, 0, 0});
}

static void a_group_keeps_its_number_while_nothing_of_it_changes(void **state) {
  struct group_worker workers[4];
  uint32_t seen = 0;
  int n = workers_of("aabb", (uint32_t[]){2, 2, 2, 2}, workers);
  (void)state;
  groups_number(workers, n, &seen);
  groups_number(workers, n, &seen);
  assert_numbers(workers, n, (uint32_t[]){1, 1, 2, 2});
  workers[2].microbatches.end = workers[3].microbatches.begin = 5; /* another share */
  groups_number(workers, n, &seen);
  assert_numbers(workers, n, (uint32_t[]){1, 1, 3, 3});
  workers[1].grouping = (struct grouping){0}; /* it failed */
  groups_number(workers, n, &seen);
  assert_numbers(workers, n, (uint32_t[]){4, 4, 3, 3});
}

static void a_group_that_has_lost_its_last_member_is_another_though_the_rest_is_as_it_was(void **state) {
  struct group_worker workers[3];
  uint32_t seen = 0;
  workers_of("aaa", (uint32_t[]){1, 1, 1}, workers);
  (void)state;
  groups_number(workers, 3, &seen);
  workers[2] = (struct group_worker){.host = "b", .microbatches = workers[2].microbatches};
  groups_number(workers, 3, &seen);
  assert_numbers(workers, 3, (uint32_t[]){2, 2, 0});
}

static void a_host_of_more_workers_than_a_group_may_have_makes_several(void **state) {
  struct group_worker workers[WORKERS_MAX];
  uint32_t seen = 0;
  (void)state;
  for (uint32_t i = 0; i < 2 * GROUP_SIZE_MAX + 1; i++)
    workers[i] = (struct group_worker){.host = "a", .microbatches = {i, i + 1}};
  groups_number(workers, 2 * GROUP_SIZE_MAX + 1, &seen);
  assert_int_equal(workers[GROUP_SIZE_MAX - 1].grouping.number, 1);
  assert_int_equal(workers[GROUP_SIZE_MAX].grouping.number, 2);
  assert_int_equal(workers[2 * GROUP_SIZE_MAX].grouping.number, 0);
}

/* What a number stood for when it was first given. */
struct meaning {
  const char *host;
  uint32_t begin, end, size;
};

static struct meaning meaning_of(const struct group_worker *workers, int n, uint32_t number) {
  struct meaning meaning = {0};
  for (int i = 0; i < n; i++) {
    const struct group_worker *worker = &workers[i];
    if (worker->grouping.number != number)
      continue;
    if (meaning.size == 0)
      meaning = (struct meaning){.host = worker->host, .begin = worker->microbatches.begin};
    else
      assert_int_equal(worker->microbatches.begin, meaning.end);
    assert_string_equal(worker->host, meaning.host);
    meaning.end = worker->microbatches.end;
    meaning.size++;
  }
  return meaning;
}

/* Workers come, go, and get other shares. Those that were away are in no group when they come again. */
static int change_workers(struct group_worker workers[8], uint64_t round) {
  static const char *const names[] = {"a", "b", NULL};
  uint64_t key = random_key(7, round, 0, 0);
  int n = 1 + (int)(random_bits(key, 0) % 8);
  uint32_t at = 0;
  for (int i = 0; i < 8; i++) {
    uint32_t take = (uint32_t)(random_bits(key / 4, (uint64_t)i) % 3);
    if (i >= n || random_bits(key, 1 + (uint64_t)i) % 8 == 0)
      workers[i] = (struct group_worker){.host = names[random_bits(key, 10 + (uint64_t)i) % 3]};
    workers[i].microbatches = (struct range){at, at + take};
    at += take;
  }
  return n;
}

static void a_number_always_means_the_same_members_with_the_same_shares(void **state) {
  static struct meaning meanings[10000];
  struct group_worker workers[8] = {0};
  uint32_t seen = 0, kept = 0;
  (void)state;
  for (uint64_t round = 0; round < 4000; round++) {
    int n = change_workers(workers, round / 2); /* each twice: what is kept is seen, too */
    groups_number(workers, n, &seen);
    for (int i = 0; i < n; i++) {
      uint32_t number = workers[i].grouping.number;
      struct meaning meaning = number ? meaning_of(workers, n, number) : (struct meaning){0};
      if (!number)
        continue;
      assert_in_range(meaning.size, 2, GROUP_SIZE_MAX);
      assert_int_equal(meaning.size, workers[i].grouping.size);
      kept += meanings[number].size > 0;
      if (!meanings[number].size)
        meanings[number] = meaning;
      assert_memory_equal(&meanings[number], &meaning, sizeof meaning);
    }
  }
  assert_true(seen > 500 && kept > 500);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(workers_of_a_host_are_neighbours_and_others_stay),
      cmocka_unit_test(neighbours_of_one_host_make_a_group_and_one_alone_makes_none),
      cmocka_unit_test(a_worker_without_microbatches_is_in_no_group_and_parts_none),
      cmocka_unit_test(a_group_keeps_its_number_while_nothing_of_it_changes),
      cmocka_unit_test(a_group_that_has_lost_its_last_member_is_another_though_the_rest_is_as_it_was),
      cmocka_unit_test(a_host_of_more_workers_than_a_group_may_have_makes_several),
      cmocka_unit_test(a_number_always_means_the_same_members_with_the_same_shares),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
