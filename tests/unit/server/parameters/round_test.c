/* However the parts of a step come, their sum has the bits of the full tree. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "server/parameters/round/round.h"

enum { ELEMS = 5, MICROBATCHES_HERE_MAX = 16, SEQUENCES = 20000 };

struct fixture {
  uint32_t microbatches;
  struct budget budget;
  struct pool pool;
  struct round round;
  float leaf[MICROBATCHES_HERE_MAX][ELEMS];
  float whole[ELEMS]; /* the full tree's sum */
};

/* The tree's sum by its definition: left + right, an absent child adds nothing. */
static void sum_node(const struct fixture *fixture, struct tree_node node, float *out) {
  struct tree_node left = {node.first, node.level - 1}, right = left;
  float of_right[ELEMS];
  if (node.level == 0) {
    memcpy(out, fixture->leaf[node.first], sizeof of_right);
    return;
  }
  right.first += 1u << left.level;
  sum_node(fixture, left, out);
  if (right.first >= fixture->microbatches)
    return;
  sum_node(fixture, right, of_right);
  for (int i = 0; i < ELEMS; i++)
    out[i] += of_right[i];
}

static void fixture_init(struct fixture *fixture, uint32_t microbatches) {
  fixture->microbatches = microbatches;
  for (uint32_t m = 0; m < microbatches; m++)
    for (int i = 0; i < ELEMS; i++)
      fixture->leaf[m][i] = ldexpf(random_uniform(7, m * ELEMS + (uint64_t)i) - 0.5f,
                                   (int)(random_bits(8, m + (uint64_t)i) % 12));
  sum_node(fixture, tree_root(microbatches), fixture->whole);
  fixture->budget = (struct budget){.bytes_max = SIZE_MAX};
  pool_init(&fixture->pool, &fixture->budget);
  round_init(&fixture->round, microbatches, ELEMS, &fixture->pool);
}

static void fixture_fini(struct fixture *fixture) {
  round_fini(&fixture->round);
  pool_fini(&fixture->pool);
}

static void push(struct fixture *fixture, struct tree_node node) {
  float values[ELEMS];
  struct part part = {.node = node, .values = values};
  struct err err = ERR_NONE;
  sum_node(fixture, node, values);
  if (round_add(&fixture->round, &part, &err))
    fail_msg("(%u, %u): %s", node.first, node.level, err.text);
}

static void assert_whole_and_clear(struct fixture *fixture) {
  const float *sum = round_sum(&fixture->round);
  assert_non_null(sum);
  assert_memory_equal(sum, fixture->whole, sizeof fixture->whole);
  round_clear(&fixture->round);
  assert_null(round_sum(&fixture->round));
}

/* Every order of nodes[done .. n), by exchange. */
static void push_in_every_order(struct fixture *fixture, struct tree_node *nodes, int n, int done) {
  if (done == n) {
    for (int i = 0; i < n; i++) {
      assert_null(round_sum(&fixture->round));
      push(fixture, nodes[i]);
    }
    assert_whole_and_clear(fixture);
    return;
  }
  for (int i = done; i < n; i++) {
    struct tree_node first = nodes[i];
    nodes[i] = nodes[done];
    nodes[done] = first;
    push_in_every_order(fixture, nodes, n, done + 1);
    nodes[done] = nodes[i];
    nodes[i] = first;
  }
}

/* Every way to cut the nodes waiting in todo into whole parts: each is kept, or split into its children. */
static int cut_every_way(struct fixture *fixture, struct tree_node *todo, int n_todo, struct tree_node *kept,
                         int n_kept) {
  struct tree_node node, rest[MICROBATCHES_HERE_MAX], nodes[MICROBATCHES_HERE_MAX];
  int ways;
  if (n_todo == 0) {
    memcpy(nodes, kept, (size_t)n_kept * sizeof *nodes);
    push_in_every_order(fixture, nodes, n_kept, 0);
    return 1;
  }
  memcpy(rest, todo, (size_t)n_todo * sizeof *rest);
  node = rest[--n_todo];
  kept[n_kept] = node;
  ways = cut_every_way(fixture, rest, n_todo, kept, n_kept + 1);
  while (node.level > 0) {
    struct tree_node right = {node.first + (1u << (node.level - 1)), node.level - 1};
    node.level--;
    if (right.first >= fixture->microbatches)
      continue; /* the left child is the same part */
    rest[n_todo] = right;
    rest[n_todo + 1] = node;
    return ways + cut_every_way(fixture, rest, n_todo + 2, kept, n_kept);
  }
  return ways;
}

static void every_cut_in_every_order_gives_the_same_bits(uint32_t microbatches, int expected_ways) {
  struct fixture fixture;
  struct tree_node todo[MICROBATCHES_HERE_MAX], kept[MICROBATCHES_HERE_MAX];
  fixture_init(&fixture, microbatches);
  todo[0] = tree_root(microbatches);
  assert_int_equal(cut_every_way(&fixture, todo, 1, kept, 0), expected_ways);
  fixture_fini(&fixture);
}

static void every_cut_of_8_in_every_order_gives_the_same_bits(void **state) {
  (void)state;
  every_cut_in_every_order_gives_the_same_bits(8, 26);
}

static void every_cut_of_6_in_every_order_gives_the_same_bits(void **state) {
  (void)state;
  every_cut_in_every_order_gives_the_same_bits(6, 11);
}

static void every_cut_of_1_in_every_order_gives_the_same_bits(void **state) {
  (void)state;
  every_cut_in_every_order_gives_the_same_bits(1, 1);
}

