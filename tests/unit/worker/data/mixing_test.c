/* Transforms that mix samples and labels: what they make of the train graph, and of a microbatch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "model/graph/op.h"
#include "model/model.h"
#include "tests/support/model/onnx_build.h"
#include "worker/data/mixing.h"

enum { SAMPLES = 4, CLASSES = 5, CHANNELS = 2, HEIGHT = 6, WIDTH = 7, PLANE = HEIGHT * WIDTH, DRAWS = 20000 };

/* A spec that trains the model with mixup. */
struct mixing_spec {
  Weir__RunSpec run;
  Weir__ModelSpec model;
  Weir__LossOptions options;
  Weir__DataSpec data;
  Weir__Transform mix, *transforms[1];
  Weir__Mixing mixing;
  int64_t samples;
};

static void mixing_spec_init(struct mixing_spec *spec) {
  spec->samples = SAMPLES;
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
  int code = model_open(
      &(struct model_source){.onnx = bytes, .size_bytes = size, .spec = &spec->run, .samples = spec->samples},
      model, err);
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
  spec.samples = 1;
  onnx_build_mlp(&build, 3, 4, CLASSES);
  refuse(&build, &spec, "data.transforms.mixup: mixes the samples of a microbatch, which has only one");
  spec.samples = SAMPLES;
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

/* A list of both, of which a test takes what it wants. */
struct mixers {
  Weir__Mixing mixing;
  Weir__Transform mixup, cutmix, *list[2];
};

static void mixers_init(struct mixers *mixers, double alpha) {
  weir__mixing__init(&mixers->mixing);
  weir__transform__init(&mixers->mixup);
  weir__transform__init(&mixers->cutmix);
  mixers->mixing.alpha = alpha;
  mixers->mixup.mixup = mixers->cutmix.cutmix = &mixers->mixing;
  mixers->list[0] = &mixers->mixup;
  mixers->list[1] = &mixers->cutmix;
}

/* A microbatch of images whose elements all differ, and labels, before and after. */
struct microbatch {
  float before[SAMPLES][CHANNELS][PLANE], after[SAMPLES][CHANNELS][PLANE];
  union {
    int64_t classes[SAMPLES];
    float shares[SAMPLES][CLASSES];
  } labels;
};

static void mix(struct microbatch *batch, struct mixers *mixers, size_t first, size_t n, uint64_t key) {
  static const int64_t classes[SAMPLES] = {3, 0, 0, 4};
  float *x = &batch->before[0][0][0];
  struct mixing mixing = {.transforms = {&mixers->list[first], n, true},
                          .images = {{CHANNELS, HEIGHT, WIDTH}},
                          .n_images = 1,
                          .classes = CLASSES};
  void *images[] = {batch->after};
  for (int i = 0; i < SAMPLES * CHANNELS * PLANE; i++)
    x[i] = (float)(i + 1) / 7;
  memcpy(batch->after, batch->before, sizeof batch->after);
  memcpy(batch->labels.classes, classes, sizeof classes);
  mixing_apply(&mixing, key, SAMPLES, images, &batch->labels);
}

/* Sample 0 comes behind sample 3, whose class is 4. */
static float share_of(const struct microbatch *batch) {
  return batch->labels.shares[0][3];
}

static void check_labels(const struct microbatch *batch) {
  float own = share_of(batch), other = batch->labels.shares[0][4];
  const float wanted[SAMPLES][CLASSES] = {
      {0, 0, 0, own, other}, {own, 0, 0, other, 0}, {other + own, 0, 0, 0, 0}, {other, 0, 0, 0, own}};
  assert_memory_equal(batch->labels.shares, wanted, sizeof wanted);
  assert_true(fabsf(own + other - 1) < 1e-6f);
}

static void mixup_blends_every_element_with_the_sample_before(void **state) {
  struct microbatch batch;
  struct mixers mixers;
  (void)state;
  mixers_init(&mixers, 0.8);
  for (uint64_t key = 0; key < 50; key++) {
    mix(&batch, &mixers, 0, 1, key);
    check_labels(&batch);
    for (int s = 0; s < SAMPLES; s++)
      for (int i = 0; i < CHANNELS * PLANE; i++) {
        float own = share_of(&batch) * (&batch.before[s][0][0])[i];
        float other = batch.labels.shares[0][4] * (&batch.before[(s + SAMPLES - 1) % SAMPLES][0][0])[i];
        assert_true((&batch.after[s][0][0])[i] == other + own);
      }
  }
}

struct box {
  int top, left, bottom, right;
};

/* The smallest box around what is the other's; each element is the one's or the other's. */
static struct box find_box(const float *after, const float *own, const float *other) {
  struct box box = {HEIGHT, WIDTH, 0, 0};
  for (int i = 0; i < PLANE; i++) {
    int y = i / WIDTH, x = i % WIDTH;
    assert_true(after[i] == own[i] || after[i] == other[i]);
    if (after[i] == own[i])
      continue;
    box = (struct box){y < box.top ? y : box.top, x < box.left ? x : box.left,
                       y >= box.bottom ? y + 1 : box.bottom, x >= box.right ? x + 1 : box.right};
  }
  return box;
}

static void cutmix_takes_one_box_of_the_sample_before_and_as_much_of_its_label(void **state) {
  struct microbatch batch;
  struct mixers mixers;
  int cut = 0;
  (void)state;
  mixers_init(&mixers, 1);
  for (uint64_t key = 0; key < 200; key++) {
    struct box first = {0};
    int area;
    mix(&batch, &mixers, 1, 1, key);
    check_labels(&batch);
    for (int s = 0; s < SAMPLES; s++)
      for (int c = 0; c < CHANNELS; c++) {
        struct box box =
            find_box(batch.after[s][c], batch.before[s][c], batch.before[(s + SAMPLES - 1) % SAMPLES][c]);
        if (s + c == 0)
          first = box;
        assert_memory_equal(&box, &first, sizeof box);
      }
    area = first.bottom > first.top ? (first.bottom - first.top) * (first.right - first.left) : 0;
    for (int i = 0, others = 0; i < PLANE; i++) { /* nothing within it is left out */
      others += batch.after[1][0][i] != batch.before[1][0][i];
      assert_true(i + 1 < PLANE || others == area);
    }
    assert_true(share_of(&batch) == (float)(1 - area / (double)PLANE));
    cut += area > 0 && area < PLANE;
  }
  assert_in_range(cut, 100, 199);
}

/* Mean and variance of the share; cutmix's as 100,000 of torchvision.transforms.v2.CutMix (0.29.2) had them.
 */
static void shares_are_distributed_as_torchvision_s(void **state) {
  static const struct {
    bool is_cutmix;
    double alpha;
    struct image_shape shape;
    double mean, variance;
  } cases[] = {
      {false, 0.2, {1, 8, 8}, 0.5, 0.25 / 1.4},
      {false, 1, {1, 8, 8}, 0.5, 1.0 / 12},
      {true, 1, {3, 32, 32}, 0.7018, 0.03332},
      {true, 0.5, {1, 8, 20}, 0.7558, 0.03549},
  };
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    double sum = 0, squares = 0, mean;
    struct mixers mixers;
    mixers_init(&mixers, cases[c].alpha);
    for (uint64_t d = 0; d < DRAWS; d++) {
      const Weir__Transform *transform = mixers.list[cases[c].is_cutmix];
      struct mix drawn;
      transform_of(transform)->draw_mix(transform, random_key(1, d, 0, 0), &cases[c].shape, &drawn);
      sum += drawn.share;
      squares += drawn.share * drawn.share;
    }
    mean = sum / DRAWS;
    assert_true(fabs(mean - cases[c].mean) < 5 * sqrt(cases[c].variance / DRAWS));
    assert_true(fabs((squares / DRAWS - mean * mean) / cases[c].variance - 1) < 0.05);
  }
}

