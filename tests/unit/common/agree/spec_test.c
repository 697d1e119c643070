/* Run specs: what is read, and what is said about what is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/base/nearest.h"

static const char good[] = "name: fashion-mnist\n"
                           "model:\n"
                           "  onnx: cnn.onnx\n"
                           "  loss: cross_entropy\n"
                           "  loss_options: {label_smoothing: 0.1, ignore_index: -1, weight: [1, 0.5]}\n"
                           "  inputs: {image: images}\n"
                           "  frozen: [\"pos_*\", head]\n"
                           "data:\n"
                           "  root: /data\n"
                           "  train: {format: idx, images: a.gz, labels: b.gz}\n"
                           "  transforms: [{scale: 0.5}, {normalize: {mean: [0.1, 0.2], std: [1, 2]}}]\n"
                           "train:\n"
                           "  epochs: 2.5\n"
                           "  batch: 128\n"
                           "  microbatches: 8\n"
                           "  seed: 18446744073709551615\n"
                           "  optimizer: {name: sgd, lr: 5e-2, momentum: 0.9, nesterov: true}\n";

static int read_text(const char *text, Weir__RunSpec **spec, struct err *err) {
  return spec_read("run.yaml", text, strlen(text), spec, err);
}

/* The good spec with one piece replaced must be refused with a text that holds `wanted`. */
static void refuse(const char *old, const char *new, const char *wanted) {
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  const char *at = strstr(good, old);
  char *text;
  assert_non_null(at);
  text = mem_printf("%.*s%s%s", (int)(at - good), good, new, at + strlen(old));
  if (read_text(text, &spec, &err) == 0) {
    assert_int_not_equal(spec_check(spec, &err), 0);
    spec_free(spec);
  }
  assert_int_equal(err.code, ERR_INVALID);
  if (!strstr(err.text, wanted))
    fail_msg("'%s' does not hold '%s'", err.text, wanted);
  free(text);
}

static void a_good_spec_is_read_whole(void **state) {
  struct err err = ERR_NONE;
  Weir__RunSpec *spec, *copy;
  (void)state;
  assert_int_equal(read_text(good, &spec, &err), 0);
  assert_int_equal(spec_check(spec, &err), 0);
  copy = spec_copy(spec);
  spec_free(spec);
  assert_string_equal(copy->name, "fashion-mnist");
  assert_int_equal(copy->model->n_inputs, 1);
  assert_string_equal(copy->model->inputs[0]->key, "image");
  assert_string_equal(copy->model->inputs[0]->value, "images");
  assert_string_equal(copy->model->frozen[1], "head");
  assert_true(copy->model->loss_options->label_smoothing == 0.1);
  assert_true(copy->model->loss_options->ignore_index == -1);
  assert_true(copy->model->loss_options->n_weight == 2 && copy->model->loss_options->weight[1] == 0.5);
  assert_true(copy->model->loss_options->beta == 1 && !copy->model->loss_options->has_beta);
  assert_true(copy->data->shuffle);
  assert_int_equal(copy->data->n_transforms, 2);
  assert_true(copy->data->transforms[1]->normalize->std[1] == 2);
  assert_true(copy->train->epochs == 2.5 && !copy->train->has_steps);
  assert_true(copy->train->seed == UINT64_MAX);
  assert_true(copy->train->optimizer->lr == 0.05 && copy->train->optimizer->nesterov);
  assert_string_equal(copy->train->mode, "sync");
  assert_string_equal(copy->train->precision, "fp32");
  assert_string_equal(copy->train->collective, "auto");
  assert_true(copy->train->deterministic);
  assert_string_equal(copy->train->schedule->name, "constant");
  assert_int_equal(copy->workers->min, 1);
  spec_free(copy);
}

static void labels_that_are_required_are_read_and_checked(void **state) {
  char *text = mem_printf("%sworkers: {require: {gpu: h200, slots: 8}}\n", good);
  struct err err = ERR_NONE;
  Weir__RunSpec *spec, *copy;
  (void)state;
  assert_int_equal(read_text(text, &spec, &err), 0);
  assert_int_equal(spec_check(spec, &err), 0);
  copy = spec_copy(spec);
  assert_int_equal(copy->workers->n_require, 2);
  assert_string_equal(copy->workers->require[0]->key, "gpu");
  assert_string_equal(copy->workers->require[1]->value, "8");
  spec_free(spec);
  spec_free(copy);
  free(text);
  refuse("name: fashion-mnist", "name: x\nworkers: {require: [gpu]}", "workers.require: a mapping is wanted");
  refuse("name: fashion-mnist", "name: x\nworkers: {require: {gpu: [a]}}", "a single value is wanted");
  refuse("name: fashion-mnist", "name: x\nworkers: {require: {gpu: a b}}",
         "workers.require: 'gpu=a b' is no label");
  refuse("name: fashion-mnist", "name: x\nworkers: {require: {\"\": a}}",
         "workers.require: '=a' is no label");
  refuse("name: fashion-mnist", "name: x\nworkers: {require: {a: 1, b: 1, a: 2}}",
         "workers.require: label 'a' is given twice");
}

