/* A part that is finite and wrong is found when its sum overflows, whoever came last; honest ones are not
 * blamed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "server/parameters/round/marks.h"
#include "server/parameters/round/round.h"

enum { ELEMS = 5, BIG = 2, MICROBATCHES_HERE_MAX = 16, TOLD_MAX = 64, OTHER = 99, LIARS_FROM = 50 };

/* All honest sums of element BIG are finite. A liar's part has this there, whose sum with any other is not.
 */
static const float honest = 1e37f, lie = 3.4e38f;

struct fixture {
  uint32_t microbatches;
  struct budget budget;
  struct pool pool;
  struct round round;
  struct accepted doubted[TOLD_MAX]; /* of the last time */
  int n_doubted, n_times;
  struct accepted changed[TOLD_MAX]; /* of all judgements */
  uint32_t computed_by[TOLD_MAX];    /* of the last one */
  int n_changed, n_computed_by, n_judged;
  bool overflows; /* of the last one */
};

static void take_doubted(void *user, const struct accepted *parts, int n) {
  struct fixture *f = user;
  assert_in_range(n, 2, TOLD_MAX);
  for (int i = 1; i < n; i++)
    assert_true(parts[i - 1].first < parts[i].first);
  memcpy(f->doubted, parts, (size_t)n * sizeof *parts);
  f->n_doubted = n;
  f->n_times++;
}

static void take_judged(void *user, const struct judgement *judgement) {
  struct fixture *f = user;
  bool has_liar = false;
  assert_in_range(f->n_changed + judgement->n_changed, 0, TOLD_MAX);
  for (int i = 0; i < judgement->n_computed_by; i++) {
    f->computed_by[i] = judgement->computed_by[i];
    has_liar |= judgement->computed_by[i] >= LIARS_FROM && judgement->computed_by[i] != OTHER;
  }
  f->n_computed_by = judgement->n_computed_by;
  for (int i = 0; i < judgement->n_changed; i++) {
    uint32_t worker = judgement->changed[i].worker;
    assert_true(has_liar || (worker >= LIARS_FROM && worker != OTHER)); /* the honest agree with each other */
    f->changed[f->n_changed++] = judgement->changed[i];
  }
  f->overflows = judgement->overflows;
  f->n_judged++;
}

static void fixture_begin(struct fixture *f) {
  round_clear(&f->round);
  f->n_doubted = f->n_times = f->n_changed = f->n_computed_by = f->n_judged = 0;
  f->overflows = false;
}

static void fixture_init(struct fixture *f, uint32_t microbatches) {
  *f = (struct fixture){.microbatches = microbatches, .budget.bytes_max = SIZE_MAX};
  pool_init(&f->pool, &f->budget);
  round_init(&f->round, microbatches, ELEMS, &f->pool);
  f->round.listener = (struct round_listener){take_doubted, take_judged, f};
}

static void fixture_fini(struct fixture *f) {
  round_fini(&f->round);
  pool_fini(&f->pool);
}

/* By the tree's definition. */
static void sum_node(const struct fixture *f, struct tree_node node, float *out) {
  struct tree_node right = {node.first, node.level - 1};
  float of_right[ELEMS];
  if (node.level == 0) {
    for (uint32_t i = 0; i < ELEMS; i++)
      out[i] = i == BIG ? honest : random_uniform(7, node.first * ELEMS + i) - 0.5f;
    return;
  }
  sum_node(f, right, out);
  right.first += 1u << right.level;
  if (right.first >= f->microbatches)
    return;
  sum_node(f, right, of_right);
  for (int i = 0; i < ELEMS; i++)
    out[i] += of_right[i];
}

