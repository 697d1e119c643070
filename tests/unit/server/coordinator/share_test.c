/* How many workers each run is given. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "server/coordinator/shares/share.h"

enum { CLAIMS_MAX = 8, KINDS = 5, MANY = 1000 };

/* One that takes what it is given. */
static struct share_claim any(void) {
  return (struct share_claim){.least = 1, .min = 1, .wanted = MANY, .max = MANY, .weight = 1};
}

/* Of workers that suit all. */
static void share_alike(const struct share_claim *claims, int n, uint32_t workers, struct share *shares) {
  static const bool suits = true;
  share_workers(
      claims, n,
      &(struct share_supply){.pools = &(struct share_pool){workers, &suits, 1}, .n = 1, .n_kinds = 1},
      shares);
}

static void assert_shares(const struct share_claim *claims, int n, uint32_t workers,
                          const uint32_t *expected) {
  struct share shares[CLAIMS_MAX];
  share_alike(claims, n, workers, shares);
  for (int i = 0; i < n; i++)
    if (shares[i].workers != expected[i])
      fail_msg("claim %d has %u of %u workers, not %u", i, shares[i].workers, workers, expected[i]);
}

static void one_claim_has_all(void **state) {
  struct share_claim claims[] = {any()};
  (void)state;
  assert_shares(claims, 1, 5, (uint32_t[]){5});
  assert_shares(claims, 1, 0, (uint32_t[]){0});
  claims[0].max = 3;
  assert_shares(claims, 1, 5, (uint32_t[]){3});
  share_alike(claims, 0, 5, NULL);
}

static void equal_claims_have_equally_many_the_first_one_more(void **state) {
  struct share_claim claims[] = {any(), any(), any()};
  (void)state;
  assert_shares(claims, 3, 6, (uint32_t[]){2, 2, 2});
  assert_shares(claims, 3, 8, (uint32_t[]){3, 3, 2});
  assert_shares(claims, 3, 2, (uint32_t[]){1, 1, 0});
}

static void what_is_above_the_minima_goes_by_weight(void **state) {
  struct share_claim claims[] = {any(), any()};
  (void)state;
  claims[1].weight = 3;
  assert_shares(claims, 2, 4, (uint32_t[]){1, 3});
  assert_shares(claims, 2, 40, (uint32_t[]){10, 30});
  claims[0].min = 20;
  assert_shares(claims, 2, 40, (uint32_t[]){20, 20});
}

static void minima_go_by_priority_and_then_in_order(void **state) {
  struct share_claim claims[] = {any(), any(), any()};
  (void)state;
  claims[0].min = claims[1].min = claims[2].min = 2;
  claims[0].least = claims[1].least = claims[2].least = 2;
  assert_shares(claims, 3, 5, (uint32_t[]){3, 2, 0});
  claims[2].priority = 1;
  assert_shares(claims, 3, 5, (uint32_t[]){2, 0, 3});
  claims[0].priority = -1;
  assert_shares(claims, 3, 3, (uint32_t[]){0, 0, 3});
}

static void of_one_priority_the_foremost_in_line_comes_first(void **state) {
  struct share_claim claims[] = {any(), any(), any()};
  (void)state;
  claims[0].place = 7;
  claims[2].place = INFINITY;
  assert_shares(claims, 3, 1, (uint32_t[]){0, 1, 0});
  assert_shares(claims, 3, 2, (uint32_t[]){1, 1, 0});
  assert_shares(claims, 3, 4, (uint32_t[]){1, 2, 1}); /* what is over goes by places, too */
  claims[2].priority = 1;
  assert_shares(claims, 3, 2, (uint32_t[]){0, 1, 1});
}

static void a_gang_waits_and_those_behind_it_use_what_it_cannot(void **state) {
  struct share_claim claims[] = {any(), any(), any()};
  (void)state;
  claims[1].min = claims[1].least = 4;
  assert_shares(claims, 3, 4, (uint32_t[]){2, 0, 2});
  assert_shares(claims + 1, 2, 4, (uint32_t[]){4, 0}); /* the first has ended */
}

static void one_that_has_begun_goes_on_with_fewer(void **state) {
  struct share_claim claims[] = {any(), any()};
  (void)state;
  claims[1].min = 4;
  assert_shares(claims, 2, 4, (uint32_t[]){1, 3});
  claims[1].least = 2;
  assert_shares(claims, 2, 2, (uint32_t[]){2, 0});
}

