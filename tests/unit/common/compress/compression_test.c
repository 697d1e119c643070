/* Which sums are compressed: the wire level of each tree beside the definition by sets of microbatches; and
   what train.compression refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/compress/compression.h"
#include "common/settle/spec_settle.h"

enum { V_MAX = 33, SPEC_SIZE = 2048 };

static struct compression compression_with(uint32_t microbatches, uint32_t parts) {
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  Weir__CompressionSpec spec = WEIR__COMPRESSION_SPEC__INIT;
  train.microbatches = microbatches;
  train.compression = &spec;
  spec.gradients = "int8";
  spec.parts = parts;
  return compression_of(&train);
}

static uint64_t set_of(struct tree_node node, uint32_t microbatches) {
  uint64_t set = 0;
  for (uint32_t m = node.first; m < tree_node_end(node, microbatches); m++)
    set |= UINT64_C(1) << m;
  return set;
}

/* A node is as the group of microbatches that is compressed with its first one: as large, smaller, or larger.
 */
static void the_wire_level_cuts_each_tree_into_no_more_than_so_many_parts(void **state) {
  (void)state;
  for (uint32_t v = 1; v <= V_MAX; v++)
    for (uint32_t parts = 1; parts <= v; parts++) {
      struct compression compression = compression_with(v, parts);
      uint32_t group = 1, n_compressed = 0;
      while ((v + group - 1) / group > parts)
        group *= 2;
      for (uint32_t level = 0; level <= tree_root(v).level; level++)
        for (uint32_t first = 0; first < v; first += 1u << level) {
          struct tree_node node = {first, level};
          uint64_t set = set_of(node, v), wire = 0;
          enum sum_form form = compression_form(&compression, node);
          for (uint32_t m = first / group * group; m < v && m < first / group * group + group; m++)
            wire |= UINT64_C(1) << m;
          assert_int_equal(form, set == wire     ? SUM_IS_COMPRESSED
                                 : (set & ~wire) ? SUM_IS_TOO_HIGH
                                                 : SUM_IS_PLAIN);
          n_compressed += form == SUM_IS_COMPRESSED && tree_is_same(node, tree_canonical(node, v));
          if (tree_is_same(node, tree_canonical(node, v)))
            assert_int_equal(node.level >= compression_sum_level(&compression), form != SUM_IS_PLAIN);
        }
      assert_in_range(n_compressed, 1, parts);
    }
}

static void without_it_every_sum_is_plain(void **state) {
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  struct compression compression;
  (void)state;
  train.microbatches = 8;
  compression = compression_of(&train);
  assert_null(compression.gradients);
  assert_null(compression.weights);
  for (uint32_t level = 0; level <= 3; level++)
    assert_int_equal(compression_form(&compression, (struct tree_node){0, level}), SUM_IS_PLAIN);
  assert_true(compression_sum_level(&compression) > 3);
}

static void each_sum_of_a_run_draws_for_itself(void **state) {
  struct compression compression = compression_with(8, 4);
  uint64_t key = compression_key(&compression, &(struct wire_sum){3, 2, {4, 1}});
  (void)state;
  assert_true(key == compression_key(&compression, &(struct wire_sum){3, 2, {4, 1}}));
  assert_true(key != compression_key(&compression, &(struct wire_sum){4, 2, {4, 1}}));
  assert_true(key != compression_key(&compression, &(struct wire_sum){3, 3, {4, 1}}));
  assert_true(key != compression_key(&compression, &(struct wire_sum){3, 2, {6, 1}}));
  compression.seed++;
  assert_true(key != compression_key(&compression, &(struct wire_sum){3, 2, {4, 1}}));
}