/* What the worker computes of a node. */
static void push(struct fixture *f, uint32_t first, uint32_t level, uint32_t worker) {
  float values[ELEMS];
  struct part part = {.node = {first, level}, .values = values, .worker = worker, .view = 1000 + worker};
  struct err err = ERR_NONE;
  sum_node(f, part.node, values);
  if (worker >= LIARS_FROM && worker != OTHER)
    values[BIG] = lie;
  if (round_add(&f->round, &part, &err))
    fail_msg("(%u, %u): %s", first, level, err.text);
}

static uint32_t list_missing(const struct fixture *f, uint32_t list[MICROBATCHES_HERE_MAX]) {
  uint64_t marks[1] = {0};
  uint32_t n = 0;
  round_missing(&f->round, marks);
  for (uint32_t m = 0; m < f->microbatches; m++)
    if (marks[0] >> m & 1)
      list[n++] = m;
  return n;
}

static void assert_whole(const struct fixture *f) {
  const float *sum = round_sum(&f->round);
  float whole[ELEMS];
  sum_node(f, tree_root(f->microbatches), whole);
  assert_non_null(sum);
  assert_memory_equal(sum, whole, sizeof whole);
  assert_int_equal(f->round.doubts.n, 0);
}

static void assert_changed(const struct fixture *f, int i, uint32_t first, uint32_t level, uint32_t worker) {
  assert_true(i < f->n_changed);
  assert_int_equal(f->changed[i].first, first);
  assert_int_equal(f->changed[i].level, level);
  assert_int_equal(f->changed[i].worker, worker);
  assert_int_equal(f->changed[i].view, 1000 + worker);
}

/* Permutation number `number` of `n` things. */
static void permute(uint32_t *list, uint32_t n, uint32_t number) {
  for (uint32_t i = n; i > 1; number /= i, i--) {
    uint32_t j = number % i, last = list[i - 1];
    list[i - 1] = list[j];
    list[j] = last;
  }
}

static void a_lying_part_is_found_in_any_order(void **state) {
  enum { V = 4, ORDERS = 24 };
  struct fixture f;
  (void)state;
  fixture_init(&f, V);
  for (uint32_t liar = 0; liar < V; liar++)
    for (uint32_t order = 0; order < ORDERS; order++)
      for (uint32_t again = 0; again < ORDERS; again++) {
        uint32_t list[MICROBATCHES_HERE_MAX] = {0, 1, 2, 3}, n;
        permute(list, V, order);
        for (uint32_t i = 0; i < V; i++)
          push(&f, list[i], 0, list[i] == liar ? LIARS_FROM + liar : 1 + list[i]);
        assert_int_equal(f.n_times, 1);
        assert_null(round_sum(&f.round));
        n = list_missing(&f, list);
        assert_int_equal(n, f.n_doubted);
        permute(list, n, again);
        for (uint32_t i = 0; i < n; i++) {
          assert_int_equal(f.n_judged, 0);
          push(&f, list[i], 0, OTHER);
        }
        assert_int_equal(f.n_judged, 1);
        assert_false(f.overflows);
        assert_int_equal(f.n_changed, 1);
        assert_changed(&f, 0, liar, 0, LIARS_FROM + liar);
        assert_int_equal(f.n_computed_by, 1);
        assert_int_equal(f.computed_by[0], OTHER);
        assert_whole(&f);
        fixture_begin(&f);
      }
  fixture_fini(&f);
}

/* What a group or a worker with several executors pushes: its microbatches come again one by one. */
static void a_lying_sum_is_found_by_its_own_node(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f, 6);
  push(&f, 4, 1, 3);
  push(&f, 0, 1, LIARS_FROM);
  push(&f, 2, 1, 2);
  assert_int_equal(f.n_doubted, 2);
  assert_int_equal(f.doubted[0].worker, LIARS_FROM);
  assert_int_equal(f.doubted[1].worker, 2);
  for (uint32_t m = 0; m < 4; m++)
    push(&f, m, 0, OTHER);
  assert_int_equal(f.n_judged, 1);
  assert_int_equal(f.n_changed, 1);
  assert_changed(&f, 0, 0, 1, LIARS_FROM);
  assert_whole(&f);
  fixture_fini(&f);
}