/* Nested, repeated, under any of a node's names: drawn until all is there. */
static void any_sequence_of_nodes_gives_the_same_bits(void **state) {
  static const uint32_t counts[] = {2, 3, 5, 6, 7, 8, 11, 13, 16};
  (void)state;
  for (int c = 0; c < 9; c++) {
    struct fixture fixture;
    uint64_t drawn = 0;
    fixture_init(&fixture, counts[c]);
    for (int s = 0; s < SEQUENCES / 9; s++) {
      while (!round_sum(&fixture.round)) {
        uint64_t bits = random_bits(9, drawn++);
        struct tree_node node = {.level = (uint32_t)((bits >> 32) % (tree_root(counts[c]).level + 1))};
        node.first = (uint32_t)(bits % counts[c]) >> node.level << node.level;
        if (node.level < tree_root(counts[c]).level || bits >> 60 == 0)
          push(&fixture, node);
      }
      assert_whole_and_clear(&fixture);
    }
    fixture_fini(&fixture);
  }
}

/* So that the tests above are able to fail. */
static void another_order_of_sums_gives_other_bits(void **state) {
  struct fixture fixture;
  float sum[ELEMS] = {0};
  (void)state;
  fixture_init(&fixture, 8);
  for (int m = 0; m < 8; m++)
    for (int i = 0; i < ELEMS; i++)
      sum[i] += fixture.leaf[m][i];
  assert_memory_not_equal(sum, fixture.whole, sizeof sum);
  fixture_fini(&fixture);
}

/* Also if all that it is covered by comes again: together such parts are a sum in its place. */
static void a_covered_part_is_ignored(void **state) {
  struct fixture fixture;
  float wrong[ELEMS] = {1e6f};
  struct part part = {.values = wrong};
  struct err err = ERR_NONE;
  (void)state;
  fixture_init(&fixture, 8);
  push(&fixture, (struct tree_node){0, 2});
  for (uint32_t m = 0; m < 4; m++) {
    part.node = (struct tree_node){m, 0};
    assert_int_equal(round_add(&fixture.round, &part, &err), 0);
  }
  push(&fixture, (struct tree_node){4, 2});
  assert_int_equal(round_add(&fixture.round, &part, &err), 0);
  assert_whole_and_clear(&fixture);
  fixture_fini(&fixture);
}

static void a_covering_part_replaces_what_it_contains(void **state) {
  struct fixture fixture;
  float wrong[ELEMS] = {1e6f};
  struct part part = {.node = {1, 0}, .values = wrong};
  struct err err;
  (void)state;
  fixture_init(&fixture, 8);
  assert_int_equal(round_add(&fixture.round, &part, &err), 0);
  push(&fixture, (struct tree_node){4, 2});
  push(&fixture, (struct tree_node){0, 2});
  assert_whole_and_clear(&fixture);
  fixture_fini(&fixture);
}

static void a_part_that_is_not_finite_is_refused_and_spoils_nothing(void **state) {
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  struct fixture fixture;
  struct err err;
  (void)state;
  fixture_init(&fixture, 8);
  push(&fixture, (struct tree_node){0, 0});
  for (int b = 0; b < 3; b++) {
    float values[ELEMS] = {1, 2, 3, bad[b], 5};
    struct part part = {.node = {1, 0}, .values = values};
    assert_int_equal(round_add(&fixture.round, &part, &err), ERR_INVALID);
    assert_ptr_equal(strstr(err.text, "element 3 is "), err.text);
  }
  for (uint32_t m = 1; m < 8; m++)
    push(&fixture, (struct tree_node){m, 0});
  assert_whole_and_clear(&fixture);
  fixture_fini(&fixture);
}

static bool offer(struct fixture *fixture, uint32_t microbatch) {
  struct part part = {.node = {microbatch, 0}, .values = fixture->leaf[microbatch]};
  struct err err = ERR_NONE;
  int code = round_add(&fixture->round, &part, &err);
  assert_true(code == 0 || code == ERR_BUSY);
  return code == 0;
}

/* However little may be held: who is refused comes again, and the step completes. The worst order is offered
   first, every second microbatch; then any. */
static void a_budget_that_is_spent_ends_no_step(void **state) {
  struct fixture fixture;
  uint64_t drawn = 0;
  int n_refused = 0;
  (void)state;
  fixture_init(&fixture, 16);
  for (size_t buffers = 0; buffers <= 4; buffers++) {
    fixture.budget.bytes_max = buffers * POOL_CLASS_BYTES_MIN;
    for (int s = 0; s < 50; s++) {
      for (uint32_t m = 1; m < 16; m += 2)
        n_refused += !offer(&fixture, m);
      while (!round_sum(&fixture.round))
        n_refused += !offer(&fixture, (uint32_t)(random_bits(10, drawn++) % 16));
      /* the sums of all before the first that is missing, one more and the one that comes */
      assert_in_range(fixture.budget.bytes, 0, (buffers + 4 + 2) * POOL_CLASS_BYTES_MIN);
      assert_whole_and_clear(&fixture);
    }
  }
  assert_true(n_refused > 0);
  fixture_fini(&fixture);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_cut_of_8_in_every_order_gives_the_same_bits),
      cmocka_unit_test(every_cut_of_6_in_every_order_gives_the_same_bits),
      cmocka_unit_test(every_cut_of_1_in_every_order_gives_the_same_bits),
      cmocka_unit_test(any_sequence_of_nodes_gives_the_same_bits),
      cmocka_unit_test(another_order_of_sums_gives_other_bits),
      cmocka_unit_test(a_covered_part_is_ignored),
      cmocka_unit_test(a_covering_part_replaces_what_it_contains),
      cmocka_unit_test(a_part_that_is_not_finite_is_refused_and_spoils_nothing),
      cmocka_unit_test(a_budget_that_is_spent_ends_no_step),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
