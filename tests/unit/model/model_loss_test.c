/* Outputs, labels and losses that fit each other, and those that do not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "model/model.h"
#include "tests/support/model/graph_run.h"
#include "tests/support/model/model_fixture.h"
#include "tests/support/model/onnx_build.h"

enum { SAMPLES = MODEL_SAMPLES, BATCH = 8 };

static void an_output_that_the_loss_does_not_take_is_named(void **state) {
  struct onnx_build build;
  struct test_spec spec = {0};
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  onnx_build_node(&build, "ReduceSum", NULL, "y", "flat");
  onnx_build_int(&build, build.graph.node[3], "keepdims", 0);
  build.graph.output[0]->name = (char *)"flat";
  spec_init(&spec);
  refuse_model(
      &build, &spec, ERR_INVALID,
      "loss 'cross_entropy' takes an output f32[samples,classes,...], but the model's output 'flat' is "
      "f32[]");
  spec.model.loss = (char *)"hinge";
  onnx_build_mlp(&build, 3, 4, 2);
  refuse_model(&build, &spec, ERR_INVALID,
               "model.loss: there is no loss 'hinge', known are: bce_with_logits, cross");
  onnx_build_mlp(&build, 3, 4, 2);
  refuse_model(&build, &spec, ERR_INVALID, "nor has the model such an output: its are 'y'");
}

/* A model f32[N,4,3,2] -> y of that shape, with the loss and options of the spec. */
static void build_scores(struct onnx_build *build) {
  onnx_build_init(build, 13);
  onnx_build_input(build, "x", DIMS(-1, 4, 3, 2));
  onnx_build_weight(build, "w", DIMS(4, 1, 1));
  onnx_build_node(build, "Mul", NULL, "x,w", "y");
  onnx_build_output(build, "y");
}

static void labels_follow_from_the_output_and_the_loss(void **state) {
  static const struct {
    const char *loss;
    int64_t class_axis; /* 0: by default */
    int64_t classes;
    enum dtype dtype;
    struct shape labels;
    double sample_denominator;
  } cases[] = {
      {"cross_entropy", 0, 4, DTYPE_I64, {3, {SAMPLES, 3, 2}}, 0},
      {"nll", -1, 2, DTYPE_I64, {3, {SAMPLES, 4, 3}}, 0},
      {"cross_entropy", 2, 3, DTYPE_I64, {3, {SAMPLES, 4, 2}}, 0},
      {"mse", 0, 0, DTYPE_F32, {4, {SAMPLES, 4, 3, 2}}, 24},
      {"bce_with_logits", 0, 0, DTYPE_F32, {4, {SAMPLES, 4, 3, 2}}, 24},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Weir__LossOptions options = WEIR__LOSS_OPTIONS__INIT;
    struct test_spec spec = {0};
    struct onnx_build build;
    struct model *model;
    const struct value *labels;
    build_scores(&build);
    spec_init(&spec);
    spec.model.loss = (char *)cases[i].loss;
    spec.model.loss_options = &options;
    options.has_class_axis = cases[i].class_axis != 0;
    options.class_axis = cases[i].class_axis;
    model = open_model(&build, &spec);
    labels = &model->train->values[model->train->inputs[1]];
    assert_int_equal(model->labels.classes, cases[i].classes);
    assert_int_equal(labels->dtype, cases[i].dtype);
    assert_true(shape_is_same(&labels->shape, &cases[i].labels));
    assert_true(model->labels.sample_denominator == cases[i].sample_denominator);
    assert_int_equal(model->train_loss.correct >= 0, cases[i].classes > 0);
    model_close(model);
    onnx_build_fini(&build);
  }
}

static void options_that_do_not_fit_the_loss_or_the_output_are_named(void **state) {
  double weights[] = {1, 2, 3};
  Weir__CheckpointSpec checkpoint = WEIR__CHECKPOINT_SPEC__INIT;
  Weir__EarlyStoppingSpec stopping = WEIR__EARLY_STOPPING_SPEC__INIT;
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  struct test_spec spec = {0};
  struct onnx_build build;
  (void)state;
  spec_init(&spec);
  Weir__LossOptions options = WEIR__LOSS_OPTIONS__INIT;
  spec.model.loss_options = &options;
  options.weight = weights;
  options.n_weight = 3;
  build_scores(&build);
  refuse_model(&build, &spec, ERR_INVALID,
               "loss_options.weight: 3 weights, but the model's output 'y', [4,4,3,2], has 4");
  spec.model.loss = (char *)"mse";
  build_scores(&build);
  refuse_model(&build, &spec, ERR_INVALID,
               "model.loss_options.weight: the loss 'mse' has no such option; it has none");
  spec.model.loss = (char *)"y";
  build_scores(&build);
  refuse_model(&build, &spec, ERR_INVALID,
               "model.loss_options.weight: the loss 'y' has no such option; it has none");
  options.n_weight = 0;
  options.has_beta = true;
  spec.model.loss = (char *)"huber";
  build_scores(&build);
  refuse_model(&build, &spec, ERR_INVALID,
               "model.loss_options.beta: the loss 'huber' has no such option; it has delta");
  options.has_beta = false;
  options.has_class_axis = true;
  spec.model.loss = NULL;
  build_scores(&build);
  refuse_model(&build, &spec, ERR_INVALID, "class_axis: 0 is none of the dimensions behind the first of 4");
  options.has_class_axis = false;
  spec.model.loss = (char *)"l1";
  spec.run.checkpoint = &checkpoint;
  checkpoint.keep_best = (char *)"accuracy";
  build_scores(&build);
  refuse_model(&build, &spec, ERR_INVALID, "checkpoint.keep_best: the loss 'l1' has no classes");
  checkpoint.keep_best = NULL;
  stopping.metric = (char *)"accuracy";
  train.early_stopping = &stopping;
  spec.run.train = &train;
  build_scores(&build);
  refuse_model(&build, &spec, ERR_INVALID, "train.early_stopping.metric: the loss 'l1' has no classes");
}