/* The first of the two was not in the sum that overflowed. */
static void only_what_is_in_the_sum_is_doubted(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f, 4);
  push(&f, 0, 0, 1);
  push(&f, 0, 1, LIARS_FROM); /* replaces it */
  push(&f, 1, 0, 2);          /* is covered */
  push(&f, 2, 1, 3);
  assert_int_equal(f.n_times, 1);
  assert_int_equal(f.n_doubted, 2);
  assert_int_equal(f.doubted[0].worker, LIARS_FROM);
  assert_int_equal(f.doubted[1].worker, 3);
  fixture_fini(&f);
}

static void other_parts_stay_while_some_are_doubted(void **state) {
  struct fixture f;
  uint32_t list[MICROBATCHES_HERE_MAX];
  (void)state;
  fixture_init(&f, 8);
  push(&f, 4, 2, 1);
  push(&f, 2, 0, LIARS_FROM);
  push(&f, 3, 0, 2);
  assert_int_equal(list_missing(&f, list), 4);
  push(&f, 0, 1, 3);
  assert_int_equal(list_missing(&f, list), 2);
  push(&f, 2, 0, OTHER);
  push(&f, 3, 0, OTHER);
  assert_changed(&f, 0, 2, 0, LIARS_FROM);
  assert_whole(&f);
  fixture_fini(&f);
}

/* Somebody computes the range anew as a whole, as after a change of members: it waits behind the comparison.
 */
static void a_part_above_what_is_doubted_does_not_hide_it(void **state) {
  struct fixture f;
  uint32_t list[MICROBATCHES_HERE_MAX];
  (void)state;
  fixture_init(&f, 4);
  push(&f, 0, 0, LIARS_FROM);
  push(&f, 1, 0, 1);
  push(&f, 0, 1, 2);
  push(&f, 0, 2, 3);
  assert_int_equal(list_missing(&f, list), 4);
  push(&f, 0, 0, OTHER);
  push(&f, 0, 1, 2); /* hides the second of them */
  push(&f, 1, 0, OTHER);
  assert_int_equal(f.n_changed, 1);
  assert_changed(&f, 0, 0, 0, LIARS_FROM);
  push(&f, 0, 2, 3);
  assert_whole(&f);
  fixture_fini(&f);
}

static void a_sum_that_overflows_again_without_a_change_has_diverged(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f, 4);
  push(&f, 0, 0, LIARS_FROM);
  push(&f, 1, 0, LIARS_FROM + 1);
  push(&f, 1, 0, LIARS_FROM + 3); /* others get the same numbers: they are the model's */
  assert_int_equal(f.n_judged, 0);
  push(&f, 0, 0, LIARS_FROM + 2);
  assert_int_equal(f.n_judged, 1);
  assert_true(f.overflows);
  assert_int_equal(f.n_changed, 0);
  assert_int_equal(f.n_computed_by, 2);
  assert_int_equal(f.n_times, 2); /* and it is let go of again */
  fixture_fini(&f);
}

/* A run of one worker, that computes everything again. */
static void an_only_sender_is_believed_the_first_time(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f, 2);
  for (int times = 0; times < 2; times++)
    for (uint32_t m = 0; m < 2; m++)
      push(&f, m, 0, LIARS_FROM);
  assert_int_equal(f.n_judged, 1);
  assert_true(f.overflows);
  assert_int_equal(f.n_changed, 0);
  fixture_fini(&f);
}

/* After a broken connection. The honest worker computed its own anew: that is not told from sending it again.
 */