/* What the spec with that section says. */
static int settle(const char *train, const char *tail, struct err *err) {
  char text[SPEC_SIZE];
  Weir__RunSpec *spec;
  snprintf(text, sizeof text,
           "name: test\nmodel: {onnx: model.onnx, loss: cross_entropy}\n"
           "data: {train: {format: npy, columns: {x: x.npy}}}\n"
           "train:\n  steps: 5\n  batch: 8\n  microbatches: 8\n  optimizer: {lr: 0.1}\n%s%s",
           train, tail);
  *err = ERR_NONE;
  if (spec_read("spec.yaml", text, strlen(text), &spec, err))
    return err->code;
  if (spec_check(spec, err) == 0)
    spec_settle(spec, err);
  spec_free(spec);
  return err->code;
}

static void what_cannot_be_is_refused_with_the_key_and_what_to_do(void **state) {
  static const struct {
    const char *train, *tail, *text;
  } cases[] = {
      {"  compression: {}\n", "", "train.compression: says of neither gradients nor weights"},
      {"  compression: {gradients: int8}\n", "", "train.compression.parts: must be given with gradients"},
      {"  compression: {gradients: int8, parts: 0}\n", "", "train.compression.parts: must be from 1 to"},
      {"  compression: {gradients: int8, parts: 9}\n", "", "train.compression.parts: must be from 1 to"},
      {"  compression: {weights: bf16, parts: 2}\n", "", "train.compression.parts: is of"},
      {"  compression: {gradients: int4, parts: 2}\n", "",
       "train.compression.gradients: 'int4' is not known (known: bf16, int8, top1, top4, top16)"},
      {"  compression: {gradients: top4, parts: 2}\n", "",
       "train.compression.gradients: top4 has each worker keep what it has not sent, so that no two runs are "
       "alike: set train.deterministic to false"},
      {"  compression: {weights: top16}\n", "", "train.compression.weights: top16 is too coarse for weights"},
      {"  compression: {weights: fp8}\n", "", "train.compression.weights: 'fp8' is not known"},
      {"  compression: {weights: int8}\n", "", "train.compression.weights: int8 is too coarse for weights"},
      {"  compression: {gradients: bf16, parts: 2}\n  mode: ssp\n  staleness: 1\n", "",
       "train.compression: is for train.mode sync, which is 'ssp' here"},
      {"  compression: {gradients: bf16, parts: 2}\n  mode: async\n", "",
       "train.compression: is for train.mode"},
      {"  compression: {weights: bf16}\n  mode: local\n  local: {replicas: 2, inner_steps: 2}\n", "",
       "train.compression: is for train.mode"},
      {"  compression: {gradients: bf16, parts: 2}\n  collective: shm\n", "",
       "train.compression: workers that reduce among themselves send f32: set train.collective"},
      {"  compression: {gradients: bf16, parts: 2}\n", "workers: {stages: 2}\n",
       "train.compression: a model in stages is trained without it: set workers.stages to 1"},
  };
  struct err err;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(settle(cases[i].train, cases[i].tail, &err), ERR_INVALID);
    if (strncmp(err.text, cases[i].text, strlen(cases[i].text)) != 0)
      fail_msg("%s: %s", cases[i].train, err.text);
  }
}

static void what_can_be_is_taken(void **state) {
  static const char *const sections[] = {
      "",
      "  compression: {gradients: bf16, parts: 1}\n",
      "  compression: {gradients: int8, parts: 8}\n",
      "  compression: {weights: bf16}\n",
      "  compression: {gradients: int8, parts: 3, weights: bf16}\n",
      "  deterministic: false\n  compression: {gradients: top1, parts: 3, weights: bf16}\n"};
  struct err err;
  (void)state;
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
    if (settle(sections[i], "", &err))
      fail_msg("%s: %s", sections[i], err.text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_wire_level_cuts_each_tree_into_no_more_than_so_many_parts),
      cmocka_unit_test(without_it_every_sum_is_plain),
      cmocka_unit_test(each_sum_of_a_run_draws_for_itself),
      cmocka_unit_test(what_cannot_be_is_refused_with_the_key_and_what_to_do),
      cmocka_unit_test(what_can_be_is_taken),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
