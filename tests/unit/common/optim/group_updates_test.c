/* Tensors in several parameter groups, and their average, follow PyTorch's float64 for 20 steps
   (tests/parity/groups.json, which groups.py beside it makes). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/optim/optimizer.h"
#include "common/optim/schedule.h"
#include "model/model.h"
#include "server/parameters/block/average.h"
#include "tests/support/common/optimizer_numbers.h"
#include "tests/support/model/onnx_build.h"

enum { STEPS = 20, SAMPLES = 4, ELEMS_MAX = 16, SLOTS_MAX = 4 };

static const double tolerance = 1e-5;

static Weir__RunSpec *read_spec(json_t *train) {
  char *options = json_dumps(train, JSON_REAL_PRECISION(15));
  char *text = mem_printf("{name: groups, model: {onnx: mlp.onnx}, "
                          "data: {train: {format: npy, columns: {x: x.npy, labels: y.npy}}}, "
                          "train: {steps: 20, batch: 4, %s}",
                          options + 1); /* without its brace */
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  if (spec_read("groups.json", text, strlen(text), &spec, &err) || spec_check(spec, &err) ||
      optimizer_settle(spec->train->optimizer, &err) || schedule_settle(spec->train->schedule, &err))
    fail_msg("%s: %s", text, err.text);
  free(text);
  free(options);
  return spec;
}

static struct model *open_model(const Weir__RunSpec *spec) {
  struct err err = ERR_NONE;
  struct onnx_build build;
  struct model *model;
  const void *bytes;
  size_t size;
  onnx_build_mlp(&build, 3, 4, 2); /* w1 [3,4], b1 [4], w2 [4,2], b2 [2] */
  bytes = onnx_build_pack(&build, &size);
  if (model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .spec = spec, .samples = SAMPLES},
                 &model, &err))
    fail_msg("%s", err.text);
  onnx_build_fini(&build);
  return model;
}

static void assert_values(json_t *steps, int step, const struct param *param, const float *values) {
  json_t *expected = json_object_get(json_array_get(steps, (size_t)step), param->name);
  assert_int_equal(json_array_size(expected), param->elems);
  for (int i = 0; i < (int)param->elems; i++) {
    double value = json_real_value(json_array_get(expected, (size_t)i));
    if (!(fabs(values[i] - value) <= tolerance * fabs(value)))
      fail_msg("step %d, %s[%d]: %.9g, expected %.9g", step, param->name, i, (double)values[i], value);
  }
}

/* As its block's updates make it, in the group that the model has put it in. */
static void train_param(json_t *json, const Weir__TrainSpec *train, const struct param *param) {
  const Weir__OptimizerSpec *options = optimizer_group(train->optimizer, param->group);
  float weights[ELEMS_MAX], next[ELEMS_MAX], grads[ELEMS_MAX], average[ELEMS_MAX];
  float slots[SLOTS_MAX * ELEMS_MAX] = {0};
  struct optimizer_update update = {.elems = (uint32_t)param->elems,
                                    .weights = weights,
                                    .grad = grads,
                                    .out = next,
                                    .slots = slots,
                                    .next_slots = slots};
  struct average_update averaging = {
      .elems = update.elems, .weights = weights, .average = average, .next = average};
  for (int i = 0; i < (int)param->elems; i++)
    weights[i] = average[i] = made_up_weight(i);
  for (int step = 0; step < STEPS; step++) {
    for (int i = 0; i < (int)param->elems; i++)
      grads[i] = made_up_gradient(step, i);
    update.step = (uint64_t)step;
    update.lr = schedule_lr(train->schedule, options->lr, update.step, STEPS);
    optimizer_find(options->name)->update(options, &update);
    memcpy(weights, next, sizeof next);
    averaging.version = update.step + 1;
    average_update(train->average, &averaging);
    assert_values(json_object_get(json, "weights"), step, param, weights);
    assert_values(json_object_get(json, "averages"), step, param, average);
  }
}

static void groups_and_their_average_follow_pytorch_for_20_steps(void **state) {
  json_t *root = json_load_file("tests/parity/groups.json", 0, NULL), *json;
  int n_trained[] = {4, 3, 4};
  size_t at;
  (void)state;
  assert_int_equal(json_array_size(json_object_get(root, "cases")), 3);
  json_array_foreach(json_object_get(root, "cases"), at, json) {
    Weir__RunSpec *spec = read_spec(json_object_get(json, "train"));
    struct model *model = open_model(spec);
    assert_int_equal(model->n_params, n_trained[at]); /* b2 is frozen in the second */
    for (int p = 0; p < model->n_params; p++)
      train_param(json, spec->train, &model->params[p]);
    model_close(model);
    spec_free(spec);
  }
  json_decref(root);
}

/* What a checkpoint refers to is not written: the average goes to other memory then. */
static void an_average_that_is_moved_is_the_same(void **state) {
  Weir__AverageSpec spec = WEIR__AVERAGE_SPEC__INIT;
  float weights[5], in_place[5] = {0}, moved[2][5] = {{0}};
  (void)state;
  spec.every_steps = 2;
  spec.start_step = 4;
  for (uint64_t version = 1; version <= 12; version++) {
    struct average_update update = {version, 5, weights, in_place, in_place};
    for (int i = 0; i < 5; i++)
      weights[i] = made_up_gradient((int)version, i);
    average_update(&spec, &update);
    update.average = moved[version % 2];
    update.next = moved[!(version % 2)];
    average_update(&spec, &update);
    assert_memory_equal(update.next, in_place, sizeof in_place);
    if (version <= 4 && version % 2 == 0)
      assert_memory_equal(weights, in_place, sizeof in_place);
  }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(groups_and_their_average_follow_pytorch_for_20_steps),
      cmocka_unit_test(an_average_that_is_moved_is_the_same),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