static void a_lying_part_that_is_sent_again_does_not_pass_for_computed(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f, 2);
  push(&f, 0, 0, LIARS_FROM);
  push(&f, 0, 0, LIARS_FROM); /* covered */
  push(&f, 1, 0, 1);
  push(&f, 0, 0, LIARS_FROM); /* in the place of what was let go of */
  push(&f, 1, 0, OTHER);
  assert_int_equal(f.n_judged, 0);
  assert_int_equal(f.n_times, 2);
  push(&f, 0, 0, OTHER);
  push(&f, 1, 0, 1);
  assert_int_equal(f.n_judged, 1);
  assert_false(f.overflows);
  assert_changed(&f, 0, 0, 0, LIARS_FROM);
  assert_whole(&f);
  fixture_fini(&f);
}

static void parts_that_are_unsettled_twice_are_judged(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f, 2);
  for (int times = 0; times < 3; times++) {
    assert_int_equal(f.n_judged, 0);
    push(&f, 0, 0, LIARS_FROM);
    push(&f, 1, 0, LIARS_FROM + 1);
  }
  assert_int_equal(f.n_judged, 1);
  assert_true(f.overflows);
  assert_int_equal(f.n_changed, 0);
  fixture_fini(&f);
}

/* One liar after the other computes it. */
static void what_overflows_again_with_a_change_goes_round_again(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f, 2);
  push(&f, 0, 0, LIARS_FROM);
  push(&f, 1, 0, 1);
  push(&f, 0, 0, OTHER);
  push(&f, 1, 0, LIARS_FROM + 1);
  assert_int_equal(f.n_judged, 1);
  assert_true(f.overflows);
  assert_int_equal(f.n_times, 2);
  assert_int_equal(f.n_changed, 2); /* of which one is honest, but so is not who computed it anew */
  push(&f, 0, 0, 2);
  push(&f, 1, 0, OTHER);
  assert_int_equal(f.n_judged, 2);
  assert_false(f.overflows);
  assert_int_equal(f.n_changed, 3);
  assert_changed(&f, 2, 1, 0, LIARS_FROM + 1);
  assert_whole(&f);
  fixture_fini(&f);
}

/* The sum of two was finite as somebody pushed it, and is not when the two come one by one. */
static void doubts_lie_within_doubts(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f, 4);
  push(&f, 0, 1, LIARS_FROM);
  push(&f, 2, 1, 1);
  assert_int_equal(f.n_times, 1);
  push(&f, 0, 0, LIARS_FROM + 1);
  push(&f, 1, 0, 2);
  assert_int_equal(f.n_times, 2);
  assert_int_equal(f.doubted[0].worker, LIARS_FROM + 1);
  push(&f, 2, 0, OTHER);
  push(&f, 3, 0, OTHER);
  push(&f, 1, 0, OTHER);
  assert_int_equal(f.n_judged, 0);
  push(&f, 0, 0, OTHER);
  assert_int_equal(f.n_judged, 2); /* the inner sum, then the outer one */
  assert_int_equal(f.n_changed, 2);
  assert_changed(&f, 0, 0, 0, LIARS_FROM + 1);
  assert_changed(&f, 1, 0, 1, LIARS_FROM);
  assert_whole(&f);
  fixture_fini(&f);
}

/* Draws: liars, nodes of any level below the root, others for what is missing. take_judged looks at the
 * blame. */
static void whoever_pushes_what_the_honest_bits_come_out(void **state) {
  static const uint32_t counts[] = {2, 3, 5, 6, 7, 8, 11, 16};
  int n_found = 0;
  (void)state;
  for (uint64_t seed = 0; seed < 4000; seed++) {
    struct fixture f;
    uint64_t drawn = 0;
    fixture_init(&f, counts[seed % 8]);
    while (!round_sum(&f.round)) {
      uint64_t bits = random_bits(1000 + seed, drawn++);
      uint32_t list[MICROBATCHES_HERE_MAX], n = list_missing(&f, list);
      uint32_t level = (uint32_t)(bits >> 40) % tree_root(f.microbatches).level;
      bool lies = drawn < 12 && bits >> 62 == 0;
      assert_true(drawn < 2000);
      if (bits >> 32 & 1)
        push(&f, list[(uint32_t)bits % n], 0, OTHER);
      else
        push(&f, (uint32_t)bits % f.microbatches >> level << level, level,
             lies ? LIARS_FROM + (uint32_t)(bits >> 20) % 8 : 1 + (uint32_t)(bits >> 20) % 8);
      if (f.n_changed > TOLD_MAX / 2)
        f.n_changed = 0;
    }
    n_found += f.n_judged > 0;
    assert_whole(&f);
    fixture_fini(&f);
  }
  assert_in_range(n_found, 1000, 4000);
}

