/* Updates that need sums over all blocks, or over a tensor that several blocks hold. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/parameters/parameters_calls.h"
#include "tests/support/parameters/snapshot_fixture.h"

enum { PARAM_BLOCKS = 3 };

static const Weir__LoadRun *clipped_order(double norm, double value) {
  const Weir__LoadRun *order = make_order(1, 1);
  order->spec->train->has_clip_norm = norm > 0;
  order->spec->train->clip_norm = norm;
  order->spec->train->has_clip_value = value > 0;
  order->spec->train->clip_value = value;
  return order;
}

/* The parts of a step, of which the last cannot complete the version yet. */
static void push_and_wait(struct parameters_fixture *f, uint32_t block, uint64_t step) {
  push_all_but_last(f, block, step);
  push_part(f, block, step, MICROBATCHES - 1, step);
}

static double norm_of(double grad) {
  return grad * sqrt(block_elems[0] + block_elems[1] + block_elems[2]);
}

static void assert_near(float found, double expected) {
  if (fabs(found - expected) > 1e-6 * fmax(1e-2, fabs(expected)))
    fail_msg("%.9g, expected %.9g", (double)found, expected);
}

static void gradients_are_clipped_by_their_common_norm(void **state) {
  struct parameters_fixture f;
  float before[PARAM_BLOCKS], after;
  double first = 21, second = 27, velocity = 0;
  (void)state;
  parameters_fixture_init_order(&f, clipped_order(1, 0));
  for (uint32_t b = 0; b < PARAM_BLOCKS; b++)
    pull_first_element(&f, b, 0, &before[b]);
  for (uint32_t b = 0; b < PARAM_BLOCKS; b++)
    push_and_wait(&f, b, 0);
  velocity = first / (norm_of(first) + 1e-6);
  for (uint32_t b = 0; b < PARAM_BLOCKS; b++) {
    pull_first_element(&f, b, 1, &after);
    assert_near(after - before[b], -0.5 * velocity);
    before[b] = after;
  }
  push_step(&f, STATISTICS_BLOCK, 0);
  for (uint32_t b = PARAM_BLOCKS; b-- > 0;)
    push_and_wait(&f, b, 1);
  velocity = 0.5 * velocity + second / (norm_of(second) + 1e-6);
  for (uint32_t b = 0; b < PARAM_BLOCKS; b++) {
    pull_first_element(&f, b, 2, &after);
    assert_near(after - before[b], -0.5 * velocity);
  }
  parameters_fixture_fini(&f);
}

static void gradients_below_the_norm_are_left_alone(void **state) {
  struct parameters_fixture f;
  float before, after;
  (void)state;
  parameters_fixture_init_order(&f, clipped_order(1e6, 0));
  pull_first_element(&f, 1, 0, &before);
  for (uint32_t b = 0; b < PARAM_BLOCKS; b++)
    push_and_wait(&f, b, 0);
  pull_first_element(&f, 1, 1, &after);
  assert_true(after == before - 0.5f * 21);
  parameters_fixture_fini(&f);
}

static void gradients_are_clipped_by_value_at_once(void **state) {
  struct parameters_fixture f;
  float before, after;
  (void)state;
  parameters_fixture_init_order(&f, clipped_order(0, 2.5));
  pull_first_element(&f, 0, 0, &before);
  push_step(&f, 0, 0);
  pull_first_element(&f, 0, 1, &after);
  assert_true(after == before - 0.5f * 2.5f);
  parameters_fixture_fini(&f);
}

static void a_part_of_a_step_that_waits_for_sums_is_covered(void **state) {
  struct parameters_fixture f;
  struct attempt late;
  float before, after;
  (void)state;
  parameters_fixture_init_order(&f, clipped_order(1, 0));
  pull_first_element(&f, 0, 0, &before);
  push_and_wait(&f, 0, 0);
  push_part(&f, 0, 0, 2, 0);
  start_waiting_part(&f, &late, 0, 0, 3);
  wait_parked(&f, 0, 1);
  push_and_wait(&f, 1, 0);
  push_and_wait(&f, 2, 0);
  finish_with_version(&late, 1);
  pull_first_element(&f, 0, 1, &after);
  assert_near(after - before, -0.5 * 21 / norm_of(21));
  parameters_fixture_fini(&f);
}

static void unloading_a_run_whose_blocks_wait_for_sums_leaks_nothing(void **state) {
  struct parameters_fixture f;
  struct attempt waiting;
  (void)state;
  parameters_fixture_init_order(&f, clipped_order(1, 0));
  push_and_wait(&f, 0, 0);
  push_and_wait(&f, 2, 0);
  start_waiting_part(&f, &waiting, 0, 0, 0);
  wait_parked(&f, 0, 1);
  run_table_remove(&f.runs, "unit-1", "it was cancelled");
  finish_with_error(&waiting, ERR_CANCELLED, "run 'unit-1' was unloaded: it was cancelled");
  parameters_fixture_fini(&f);
}