/* Of two that are listed, each microbatch goes through one, drawn as often as the other. */
static void one_of_those_listed_is_drawn_for_a_microbatch(void **state) {
  struct microbatch batch;
  struct mixers mixers;
  int cut = 0;
  (void)state;
  mixers_init(&mixers, 1);
  for (uint64_t key = 0; key < 1000; key++) {
    const float *before = batch.before[1][0], *other = batch.before[0][0];
    bool is_cut = true;
    mix(&batch, &mixers, 0, 2, random_key(key, 0, 0, 0));
    check_labels(&batch);
    for (int i = 0; i < PLANE; i++)
      is_cut &= batch.after[1][0][i] == before[i] || batch.after[1][0][i] == other[i];
    cut += is_cut;
  }
  assert_in_range(cut, 430, 570);
}

static void what_cannot_be_mixed_is_named(void **state) {
  struct value values[] = {{.name = "x", .dtype = DTYPE_F32, .shape = {4, {SAMPLES, 3, 8, 8}}},
                           {.name = "z", .dtype = DTYPE_F32, .shape = {2, {SAMPLES, 6}}},
                           {.name = "ids", .dtype = DTYPE_I64, .shape = {2, {SAMPLES, 6}}}};
  struct column_form forms[] = {{.fed = {3, 8, 8}}, {.fed = {1, 1, 6}}};
  struct mixers mixers;
  struct transforms mixup = {.list = &mixers.list[0], .n = 1, .is_training = true},
                    cutmix = {.list = &mixers.list[1], .n = 1, .is_training = true};
  int inputs[] = {0, 1};
  struct graph graph = {.values = values, .n_values = 3, .inputs = inputs, .n_inputs = 2};
  struct model model = {.train = &graph, .n_columns = 2, .labels = {.classes = CLASSES}};
  struct mixing mixing;
  struct err err = ERR_NONE;
  (void)state;
  mixers_init(&mixers, 1);
  assert_int_equal(mixing_init(&mixing, &model, &mixup, forms, &err), 0);
  assert_int_equal(mixing_init(&mixing, &model, &cutmix, forms, &err), ERR_INVALID);
  assert_non_null(strstr(err.text,
                         "data.transforms.cutmix: cuts boxes out of images of one size, but the model's "
                         "input 'z' is [1,1,6]"));
  inputs[1] = 2;
  assert_int_equal(mixing_init(&mixing, &model, &mixup, forms, &err), ERR_INVALID);
  assert_non_null(
      strstr(err.text, "data.transforms.mixup: the model's input 'ids' is i64, which cannot be mixed"));
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mixed_labels_are_probabilities_in_training_and_classes_in_evaluation),
      cmocka_unit_test(what_has_no_class_for_each_sample_is_not_mixed),
      cmocka_unit_test(mixup_blends_every_element_with_the_sample_before),
      cmocka_unit_test(cutmix_takes_one_box_of_the_sample_before_and_as_much_of_its_label),
      cmocka_unit_test(shares_are_distributed_as_torchvision_s),
      cmocka_unit_test(one_of_those_listed_is_drawn_for_a_microbatch),
      cmocka_unit_test(what_cannot_be_mixed_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
