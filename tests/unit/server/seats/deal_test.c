/* How the executors of a worker are dealt to the runs that it computes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "server/coordinator/shares/deal.h"

enum { SEATS = 4, ANY = 1000, DRAWS = 20000 };

static void assert_dealt(const struct deal_seat *seats, int n, uint32_t executors, const uint32_t *expected) {
  uint32_t dealt[SEATS];
  deal_executors(seats, n, executors, dealt);
  for (int i = 0; i < n; i++)
    if (dealt[i] != expected[i])
      fail_msg("seat %d has %u of %u executors, not %u", i, dealt[i], executors, expected[i]);
}

static void one_seat_has_all(void **state) {
  struct deal_seat seats[] = {{0, 1, 2, 0}};
  (void)state;
  assert_dealt(seats, 1, 8, (uint32_t[]){8});
}

static void equal_seats_have_equally_many_the_first_ones_more(void **state) {
  struct deal_seat seats[] = {{0, 1, ANY, 0}, {0, 1, ANY, 0}, {0, 1, ANY, 0}};
  (void)state;
  assert_dealt(seats, 2, 4, (uint32_t[]){2, 2});
  assert_dealt(seats, 2, 5, (uint32_t[]){3, 2});
  assert_dealt(seats, 3, 8, (uint32_t[]){3, 3, 2});
}

static void executors_go_by_weight_at_least_one_each(void **state) {
  struct deal_seat seats[] = {{0, 1, ANY, 0}, {0, 3, ANY, 0}};
  (void)state;
  assert_dealt(seats, 2, 4, (uint32_t[]){1, 3});
  assert_dealt(seats, 2, 16, (uint32_t[]){4, 12});
  seats[1].weight = 1000;
  assert_dealt(seats, 2, 16, (uint32_t[]){1, 15});
}

static void what_a_run_has_no_use_for_goes_to_others(void **state) {
  struct deal_seat seats[] = {{0, 1, 1, 0}, {0, 1, ANY, 0}};
  (void)state;
  assert_dealt(seats, 2, 4, (uint32_t[]){1, 3});
  seats[1].useful = 2;
  assert_dealt(seats, 2, 8, (uint32_t[]){4, 4}); /* and what nobody has use for, too */
}

static void a_seat_has_no_more_than_it_may(void **state) {
  struct deal_seat seats[] = {{0, 1, ANY, 2}, {0, 1, 1, 0}};
  (void)state;
  assert_dealt(seats, 1, 8, (uint32_t[]){2}); /* nobody has the others */
  assert_dealt(seats, 2, 8, (uint32_t[]){2, 6});
  seats[1].most = 3;
  assert_dealt(seats, 2, 8, (uint32_t[]){2, 3});
}

static void a_higher_priority_comes_first_but_for_one_executor_each(void **state) {
  struct deal_seat seats[] = {{0, 100, ANY, 0}, {5, 1, ANY, 0}, {0, 1, ANY, 0}};
  (void)state;
  assert_dealt(seats, 3, 8, (uint32_t[]){1, 6, 1});
  seats[1].useful = 2;
  assert_dealt(seats, 3, 8, (uint32_t[]){5, 2, 1});
}

static void a_further_seat_is_left_what_higher_priorities_have_no_use_for(void **state) {
  struct deal_seat seats[] = {{5, 1, 3, 0}, {0, 1, ANY, 0}};
  (void)state;
  assert_int_equal(deal_left(seats, 1, 4, 0), 1);
  assert_int_equal(deal_left(seats, 2, 4, 0), 0);
  assert_int_equal(deal_left(seats, 2, 4, 5), 2); /* one each for the others */
  assert_int_equal(deal_left(seats, 0, 4, 0), 4);
  seats[0].useful = UINT32_MAX;
  assert_int_equal(deal_left(seats, 1, 4, 0), 0);
}

/* A seat that had one more would be farther from its part than the one that has it. */
static void every_deal_is_full_and_fair(void **state) {
  (void)state;
  for (uint64_t draw = 0; draw < DRAWS; draw++) {
    struct deal_seat seats[SEATS];
    uint32_t dealt[SEATS], sum = 0, executors = SEATS + (uint32_t)(random_bits(draw, 1) % 30);
    int n = 1 + (int)(random_bits(draw, 2) % SEATS);
    for (int i = 0; i < n; i++)
      seats[i] = (struct deal_seat){(int32_t)(random_bits(draw, 10 + (uint64_t)i) % 2),
                                    1 + (double)(random_bits(draw, 20 + (uint64_t)i) % 5),
                                    (uint32_t)(random_bits(draw, 30 + (uint64_t)i) % 12), 0};
    deal_executors(seats, n, executors, dealt);
    for (int i = 0; i < n; i++) {
      assert_true(dealt[i] >= 1);
      sum += dealt[i];
      for (int j = 0; j < n; j++) {
        bool is_same = seats[i].priority == seats[j].priority;
        if (dealt[i] >= seats[i].useful || dealt[j] < 2 || i == j)
          continue; /* i could use one of those of j */
        assert_true(seats[j].priority >= seats[i].priority && dealt[j] <= seats[j].useful);
        assert_true(!is_same || (dealt[i] + 1) / seats[i].weight >= dealt[j] / seats[j].weight);
      }
    }
    assert_int_equal(sum, executors);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_seat_has_all),
      cmocka_unit_test(a_seat_has_no_more_than_it_may),
      cmocka_unit_test(equal_seats_have_equally_many_the_first_ones_more),
      cmocka_unit_test(executors_go_by_weight_at_least_one_each),
      cmocka_unit_test(what_a_run_has_no_use_for_goes_to_others),
      cmocka_unit_test(a_higher_priority_comes_first_but_for_one_executor_each),
      cmocka_unit_test(a_further_seat_is_left_what_higher_priorities_have_no_use_for),
      cmocka_unit_test(every_deal_is_full_and_fair),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