static void more_than_all_want_are_spares_of_the_first(void **state) {
  struct share_claim claims[] = {any(), any()};
  (void)state;
  claims[0].wanted = claims[1].wanted = 2;
  assert_shares(claims, 2, 9, (uint32_t[]){7, 2});
  claims[0].max = 4;
  assert_shares(claims, 2, 9, (uint32_t[]){4, 5});
  claims[1].priority = 1;
  assert_shares(claims, 2, 9, (uint32_t[]){2, 7});
}

static void claims_that_cannot_be_met_have_none(void **state) {
  struct share_claim claims[] = {any(), any()};
  (void)state;
  claims[0].min = claims[0].least = 3;
  claims[0].max = 2; /* so many of the workers may serve it */
  assert_shares(claims, 2, 9, (uint32_t[]){0, 9});
}

/* Whatever is claimed: nobody has more than there is, or than it may have, or so few that it has nothing of
   them; nothing is left that one may have; and of two that want more, neither would have less for its weight
   with one more than the other has now, unless that is its min. */
static void check(const struct share_claim *claims, int n, uint32_t workers, const struct share *shares) {
  uint32_t sum = 0;
  bool is_turn[CLAIMS_MAX] = {false};
  for (int i = 0; i < n; i++) {
    const struct share_claim *claim = &claims[i];
    sum += shares[i].workers;
    assert_true(shares[i].workers == 0 || shares[i].workers >= claim->least);
    assert_true(shares[i].workers <= claim->max);
    assert_false(is_turn[shares[i].rank]);
    is_turn[shares[i].rank] = true;
  }
  assert_true(sum <= workers);
  for (int i = 0; i < n; i++) {
    if (sum < workers)
      assert_true(shares[i].workers == 0 || shares[i].workers == claims[i].max);
    for (int other = 0; other < n; other++) {
      bool wants =
          shares[i].workers && shares[i].workers < claims[i].wanted && shares[i].workers < claims[i].max;
      if (wants && shares[other].workers > claims[other].min)
        assert_true((shares[i].workers + 1) / claims[i].weight + 1e-9 >=
                    shares[other].workers / claims[other].weight);
    }
  }
}

static uint64_t rolled;

static uint32_t roll(uint32_t n) {
  return (uint32_t)(random_bits(1, rolled++) % n);
}

/* Returns how many. */
static int claims_roll(struct share_claim claims[CLAIMS_MAX]) {
  int n = 1 + (int)roll(CLAIMS_MAX);
  for (int i = 0; i < n; i++) {
    uint32_t min = 1 + roll(4);
    claims[i] = (struct share_claim){.priority = (int32_t)roll(3) - 1,
                                     .least = 1 + roll(min),
                                     .min = min,
                                     .wanted = min + roll(8),
                                     .max = roll(12),
                                     .weight = (1 + roll(8)) / 2.0};
  }
  return n;
}

static void whatever_is_claimed(void **state) {
  (void)state;
  for (int round = 0; round < 20000; round++) {
    struct share_claim claims[CLAIMS_MAX];
    struct share shares[CLAIMS_MAX];
    int n = claims_roll(claims);
    uint32_t workers = roll(20);
    share_alike(claims, n, workers, shares);
    check(claims, n, workers, shares);
  }
}

/* Two pools of so many workers: the first suits the claims of this mask alone, the second all. */
static void assert_pooled(const struct share_claim *claims, int n, const uint32_t workers[2], unsigned mask,
                          const uint32_t *expected) {
  static const bool some[] = {false, true}, all[] = {true, true};
  struct share_pool pools[] = {{workers[0], some, 1}, {workers[1], all, 1}};
  struct share_claim of_kinds[CLAIMS_MAX];
  struct share shares[CLAIMS_MAX];
  for (int i = 0; i < n; i++) {
    of_kinds[i] = claims[i];
    of_kinds[i].kind = mask >> i & 1;
  }
  share_workers(of_kinds, n, &(struct share_supply){.pools = pools, .n = 2, .n_kinds = 2}, shares);
  for (int i = 0; i < n; i++)
    if (shares[i].workers != expected[i])
      fail_msg("claim %d has %u workers, not %u", i, shares[i].workers, expected[i]);
}