static void an_unknown_key_is_named_with_its_line_and_the_nearest_known_one(void **state) {
  (void)state;
  refuse("batch: 128", "bacth: 128", "run.yaml:14: unknown key 'bacth' in train: did you mean 'batch'?");
  refuse("lr: 5e-2", "zzzzzzzz: 1", "run.yaml:17: unknown key 'zzzzzzzz' in train.optimizer: known are");
}

static void a_value_of_the_wrong_kind_is_named_with_its_line(void **state) {
  (void)state;
  refuse("batch: 128", "batch: many", "run.yaml:14: train.batch: 'many' is not a whole number");
  refuse("batch: 128", "batch: -1", "'-1' is not a whole number");
  refuse("batch: 128", "batch: [1]", "a single value is wanted");
  refuse("batch: 128", "batch: 4294967296", "is not a whole number");
  refuse("lr: 5e-2", "lr: nan", "'nan' is not a number");
  refuse("nesterov: true", "nesterov: yes", "neither true nor false");
  refuse("[\"pos_*\", head]", "pos", "model.frozen: a list is wanted");
  refuse("{image: images}", "[image]", "model.inputs: a mapping is wanted");
  refuse("{scale: 0.5}", "0.5", "data.transforms[0]: keys and values are wanted");
}

static void a_value_out_of_range_is_named(void **state) {
  (void)state;
  refuse("microbatches: 8", "microbatches: 7", "train.microbatches: 7 does not divide train.batch 128");
  refuse("microbatches: 8", "microbatches: 0", "train.microbatches");
  refuse("batch: 128", "batch: 0", "train.batch");
  refuse("idx, images: a.gz, labels: b.gz}", "npy, columns: {x: \"\"}}",
         "data.train.columns: wants names and");
  refuse("idx, images: a.gz, labels: b.gz}", "npy, columns: {x: a, x: b}}", "columns: 'x' is there twice");
  refuse("epochs: 2.5", "epochs: 0", "train.epochs");
  refuse("epochs: 2.5", "epochs: 2\n  steps: 3", "either epochs or steps");
  refuse("lr: 5e-2", "lr: -1", "train.optimizer.lr");
  refuse("name: fashion-mnist", "name: Fashion_MNIST", "name: 'Fashion_MNIST'");
  refuse("[\"pos_*\", head]", "[\"\"]", "model.frozen: a pattern has from 1 to 255 letters");
  refuse("{scale: 0.5}", "{scale: 1, normalize: {mean: [0], std: [1]}}", "exactly one transform");
  refuse("std: [1, 2]", "std: [0, 2]", "data.transforms.normalize");
  refuse("epochs: 2.5", "epochs: 2\n  precision: fp16",
         "train.precision: 'fp16' is not known (known: bf16, ");
  refuse("epochs: 2.5", "epochs: 2\n  collective: gloo",
         "train.collective: 'gloo' is not known (known: auto, nccl");
}

static void a_run_is_held_and_evaluated_at_versions_that_there_are(void **state) {
  static const char steps[] = "epochs: 2.5";
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  char *text;
  (void)state;
  refuse(steps, "steps: 10\n  hold: 0", "train.hold: must be at least 1");
  refuse(steps, "steps: 10\n  hold: 11", "train.hold: there will be no version 11, the run's last is 10");
  refuse(steps, "steps: 10\n  hold: -1", "train.hold: '-1' is not a whole number");
  refuse("name: fashion-mnist", "name: fashion-mnist\neval: {at: [3]}", "eval.at: needs data.eval");
  refuse("name: fashion-mnist", "name: fashion-mnist\neval: {at: [3, 3]}", "eval.at: wants versions above 0");
  refuse("name: fashion-mnist", "name: fashion-mnist\neval: {at: [0]}", "eval.at: wants versions above 0");
  text = mem_printf("%s\neval: {every_steps: 4, at: [3, 9]}\n", good);
  assert_int_equal(read_text(text, &spec, &err), 0);
  free(text);
  spec->data->n_split = 2;
  spec->data->split = mem_new(2 * sizeof *spec->data->split);
  spec->data->split[0] = spec->data->split[1] = 0.5;
  spec->train->has_hold = true;
  for (spec->train->hold = 1; spec->train->hold < 12; spec->train->hold++) {
    uint64_t hold = spec->train->hold;
    bool is_evaluated = hold % 4 == 0 || hold == 3 || hold == 9;
    err = ERR_NONE;
    assert_int_equal(spec_check(spec, &err), is_evaluated ? 0 : ERR_INVALID);
    if (hold == 5)
      assert_string_equal(err.text,
                          "train.hold: version 5 is not evaluated, the next that is evaluated is 8: hold "
                          "the run there, or name 5 in eval.at");
  }
  spec_free(spec);
}

