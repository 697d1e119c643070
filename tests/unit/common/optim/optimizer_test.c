/* Every optimizer, with several sets of options, follows PyTorch's float64 for 20 steps
   (tests/parity/optimizers.json, which optimizers.py beside it makes). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/optim/piece.h"
#include "common/optim/schedule.h"
#include "tests/support/common/optimizer_numbers.h"

enum { ELEMS = 16, STEPS = 20, SLOTS_MAX = 4, SUMS_MAX = 4 };

static const double tolerance = 1e-5;

/* A case of the file. */
struct trial {
  json_t *json;
  char *options; /* as text */
  Weir__RunSpec *spec;
  const struct optimizer_def *optimizer;
};

static void trial_init(struct trial *trial, json_t *json) {
  struct err err = ERR_NONE;
  char *schedule = json_dumps(json_object_get(json, "schedule"), JSON_REAL_PRECISION(15)), *text;
  trial->json = json;
  trial->options = json_dumps(json_object_get(json, "options"), JSON_REAL_PRECISION(15));
  text = mem_printf("train: {optimizer: %s, schedule: %s}", trial->options, schedule);
  if (spec_read("options", text, strlen(text), &trial->spec, &err) ||
      optimizer_settle(trial->spec->train->optimizer, &err) ||
      schedule_settle(trial->spec->train->schedule, &err))
    fail_msg("%s: %s", trial->options, err.text);
  trial->optimizer = optimizer_find(trial->spec->train->optimizer->name);
  free(text);
  free(schedule);
}

static void trial_fini(struct trial *trial) {
  spec_free(trial->spec);
  free(trial->options);
}

static void assert_weights(const struct trial *trial, int step, const float *weights) {
  json_t *expected = json_array_get(json_object_get(trial->json, "weights"), (size_t)step);
  assert_int_equal(json_array_size(expected), ELEMS);
  for (int i = 0; i < ELEMS; i++) {
    double value = json_real_value(json_array_get(expected, (size_t)i));
    if (!(fabs(weights[i] - value) <= tolerance * fabs(value)))
      fail_msg("%s: step %d, element %d: %.9g, expected %.9g", trial->options, step, i, (double)weights[i],
               value);
  }
}

/* As of a tensor that one block holds whole: its sums are the totals. */
static void update_once(const struct optimizer_def *optimizer, const Weir__OptimizerSpec *spec,
                        struct optimizer_update *update) {
  struct piece piece = {.shape = {1, {ELEMS}}, .tensor_elems = ELEMS, .elems = ELEMS};
  double sums[OPTIMIZER_PHASES_MAX][SUMS_MAX];
  update->piece = &piece;
  for (uint32_t phase = 0; phase < optimizer->n_phases; phase++) {
    assert_in_range(optimizer->sums(spec, update, phase, sums[phase]), 1, SUMS_MAX);
    update->totals[phase] = sums[phase];
  }
  optimizer->update(spec, update);
}

/* Slots are updated in place, or in odd steps written to other memory, as while a checkpoint holds them. */
static void train(const struct trial *trial, bool is_in_place, float *weights) {
  const Weir__OptimizerSpec *settled = trial->spec->train->optimizer, *spec = settled;
  struct step_options own;
  float next[ELEMS], grads[ELEMS], slots[2][SLOTS_MAX * ELEMS] = {{0}};
  struct optimizer_update update = {.elems = ELEMS, .weights = weights, .grad = grads, .out = next};
  int present = 0;
  assert_in_range(trial->optimizer->slots(spec), 0, SLOTS_MAX);
  if (trial->optimizer->init_slots)
    trial->optimizer->init_slots(spec, ELEMS, slots[0]);
  for (int i = 0; i < ELEMS; i++)
    weights[i] = made_up_weight(i);
  for (int step = 0; step < STEPS; step++) {
    update.step = (uint64_t)step;
    update.lr = schedule_lr(trial->spec->train->schedule, settled->lr, update.step, STEPS);
    spec = schedule_options(trial->spec->train->schedule, settled, update.step, STEPS, &own);
    for (int i = 0; i < ELEMS; i++)
      grads[i] = made_up_gradient(step, i);
    update.slots = slots[present];
    present ^= trial->optimizer->has_drafts || (!is_in_place && step % 2);
    update.next_slots = slots[present];
    update_once(trial->optimizer, spec, &update);
    memcpy(weights, next, sizeof next);
    assert_weights(trial, step, weights);
  }
}

static void every_optimizer_follows_pytorch_for_20_steps(void **state) {
  json_t *root = json_load_file("tests/parity/optimizers.json", 0, NULL), *cases, *json;
  size_t n_tried[64] = {0}, at;
  (void)state;
  cases = json_object_get(root, "cases");
  json_array_foreach(cases, at, json) {
    float in_place[ELEMS], copied[ELEMS];
    struct trial trial;
    trial_init(&trial, json);
    train(&trial, true, in_place);
    train(&trial, false, copied);
    assert_memory_equal(in_place, copied, sizeof in_place);
    for (int row = 0; optimizer_at(row); row++)
      n_tried[row] += optimizer_at(row) == trial.optimizer;
    trial_fini(&trial);
  }
  for (int row = 0; optimizer_at(row); row++)
    if (n_tried[row] == 0)
      fail_msg("%s: no numbers in tests/parity/optimizers.json", optimizer_at(row)->name);
  json_decref(root);
}

