/* Transforms that mix samples and labels: what they make of the train graph. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "common/graph/model.h"
#include "common/graph/op.h"
#include "tests/unit/onnx_build.h"

enum { SAMPLES = 4, CLASSES = 5 };

/* A spec that trains the model with mixup. */
struct mixing_spec {
  Weir__RunSpec run;
  Weir__ModelSpec model;
  Weir__LossOptions options;
  Weir__DataSpec data;
  Weir__Transform mix, *transforms[1];
  Weir__Mixing mixing;
};

static void mixing_spec_init(struct mixing_spec *spec) {
  weir__run_spec__init(&spec->run);
  weir__model_spec__init(&spec->model);
  weir__loss_options__init(&spec->options);
  weir__data_spec__init(&spec->data);
  weir__transform__init(&spec->mix);
  weir__mixing__init(&spec->mixing);
  spec->run.model = &spec->model;
  spec->run.data = &spec->data;
  spec->model.loss_options = &spec->options;
  spec->data.transforms = spec->transforms;
  spec->data.n_transforms = 1;
  spec->transforms[0] = &spec->mix;
  spec->mix.mixup = &spec->mixing;
}

static int open_mixed(struct onnx_build *build, const struct mixing_spec *spec, struct model **model,
                      struct err *err) {
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  int code = model_open(bytes, size, &spec->run, SAMPLES, model, err);
  onnx_build_fini(build);
  return code;
}

static int count_ops(const struct graph *graph, const char *op) {
  int count = 0;
  for (int n = 0; n < graph->n_nodes; n++)
    count += strcmp(graph->nodes[n]->op->name, op) == 0;
  return count;
}

static void mixed_labels_are_probabilities_in_training_and_classes_in_evaluation(void **state) {
  double weights[CLASSES] = {1, 2, 3, 4, 5};
  struct mixing_spec spec;
  struct onnx_build build;
  struct err err = ERR_NONE;
  struct model *model;
  const struct value *labels;
  (void)state;
  mixing_spec_init(&spec);
  spec.options.weight = weights;
  spec.options.n_weight = CLASSES;
  onnx_build_mlp(&build, 3, 4, CLASSES);
  if (open_mixed(&build, &spec, &model, &err))
    fail_msg("%s", err.text);
  assert_true(model->mixes_labels);
  labels = &model->train->values[model->train->inputs[1]];
  assert_int_equal(labels->dtype, DTYPE_F32);
  assert_true(shape_is_same(&labels->shape, &(struct shape){2, {SAMPLES, CLASSES}}));
  labels = &model->eval->values[model->eval->inputs[1]];
  assert_int_equal(labels->dtype, DTYPE_I64);
  assert_true(shape_is_same(&labels->shape, &(struct shape){1, {SAMPLES}}));
  assert_int_equal(count_ops(model->train, "SoftCrossEntropy"), 1);
  assert_int_equal(count_ops(model->eval, "CrossEntropy"), 1);
  assert_int_equal(model->labels.classes, CLASSES);
  assert_true(model->labels.weights[4] == 5);
  assert_true(model->labels.sample_denominator == 1); /* of the step, whatever the weights */
  assert_int_equal(model->train_loss.denominator, -1);
  assert_in_range(model->eval_loss.denominator, 0, model->eval->n_values);
  model_close(model);
}

static void refuse(struct onnx_build *build, const struct mixing_spec *spec, const char *text) {
  struct err err = ERR_NONE;
  struct model *model;
  assert_int_equal(open_mixed(build, spec, &model, &err), ERR_INVALID);
  assert_null(model);
  if (!strstr(err.text, text))
    fail_msg("expected '%s', got '%s'", text, err.text);
}

static void what_has_no_class_for_each_sample_is_not_mixed(void **state) {
  struct mixing_spec spec;
  struct onnx_build build;
  (void)state;
  mixing_spec_init(&spec);
  spec.model.loss = (char *)"mse";
  onnx_build_mlp(&build, 3, 4, CLASSES);
  refuse(
      &build, &spec,
      "data.transforms.mixup: mixes classes, for losses with probabilities of classes as cross_entropy, not "
      "'mse'");
  spec.model.loss = (char *)"cross_entropy";
  spec.options.has_soft_labels = spec.options.soft_labels = true;
  onnx_build_mlp(&build, 3, 4, CLASSES);
  refuse(&build, &spec, "data.transforms.mixup: mixes classes, but by model.loss_options.soft_labels");
  spec.options.has_soft_labels = spec.options.soft_labels = false;
  spec.mix.mixup = NULL;
  spec.mix.cutmix = &spec.mixing;
  onnx_build_init(&build, 13);
  onnx_build_input(&build, "x", DIMS(-1, 3, 2));
  onnx_build_weight(&build, "w", DIMS(2));
  onnx_build_node(&build, "Mul", NULL, "x,w", "y");
  onnx_build_output(&build, "y");
  refuse(&build, &spec,
         "data.transforms.cutmix: mixes labels of one class a sample, which wants an output "
         "f32[samples,classes]; "
         "'y' is [4,3,2]");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mixed_labels_are_probabilities_in_training_and_classes_in_evaluation),
      cmocka_unit_test(what_has_no_class_for_each_sample_is_not_mixed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