static const Weir__LoadRun *order_of(const char *optimizer) {
  const Weir__LoadRun *order = clipped_order(1, 0);
  order->spec->train->optimizer->name = (char *)optimizer;
  order->spec->train->optimizer->has_momentum = strcmp(optimizer, "sgd") == 0;
  return order;
}

static void read_all(const struct hosted_run *run, void *content[PARAM_BLOCKS], size_t size_bytes[]) {
  for (uint32_t b = 0; b < PARAM_BLOCKS; b++)
    content[b] = read_content(run, b, &size_bytes[b]);
}

/* Two steps; a checkpoint of version 1 may be ordered while two blocks wait for the sums of the second. */
static void train_two_steps(const char *optimizer, bool is_written, void *content[PARAM_BLOCKS],
                            size_t size_bytes[]) {
  struct snapshot_fixture f;
  void *first[PARAM_BLOCKS];
  float element;
  snapshot_fixture_init_order(&f, order_of(optimizer));
  for (uint32_t b = 0; b < PARAM_BLOCKS; b++)
    push_and_wait(&f.server, b, 0);
  push_step(&f.server, STATISTICS_BLOCK, 0);
  for (uint32_t b = 0; b < PARAM_BLOCKS; b++)
    pull_first_element(&f.server, b, 1, &element);
  read_all(f.run, first, size_bytes);
  push_and_wait(&f.server, 2, 1);
  push_and_wait(&f.server, 0, 1);
  double_hang(&f.store, true);
  if (is_written)
    order_snapshot(&f, 1);
  wait_shards(&f);
  push_and_wait(&f.server, 1, 1);
  for (uint32_t b = 0; b < PARAM_BLOCKS; b++)
    pull_first_element(&f.server, b, 2, &element);
  double_hang(&f.store, false);
  for (uint32_t b = 0; b < PARAM_BLOCKS; b++) {
    if (is_written) {
      const Weir__BlocksWritten *written = wait_written(&f, 1, 1);
      const struct double_item *item = double_find(&f.store, written->blocks[b]->sha256);
      assert_int_equal(item->size, size_bytes[b]);
      assert_memory_equal(item->data, first[b], item->size);
    }
    free(first[b]);
  }
  read_all(f.run, content, size_bytes);
  snapshot_fixture_fini(&f);
}

static void a_checkpoint_that_is_ordered_while_sums_are_awaited_is_of_the_version_before(void **state) {
  static const char *const optimizers[] = {"sgd", "lamb", "lars", "adafactor"};
  (void)state;
  for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
    void *calm[PARAM_BLOCKS], *written[PARAM_BLOCKS];
    size_t size_bytes[PARAM_BLOCKS];
    train_two_steps(optimizers[o], false, calm, size_bytes);
    train_two_steps(optimizers[o], true, written, size_bytes);
    for (uint32_t b = 0; b < PARAM_BLOCKS; b++) {
      assert_memory_equal(calm[b], written[b], size_bytes[b]);
      free(calm[b]);
      free(written[b]);
    }
  }
}

/* Weights as no gradient would make them: their sums of squares are no number. */
static void weights_that_have_overflowed_end_the_step_with_an_error(void **state) {
  struct parameters_fixture f;
  struct attempt waiting, last, late;
  struct err err;
  struct hosted_run *run;
  (void)state;
  parameters_fixture_init_order(&f, order_of("lamb"));
  run = run_table_find(&f.runs, "unit-1", 1, &err);
  ((float *)run->blocks[run->own[2]].current->data)[5] = INFINITY;
  start_waiting_part(&f, &waiting, 2, 0, 0);
  wait_parked(&f, 2, 1);
  for (uint32_t b = 0; b < 2; b++)
    push_and_wait(&f, b, 0);
  for (uint32_t m = 1; m < MICROBATCHES - 1; m++)
    push_part(&f, 2, 0, m, 0);
  start_part(&f, &last, 2, 0, MICROBATCHES - 1); /* then the norm of all gradients, then LAMB's sums */
  finish_with_version(&last, 0);
  finish_with_error(&waiting, ERR_INVALID,
                    "run 'unit-1': block 2 of step 0: a sum over weights and gradient that its update takes "
                    "is not finite");
  start_waiting_part(&f, &late, 2, 0, 1);
  finish_with_error(&late, ERR_INVALID, "is not finite");
  hosted_run_put(run);
  parameters_fixture_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_are_clipped_by_their_common_norm),
      cmocka_unit_test(gradients_below_the_norm_are_left_alone),
      cmocka_unit_test(gradients_are_clipped_by_value_at_once),
      cmocka_unit_test(a_part_of_a_step_that_waits_for_sums_is_covered),
      cmocka_unit_test(unloading_a_run_whose_blocks_wait_for_sums_leaks_nothing),
      cmocka_unit_test(a_checkpoint_that_is_ordered_while_sums_are_awaited_is_of_the_version_before),
      cmocka_unit_test(weights_that_have_overflowed_end_the_step_with_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