/* A gradient that is always 0 says nothing: only decay may move the weight, and nothing divides by zero. */
static void every_optimizer_leaves_weights_without_gradient(void **state) {
  (void)state;
  for (int row = 0; optimizer_at(row); row++) {
    Weir__OptimizerSpec *spec = mem_new(sizeof *spec);
    float weights[ELEMS], out[ELEMS], grads[ELEMS] = {0};
    float slots[SLOTS_MAX * ELEMS] = {0}, drafts[SLOTS_MAX * ELEMS] = {0};
    struct optimizer_update update = {.elems = ELEMS,
                                      .lr = 0.1,
                                      .weights = weights,
                                      .grad = grads,
                                      .out = out,
                                      .slots = slots,
                                      .next_slots = optimizer_at(row)->has_drafts ? drafts : slots};
    struct err err = ERR_NONE;
    weir__optimizer_spec__init(spec);
    spec->name = mem_strdup(optimizer_at(row)->name);
    assert_int_equal(optimizer_settle(spec, &err), 0);
    spec->weight_decay = 0;
    for (int i = 0; i < ELEMS; i++)
      weights[i] = made_up_weight(i);
    for (; update.step < STEPS; update.step++) {
      update_once(optimizer_at(row), spec, &update);
      assert_memory_equal(out, weights, sizeof out);
    }
    weir__optimizer_spec__free_unpacked(spec, NULL);
  }
}

static void assert_refused(const char *optimizer, const char *message) {
  char *text = mem_printf("train: {optimizer: %s}", optimizer);
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  assert_int_equal(spec_read("options", text, strlen(text), &spec, &err), 0);
  assert_int_equal(optimizer_settle(spec->train->optimizer, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, message));
  spec_free(spec);
  free(text);
}

static void nesterov_needs_momentum_and_no_dampening(void **state) {
  (void)state;
  assert_refused("{nesterov: true}", "train.optimizer.nesterov: needs a momentum above 0");
  assert_refused("{nesterov: true, momentum: 0.9, dampening: 0.5}",
                 "train.optimizer.nesterov: needs a dampening of 0, not 0.5");
}

static void an_unknown_optimizer_is_refused_with_the_known_ones(void **state) {
  (void)state;
  assert_refused("{name: sdg}", "train.optimizer.name: unknown optimizer 'sdg'; known: sgd, adam, adamw");
}

static void options_have_ranges(void **state) {
  (void)state;
  assert_refused("{name: adam, betas: [0.9]}", "train.optimizer.betas: wants 2 numbers, not 1");
  assert_refused("{name: adam, betas: [0.9, 1]}", "train.optimizer.betas: must be at least 0 and below 1");
  assert_refused("{name: adam, eps: 0}", "train.optimizer.eps: must be above 0");
  assert_refused("{name: adam, eps: 1e-60}", "train.optimizer.eps: must be above 0");
  assert_refused("{name: adam, rho: 0.9}", "train.optimizer.rho: is not an option of 'adam' (it has: betas,");
  assert_refused("{name: sgd, momentum: 1}", "train.optimizer.momentum: must be at least 0 and below 1");
  assert_refused("{name: lion, weight_decay: -1}", "train.optimizer.weight_decay: must be at least 0");
}

static bool are_alike(const char *a, const char *b) {
  char *text = mem_printf("train: {optimizer: {name: sgd, lr: 1, groups: [%s, %s]}}", a, b);
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  bool alike;
  assert_int_equal(spec_read("options", text, strlen(text), &spec, &err), 0);
  for (int i = 0; i < 2; i++)
    if (optimizer_settle(spec->train->optimizer->groups[i], &err))
      fail_msg("%s", err.text);
  alike = optimizer_slots_are_alike(spec->train->optimizer->groups[0], spec->train->optimizer->groups[1]);
  spec_free(spec);
  free(text);
  return alike;
}

static void slots_are_alike_where_they_mean_the_same(void **state) {
  (void)state;
  assert_true(are_alike("{lr: 1, momentum: 0.9}", "{lr: 2, momentum: 0.5, nesterov: true}"));
  assert_true(are_alike("{name: adam, lr: 1}", "{name: adam, lr: 1, betas: [0.5, 0.5], weight_decay: 1}"));
  assert_false(are_alike("{lr: 1}", "{lr: 1, momentum: 0.9}"));
  assert_false(are_alike("{name: adam, lr: 1}", "{name: adam, lr: 1, amsgrad: true}"));
  assert_false(are_alike("{name: adam, lr: 1}", "{name: adamw, lr: 1}"));
  assert_false(are_alike("{name: rmsprop, lr: 1, momentum: 0.5}", "{name: rmsprop, lr: 1, centered: true}"));
  assert_true(are_alike("{name: rmsprop, lr: 1, momentum: 0.5}", "{name: rmsprop, lr: 1, momentum: 0.6}"));
  assert_true(are_alike("{lr: 1, groups: [{params: [a], momentum: 0.9}]}",
                        "{lr: 1, groups: [{params: [b], momentum: 0.5}]}"));
  assert_false(
      are_alike("{lr: 1, groups: [{params: [a], momentum: 0.9}]}", "{lr: 1, groups: [{params: [a]}]}"));
  assert_false(are_alike("{lr: 1, groups: [{params: [a]}]}", "{lr: 1}"));
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_optimizer_follows_pytorch_for_20_steps),
      cmocka_unit_test(every_optimizer_leaves_weights_without_gradient),
      cmocka_unit_test(nesterov_needs_momentum_and_no_dampening),
      cmocka_unit_test(an_unknown_optimizer_is_refused_with_the_known_ones),
      cmocka_unit_test(options_have_ranges),
      cmocka_unit_test(slots_are_alike_where_they_mean_the_same),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