static void what_is_told_by_epochs_lies_within_those_of_the_run(void **state) {
  static const char epochs[] = "epochs: 2.5", name[] = "name: fashion-mnist";
  (void)state;
  refuse(epochs, "epochs: 2.5\n  hold_epochs: 3", "train.hold_epochs: 3 is above train.epochs, 2.5");
  refuse(epochs, "epochs: 2.5\n  hold_epochs: 0", "train.hold_epochs: must be above 0 and at most 1000000");
  refuse(epochs, "steps: 9\n  hold_epochs: 1e7", "train.hold_epochs: must be above 0 and at most 1000000");
  refuse(epochs, "epochs: 2.5\n  hold: 3\n  hold_epochs: 1", "train.hold_epochs: is given beside train.hold");
  refuse(name, "name: fashion-mnist\neval: {at_epochs: [1]}", "eval.at_epochs: needs data.eval");
  refuse(name, "name: fashion-mnist\neval: {at_epochs: [1, 1]}", "eval.at_epochs: wants epochs above 0");
  refuse(name, "name: fashion-mnist\neval: {at_epochs: [0]}", "eval.at_epochs: wants epochs above 0");
  refuse(name, "name: fashion-mnist\neval: {at: [3], at_epochs: [1]}", "eval.at");
}

static void what_mixes_samples_ends_the_transforms_of_training(void **state) {
  (void)state;
  refuse("{scale: 0.5}", "{mixup: {alpha: 0.2}}, {cutmix: {}}",
         "data.transforms[2]: comes behind 'cutmix', which mixes samples that are done: list it before");
  refuse("[{scale: 0.5}, ", "[{mixup: {alpha: 0}}, ", "data.transforms[0].mixup.alpha: must be above 0");
  refuse("[{scale: 0.5}, {normalize: {mean: [0.1, 0.2], std: [1, 2]}}]", "[{cutmix: {alpha: 1e39}}]",
         "data.transforms[0].cutmix.alpha: must be above 0 and finite");
  refuse("transforms: [{scale", "eval_transforms: [{cutmix: {}}, {scale",
         "data.eval_transforms[0]: 'cutmix' is for training only");
}

static void options_of_a_loss_have_ranges(void **state) {
  (void)state;
  refuse("ignore_index: -1", "ignore_index: -1.5", "'-1.5' is not a whole number");
  refuse("ignore_index: -1", "ignore_index: --1", "'--1' is not a whole number");
  refuse("ignore_index: -1", "ignore_index: -9223372036854775809", "is not a whole number");
  refuse("label_smoothing: 0.1", "label_smoothing: 1.1", "label_smoothing: must be from 0 to 1");
  refuse("weight: [1, 0.5]", "weight: [1, -0.5]", "model.loss_options.weight: each must be at least 0");
  refuse("weight: [1, 0.5]", "pos_weight: [1e300]", "model.loss_options.pos_weight: each must be");
  refuse("weight: [1, 0.5]", "beta: -1", "model.loss_options.beta: must be at least 0");
  refuse("weight: [1, 0.5]", "delta: 0", "model.loss_options.delta: must be above 0");
  refuse("weight: [1, 0.5]", "reduction: sum", "reduction: 'sum' is not known (known: mean, batchmean)");
  refuse("weight: [1, 0.5]", "weights: [1]", "did you mean 'weight'?");
}

static void what_is_missing_is_named(void **state) {
  (void)state;
  refuse("onnx: cnn.onnx", "loss: x", "loss is given twice");
  refuse("  onnx: cnn.onnx\n", "", "model.onnx");
  refuse("  train: {format: idx, images: a.gz, labels: b.gz}\n", "", "data.train");
  refuse("lr: 5e-2, ", "", "train.optimizer.lr");
  refuse(good, "", "the spec is empty");
  refuse("name: fashion-mnist\n", "name: a\nworkers: {stages: 0}\n",
         "run.yaml:2: workers.stages: '0' is neither a whole number from 1 to 4294967295 nor 'auto'");
  refuse("name: fashion-mnist\n", "name: a\nworkers: {stages: Auto}\n", "run.yaml:2: workers.stages: 'Auto'");
  refuse("name: fashion-mnist\n", "name: a\nworkers: {stages: 65}\n",
         "workers.stages: must be from 1 to 64, or auto");
  refuse("name: fashion-mnist\n", "name: a\nworkers: {min: auto}\n",
         "workers.min: 'auto' is not a whole number");
  refuse(good, "[1, 2]", "keys and values are wanted");
}

