/* What every process must agree on: orders of samples, nodes of trees, owners of blocks, boundaries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/placement.h"
#include "common/agree/plan.h"
#include "common/agree/random.h"
#include "common/agree/spec.h"
#include "common/agree/tree.h"
#include "common/base/memory.h"

static void a_keyed_permutation_visits_every_index_once(void **state) {
  static const uint64_t counts[] = {1, 2, 3, 5, 16, 17, 1000, 4097};
  (void)state;
  for (unsigned c = 0; c < sizeof counts / sizeof *counts; c++) {
    unsigned char *seen = mem_new(counts[c]);
    for (uint64_t i = 0; i < counts[c]; i++)
      seen[random_permute(random_key(7, c, 0, 0), i, counts[c])]++;
    for (uint64_t i = 0; i < counts[c]; i++)
      assert_int_equal(seen[i], 1);
    free(seen);
  }
}

static void another_key_gives_another_order(void **state) {
  int same = 0;
  (void)state;
  for (uint64_t i = 0; i < 1000; i++)
    same +=
        random_permute(random_key(1, 1, 0, 0), i, 1000) == random_permute(random_key(1, 1, 1, 0), i, 1000);
  assert_true(same < 20);
}

static void a_shuffled_epoch_is_spread_over_the_whole_dataset(void **state) {
  uint64_t moved = 0, first_half = 0;
  (void)state;
  for (uint64_t i = 0; i < 10000; i++) {
    uint64_t to = random_permute(random_key(3, 1, 0, 0), i, 10000);
    moved += to != i;
    first_half += i < 5000 && to < 5000;
  }
  assert_true(moved > 9900);
  assert_in_range(first_half, 2350, 2650);
}

static void a_tree_node_is_valid_only_where_the_tree_has_it(void **state) {
  (void)state;
  assert_true(tree_node_is_valid((struct tree_node){4, 1}, 6));
  assert_true(tree_node_is_valid((struct tree_node){0, 3}, 6));
  assert_false(tree_node_is_valid((struct tree_node){6, 0}, 6));
  assert_false(tree_node_is_valid((struct tree_node){2, 2}, 6));
  assert_false(tree_node_is_valid((struct tree_node){0, 4}, 6));
  assert_false(tree_node_is_valid((struct tree_node){0, 40}, 6));
  assert_false(tree_node_is_valid((struct tree_node){0, 0}, 0));
}

static void a_node_without_a_sibling_is_named_by_its_highest_equal(void **state) {
  struct tree_node sibling, node = tree_canonical((struct tree_node){4, 1}, 6);
  (void)state;
  assert_int_equal(node.first, 4);
  assert_int_equal(node.level, 2);
  assert_true(tree_sibling(node, 6, &sibling));
  assert_int_equal(sibling.first, 0);
  assert_true(tree_is_same(tree_canonical((struct tree_node){0, 0}, 1), tree_root(1)));
  assert_true(tree_is_same(tree_canonical((struct tree_node){4, 0}, 5), (struct tree_node){4, 2}));
}

static void blocks_are_balanced_by_bytes_over_any_number_of_servers(void **state) {
  uint32_t elems[41], owner[41];
  (void)state;
  for (uint32_t b = 0; b < 41; b++)
    elems[b] = b % 5 == 0 ? 65536 : 1000 + b;
  for (uint32_t servers = 1; servers <= 7; servers++) {
    uint64_t load[7] = {0}, most = 0, least = UINT64_MAX;
    placement_compute(elems, 41, servers, owner);
    for (uint32_t b = 0; b < 41; b++) {
      assert_true(owner[b] < servers);
      load[owner[b]] += elems[b];
    }
    for (uint32_t s = 0; s < servers; s++) {
      most = load[s] > most ? load[s] : most;
      least = load[s] < least ? load[s] : least;
    }
    assert_true(most - least <= 65536);
  }
}

static void boundaries_are_whole_epochs(void **state) {
  struct plan plan = {.train_samples = 1000,
                      .eval_samples = 10,
                      .steps = 23,
                      .batch = 128,
                      .seed = 5,
                      .microbatches = 4,
                      .microbatch_samples = 32};
  int evaluated = 0;
  (void)state;
  for (uint64_t version = 0; version <= 23; version++)
    evaluated += plan_evaluates(&plan, version);
  assert_true(plan_evaluates(&plan, 7) && plan_evaluates(&plan, 15) && plan_evaluates(&plan, 23));
  assert_int_equal(evaluated, 3);
  assert_int_equal(plan_epoch(&plan, 7), 0);
  assert_int_equal(plan_epoch(&plan, 8), 1);
}

static void versions_are_evaluated_besides_and_the_next_one_is_found(void **state) {
  struct plan plan = {.train_samples = 1000,
                      .eval_samples = 10,
                      .steps = 23,
                      .batch = 128,
                      .eval_at = {3, 15, 20},
                      .n_eval_at = 3};
  struct err err = ERR_NONE;
  (void)state;
  for (uint64_t every = 0; every <= 24; every++) {
    plan.eval_every_steps = every; /* 0: after each epoch */
    for (uint64_t from = 0; from <= 24; from++) {
      uint64_t next = from;
      while (next <= 23 && !plan_evaluates(&plan, next))
        next++;
      assert_true(plan_next_evaluated(&plan, from) == (next <= 23 ? next : UINT64_MAX));
    }
    assert_true(plan_evaluates(&plan, 3) && plan_evaluates(&plan, 15) && plan_evaluates(&plan, 20));
  }
  plan.eval_every_steps = 10;
  assert_int_equal(plan_check_hold(&plan, 15, &err) | plan_check_hold(&plan, 10, &err), 0);
  assert_int_equal(plan_check_hold(&plan, 23, &err), 0);
  assert_int_equal(plan_check_hold(&plan, 16, &err), ERR_INVALID);
  assert_string_equal(err.text,
                      "train.hold: version 16 is not evaluated, the next that is evaluated is 20: hold "
                      "the run there, or name 16 in eval.at");
  assert_int_equal(plan_check_hold(&plan, 24, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "there will be no version 24, the run's last is 23"));
  plan.eval_samples = 0; /* then anywhere */
  assert_int_equal(plan_check_hold(&plan, 16, &err), 0);
  assert_true(plan_next_evaluated(&plan, 1) == UINT64_MAX);
}