static void nobody_waits_for_workers_that_do_not_suit(void **state) {
  struct share_claim claims[] = {any(), any(), any()};
  (void)state;
  assert_pooled(claims, 2, (uint32_t[]){3, 0}, 1, (uint32_t[]){3, 0});
  assert_pooled(claims, 3, (uint32_t[]){1, 2}, 1, (uint32_t[]){1, 1, 1});
  claims[0].min = claims[0].least = 2;
  claims[0].max = 2;
  assert_pooled(claims, 2, (uint32_t[]){2, 3}, 1,
                (uint32_t[]){2, 3}); /* the second has none of the first's */
  claims[1].priority = 1;
  assert_pooled(claims, 2, (uint32_t[]){2, 1}, 3, (uint32_t[]){2, 1}); /* nor then */
}

/* Whether so many can be given to each at once (Hall's theorem): no claims together want more than all the
   workers that suit any of them. */
static bool is_possible(const struct share_claim *claims, int n, const struct share_supply *supply,
                        const uint32_t *wanted) {
  for (unsigned mask = 1; mask < 1u << n; mask++) {
    uint32_t sum = 0, there = 0;
    for (int i = 0; i < n; i++)
      sum += mask >> i & 1 ? wanted[i] : 0;
    for (int p = 0; p < supply->n; p++) {
      bool is_any = false;
      for (int i = 0; i < n; i++)
        is_any |= (mask >> i & 1) && supply->pools[p].suits[claims[i].kind];
      there += is_any ? supply->pools[p].workers : 0;
    }
    if (sum > there)
      return false;
  }
  return true;
}

/* All can be met at once; nobody who has some may have one more; and who has none cannot be given the least
   beside the minima of those before it. */
static void check_pooled(const struct share_claim *claims, int n, const struct share_supply *supply,
                         const struct share *shares) {
  uint32_t given[CLAIMS_MAX], minima[CLAIMS_MAX];
  for (int i = 0; i < n; i++)
    given[i] = shares[i].workers;
  assert_true(is_possible(claims, n, supply, given));
  for (int i = 0; i < n; i++) {
    assert_true(given[i] == 0 || (given[i] >= claims[i].least && given[i] <= claims[i].max));
    given[i]++;
    assert_false(given[i] > 1 && given[i] <= claims[i].max && is_possible(claims, n, supply, given));
    given[i]--;
    for (int other = 0; other < n; other++) {
      bool is_before = shares[other].rank < shares[i].rank;
      minima[other] = !is_before ? 0 : given[other] < claims[other].min ? given[other] : claims[other].min;
    }
    minima[i] = claims[i].least;
    assert_true(given[i] > 0 || claims[i].least > claims[i].max || !is_possible(claims, n, supply, minima));
  }
}

static void whatever_suits_whom(void **state) {
  (void)state;
  for (int round = 0; round < 5000; round++) {
    struct share_claim claims[CLAIMS_MAX];
    struct share shares[CLAIMS_MAX];
    bool suits[4][KINDS];
    struct share_pool pools[4];
    struct share_supply supply = {.pools = pools, .n = 1 + (int)roll(4), .n_kinds = KINDS};
    int n = claims_roll(claims);
    for (int p = 0; p < supply.n; p++) {
      pools[p] = (struct share_pool){roll(8), suits[p], 1};
      for (int kind = 0; kind < KINDS; kind++)
        suits[p][kind] = roll(2);
    }
    for (int i = 0; i < n; i++)
      claims[i].kind = (int)roll(KINDS);
    share_workers(claims, n, &supply, shares);
    check_pooled(claims, n, &supply, shares);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_claim_has_all),
      cmocka_unit_test(equal_claims_have_equally_many_the_first_one_more),
      cmocka_unit_test(what_is_above_the_minima_goes_by_weight),
      cmocka_unit_test(minima_go_by_priority_and_then_in_order),
      cmocka_unit_test(of_one_priority_the_foremost_in_line_comes_first),
      cmocka_unit_test(a_gang_waits_and_those_behind_it_use_what_it_cannot),
      cmocka_unit_test(one_that_has_begun_goes_on_with_fewer),
      cmocka_unit_test(more_than_all_want_are_spares_of_the_first),
      cmocka_unit_test(claims_that_cannot_be_met_have_none),
      cmocka_unit_test(whatever_is_claimed),
      cmocka_unit_test(nobody_waits_for_workers_that_do_not_suit),
      cmocka_unit_test(whatever_suits_whom),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