/* x f32[N,3], target f32[N,3] -> each = (x w - target)^2 f32[N,3], mean f32[] */
static void build_own_loss(struct onnx_build *build) {
  onnx_build_init(build, 13);
  onnx_build_input(build, "x", DIMS(-1, 3));
  onnx_build_input(build, "target", DIMS(-1, 3));
  onnx_build_weight(build, "w", DIMS(3));
  onnx_build_node(build, "Mul", NULL, "x,w", "prediction");
  onnx_build_node(build, "Sub", NULL, "prediction,target", "d");
  onnx_build_node(build, "Mul", NULL, "d,d", "each");
  onnx_build_int(build, onnx_build_node(build, "ReduceMean", NULL, "each", "mean"), "keepdims", 0);
  onnx_build_output(build, "prediction");
  onnx_build_output(build, "each");
  onnx_build_output(build, "mean");
}

/* The mean of a model with own loss over SAMPLES samples, and its gradient by w[0]. */
static double own_loss(const struct model *model, float *grad) {
  const struct graph *graph = model->train;
  struct arena arena = {0};
  struct err err = ERR_NONE;
  float x[SAMPLES * 3], target[SAMPLES * 3], scale;
  void **data = mem_new((size_t)graph->n_values * sizeof *data);
  double loss;
  for (int i = 0; i < SAMPLES * 3; i++) {
    x[i] = 2 * random_uniform(1, (uint64_t)i) - 1;
    target[i] = 2 * random_uniform(2, (uint64_t)i) - 1;
  }
  scale = (float)(1 / (SAMPLES * model->labels.sample_denominator));
  data[graph->inputs[0]] = x;
  data[graph->inputs[1]] = target;
  data[graph->inputs[2]] = &scale;
  assert_int_equal(graph_run(graph, data, &arena, &err), 0);
  loss = (double)*(float *)data[model->train_loss.loss_sum] * (double)scale;
  *grad = *(float *)data[model->params[0].grad];
  arena_fini(&arena);
  free(data);
  return loss;
}

static void an_output_of_the_model_may_be_the_loss(void **state) {
  struct test_spec spec = {0};
  struct onnx_build build;
  double losses[2];
  float grads[2];
  (void)state;
  spec_init(&spec);
  spec_map(&spec, "x", "images");
  spec_map(&spec, "target", "wanted");
  for (int i = 0; i < 2; i++) {
    struct model *model;
    spec.model.loss = (char *)(i ? "mean" : "each");
    build_own_loss(&build);
    model = open_model(&build, &spec);
    assert_false(model->has_labels);
    assert_int_equal(model->n_columns, 2);
    assert_string_equal(model->input_columns[1], "wanted");
    assert_int_equal(model->eval->n_inputs, 2);
    assert_true(model->labels.sample_denominator == (i ? 1 : 3));
    losses[i] = own_loss(model, &grads[i]);
    model_close(model);
    onnx_build_fini(&build);
  }
  assert_true(losses[0] > 0 && fabs(losses[0] - losses[1]) < 1e-6 * losses[0]);
  assert_true(grads[0] != 0 && fabsf(grads[0] - grads[1]) <= 1e-6f * fabsf(grads[0]));
  spec.model.labels = (char *)"wanted";
  build_own_loss(&build);
  refuse_model(&build, &spec, ERR_INVALID,
               "model.labels: the loss is the model's output 'mean', which takes no labels");
  spec.model.labels = NULL;
  build_own_loss(&build);
  onnx_build_int(&build, onnx_build_node(&build, "Flatten", NULL, "each", "flat"), "axis", 0);
  build.graph.output[2]->name = (char *)"flat";
  spec.model.loss = (char *)"flat";
  refuse_model(&build, &spec, ERR_INVALID, "model.loss: the output 'flat' is f32[1,12]; a loss is f32[]");
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_output_that_the_loss_does_not_take_is_named),
      cmocka_unit_test(labels_follow_from_the_output_and_the_loss),
      cmocka_unit_test(options_that_do_not_fit_the_loss_or_the_output_are_named),
      cmocka_unit_test(an_output_of_the_model_may_be_the_loss),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