static void gradients_are_clipped_in_one_way_to_what_makes_sense(void **state) {
  static const char end[] = "nesterov: true}\n";
  (void)state;
  refuse(end, "nesterov: true}\n  clip_norm: 1\n  clip_value: 1\n",
         "train.clip_norm: there is train.clip_value, too: gradients are clipped in one way only");
  refuse(end, "nesterov: true}\n  clip_norm: 0\n", "train.clip_norm: must be above 0 and finite");
  refuse(end, "nesterov: true}\n  clip_norm: 1e-60\n", "train.clip_norm: must be above 0 and finite");
  refuse(end, "nesterov: true}\n  clip_value: -1\n", "train.clip_value: must be above 0 and finite");
  refuse(end, "nesterov: true}\n  clip_value: 1e39\n", "train.clip_value: must be above 0 and finite");
}

static void what_is_not_yaml_is_refused_with_its_line(void **state) {
  (void)state;
  refuse("batch: 128", "batch: 128\n\t- x", "run.yaml:15: not valid YAML");
  refuse("{image: images}", "{image: images", "not valid YAML");
}

static void a_second_document_is_refused_with_its_line(void **state) {
  (void)state;
  refuse("name: ", "name: other\n---\nname: ", "run.yaml:2: another document begins here");
  refuse("name: ", "name: other\n---\n]\nname: ", "run.yaml:3: not valid YAML");
}

static void hostile_text_never_crashes_the_reader(void **state) {
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  char *text = mem_new(400001);
  uint64_t z = 1;
  (void)state;
  memset(text, '[', 400000);
  assert_int_equal(read_text(text, &spec, &err), ERR_INVALID);
  assert_int_equal(read_text("a: &x [*x, *x]\nname: *x\n", &spec, &err), ERR_INVALID);
  for (int round = 0; round < 3000; round++) {
    memcpy(text, good, sizeof good);
    for (int flip = 0; flip < 3; flip++) {
      z = z * 6364136223846793005u + 1442695040888963407u;
      text[(z >> 33) % (sizeof good - 1)] = (char)(z >> 56);
    }
    if (spec_read("run.yaml", text, sizeof good - 1, &spec, &err) == 0) {
      (void)spec_check(spec, &err);
      spec_free(spec);
    }
  }
  for (size_t size = 0; size < sizeof good; size++)
    if (spec_read("run.yaml", good, size, &spec, &err) == 0)
      spec_free(spec);
  free(text);
}

static void the_nearest_word_is_one_that_was_meant(void **state) {
  static const char *const words[] = {"momentum", "lr", "nesterov"};
  (void)state;
  assert_string_equal(nearest_word("momentun", words, 3), "momentum");
  assert_string_equal(nearest_word("nestrov", words, 3), "nesterov");
  assert_null(nearest_word("x", words, 3));
  assert_null(nearest_word("entirely-different", words, 3));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_good_spec_is_read_whole),
      cmocka_unit_test(labels_that_are_required_are_read_and_checked),
      cmocka_unit_test(an_unknown_key_is_named_with_its_line_and_the_nearest_known_one),
      cmocka_unit_test(a_value_of_the_wrong_kind_is_named_with_its_line),
      cmocka_unit_test(a_value_out_of_range_is_named),
      cmocka_unit_test(a_run_is_held_and_evaluated_at_versions_that_there_are),
      cmocka_unit_test(what_is_told_by_epochs_lies_within_those_of_the_run),
      cmocka_unit_test(what_mixes_samples_ends_the_transforms_of_training),
      cmocka_unit_test(options_of_a_loss_have_ranges),
      cmocka_unit_test(what_is_missing_is_named),
      cmocka_unit_test(gradients_are_clipped_in_one_way_to_what_makes_sense),
      cmocka_unit_test(what_is_not_yaml_is_refused_with_its_line),
      cmocka_unit_test(a_second_document_is_refused_with_its_line),
      cmocka_unit_test(hostile_text_never_crashes_the_reader),
      cmocka_unit_test(the_nearest_word_is_one_that_was_meant),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