static int count_taken(const struct fixture *f) {
  int n = 0;
  for (int c = 0; c < POOL_CLASSES; c++)
    n += f->pool.classes[c].n_taken;
  return n;
}

/* Buffers go back to the pool, and a step like the one before needs no memory. */
static void doubts_leave_nothing_behind(void **state) {
  struct fixture f;
  int capacity = 0;
  const struct accepted *accepted = NULL;
  (void)state;
  fixture_init(&f, 8);
  for (int step = 0; step < 3; step++) {
    for (uint32_t m = 0; m < 8; m++)
      push(&f, m, 0, m == 5 ? LIARS_FROM : 1 + m);
    for (uint32_t m = 0; m < 8; m++)
      push(&f, m, 0, OTHER);
    assert_whole(&f);
    fixture_begin(&f);
    assert_int_equal(count_taken(&f), 0);
    if (step > 0) {
      assert_int_equal(f.round.accepted_capacity, capacity);
      assert_ptr_equal(f.round.accepted, accepted);
    }
    capacity = f.round.accepted_capacity;
    accepted = f.round.accepted;
  }
  fixture_fini(&f);
}

static void marks_are_set_and_read_as_ranges(void **state) {
  enum { N = 200 };
  (void)state;
  for (uint64_t seed = 0; seed < 2000; seed++) {
    uint64_t marks[4] = {0};
    bool is_marked[N] = {false};
    uint32_t at = 0;
    assert_int_equal(marks_words(N), 4);
    for (int i = 0; i < 4; i++) {
      uint64_t bits = random_bits(seed, (uint64_t)i);
      uint32_t begin = (uint32_t)bits % N, end = begin + (uint32_t)(bits >> 32) % (N + 1 - begin);
      marks_set(marks, begin, end);
      memset(is_marked + begin, true, end - begin);
    }
    for (uint32_t begin = 0, end; marks_next(marks, N, &begin, &end); begin = end) {
      for (; at < begin; at++)
        assert_false(is_marked[at]);
      for (; at < end; at++)
        assert_true(is_marked[at]);
      assert_true(end == N || !is_marked[end]);
    }
    for (; at < N; at++)
      assert_false(is_marked[at]);
  }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_lying_part_is_found_in_any_order),
      cmocka_unit_test(a_lying_sum_is_found_by_its_own_node),
      cmocka_unit_test(only_what_is_in_the_sum_is_doubted),
      cmocka_unit_test(other_parts_stay_while_some_are_doubted),
      cmocka_unit_test(a_part_above_what_is_doubted_does_not_hide_it),
      cmocka_unit_test(a_sum_that_overflows_again_without_a_change_has_diverged),
      cmocka_unit_test(an_only_sender_is_believed_the_first_time),
      cmocka_unit_test(a_lying_part_that_is_sent_again_does_not_pass_for_computed),
      cmocka_unit_test(parts_that_are_unsettled_twice_are_judged),
      cmocka_unit_test(what_overflows_again_with_a_change_goes_round_again),
      cmocka_unit_test(doubts_lie_within_doubts),
      cmocka_unit_test(whoever_pushes_what_the_honest_bits_come_out),
      cmocka_unit_test(doubts_leave_nothing_behind),
      cmocka_unit_test(marks_are_set_and_read_as_ranges),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