static Weir__RunSpec *epochs_spec(void) {
  static const char text[] =
      "name: a\nmodel: {onnx: a.onnx}\ndata: {train: {format: npy, columns: {x: x.npy}}, "
      "split: [0.5, 0.5]}\neval: {every_steps: 100, at_epochs: [0.5, 1, 3]}\n"
      "train: {epochs: 3, batch: 128, hold_epochs: 1, optimizer: {lr: 0.1}}\n";
  Weir__RunSpec *spec;
  struct err err = ERR_NONE;
  if (spec_read("a.yaml", text, strlen(text), &spec, &err) || spec_check(spec, &err))
    fail_msg("%s", err.text);
  return spec;
}

static void ends_of_epochs_are_versions_once_the_data_is_known(void **state) {
  Weir__RunSpec *spec = epochs_spec();
  struct plan plan;
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(plan_init(&plan, spec, 1000, 10, &err), 0);
  assert_int_equal(plan.steps, 23);
  for (uint64_t version = 0; version <= 23; version++)
    assert_int_equal(plan_evaluates(&plan, version), version == 3 || version == 7 || version == 23);
  assert_int_equal(plan_init(&plan, spec, 200, 10, &err), ERR_INVALID);
  assert_string_equal(err.text, "eval.at_epochs: 0.5 epochs of 200 samples make no batch of 128");
  spec->eval->at_epochs[0] = 0.9;
  assert_int_equal(plan_init(&plan, spec, 200, 10, &err), 0);
  plan_fix_hold(&plan, spec->train);
  assert_true(spec->train->has_hold && spec->train->hold == 1 && !spec->train->has_hold_epochs);
  spec_free(spec);
}

static void a_hold_by_epochs_is_checked_when_the_data_is_known(void **state) {
  Weir__RunSpec *spec = epochs_spec();
  struct plan plan;
  struct err err = ERR_NONE;
  (void)state;
  spec->train->hold_epochs = 2;
  assert_int_equal(plan_init(&plan, spec, 1000, 10, &err), ERR_INVALID);
  assert_string_equal(
      err.text, "train.hold_epochs: train.hold: version 15 is not evaluated, the next that is evaluated is "
                "23: hold the run there, or name 15 in eval.at");
  spec->eval->n_at_epochs = 0;
  spec->train->hold_epochs = 0.1;
  assert_int_equal(plan_init(&plan, spec, 1000, 10, &err), ERR_INVALID);
  assert_string_equal(err.text, "train.hold_epochs: 0.1 epochs of 1000 samples make no batch of 128");
  spec_free(spec);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_keyed_permutation_visits_every_index_once),
      cmocka_unit_test(another_key_gives_another_order),
      cmocka_unit_test(a_shuffled_epoch_is_spread_over_the_whole_dataset),
      cmocka_unit_test(a_tree_node_is_valid_only_where_the_tree_has_it),
      cmocka_unit_test(a_node_without_a_sibling_is_named_by_its_highest_equal),
      cmocka_unit_test(blocks_are_balanced_by_bytes_over_any_number_of_servers),
      cmocka_unit_test(boundaries_are_whole_epochs),
      cmocka_unit_test(versions_are_evaluated_besides_and_the_next_one_is_found),
      cmocka_unit_test(ends_of_epochs_are_versions_once_the_data_is_known),
      cmocka_unit_test(a_hold_by_epochs_is_checked_when_the_data_is_known),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
