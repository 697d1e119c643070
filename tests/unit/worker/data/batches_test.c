/* Batches of a run's steps: their labels, their scale, and that neither prefetching nor the cut changes them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "tests/support/worker/data_fixture.h"
#include "tests/support/worker/idx_fixture.h"
#include "worker/data/dataset.h"
#include "worker/data/loader.h"

/* Images as labels: sample s holds (6 s + i) * 3 modulo 256 at i = [i / 3, i % 3]. */
static void labels_of_any_shape_are_bound_by_their_rule(void **state) {
  static const struct value pixels = {.name = "labels", .dtype = DTYPE_I64, .shape = {4, {2, 2, 1, 3}}};
  static const struct value targets = {.name = "labels", .dtype = DTYPE_F32, .shape = {3, {2, 2, 3}}};
  static const struct value turned = {.name = "labels", .dtype = DTYPE_F32, .shape = {3, {2, 3, 2}}};
  static const struct value single = {.name = "labels", .dtype = DTYPE_F32, .shape = {1, {2}}};
  struct label_rule rule = {.classes = 256, .ignore_index = -100};
  const struct label_rule none = {.sample_denominator = 6};
  const uint64_t indices[1] = {1};
  struct err err = ERR_NONE;
  struct dataset *dataset;
  struct column_form form;
  double weights[SAMPLES];
  int64_t labels[PIXELS];
  float values[PIXELS];
  Weir__RunSpec *spec = idx_spec("images", "labels");
  const struct training_input classes = {.spec = spec, .value = &pixels, .labels = &rule};
  const struct training_input numbers = {.spec = spec, .value = &targets, .labels = &none};
  const struct training_input turned_numbers = {.spec = spec, .value = &turned, .labels = &none};
  const struct training_input one_number = {.spec = spec, .value = &single, .labels = &none};
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
  assert_int_equal(bind_column(dataset, "images", &classes, &form, &err), 0);
  read_samples(dataset, &form, indices, 1, labels);
  assert_true(labels[0] == 18 && labels[5] == 33);
  rule.classes = 100; /* 102 is sample 5's element 4 */
  assert_int_equal(bind_column(dataset, "images", &classes, &form, &err), ERR_INVALID);
  assert_string_equal(err.text,
                      "images: sample 5 has a label that is no class at [1,1], the model has 100 classes");
  rule.classes = 177;
  rule.ignore_index = 177; /* of sample 9's last element alone */
  assert_int_equal(bind_column(dataset, "images", &classes, &form, &err), 0);
  dataset_label_weights(dataset, &form, &rule, weights);
  assert_true(weights[0] == 6 && weights[9] == 5);
  assert_int_equal(bind_column(dataset, "images", &numbers, &form, &err), 0);
  read_samples(dataset, &form, indices, 1, values); /* no transforms */
  assert_true(values[0] == 18 && values[5] == 33);
  assert_int_equal(bind_column(dataset, "images", &turned_numbers, &form, &err), ERR_INVALID);
  assert_string_equal(err.text, "labels of column 'images' are [2,3] in each sample, where [3,2] is needed");
  assert_int_equal(bind_column(dataset, "images", &one_number, &form, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "are [2,3] in each sample, where one number is needed"));
  dataset_close(dataset);
  spec_free(spec);
}

/* Samples 0 .. 9 have labels 0 1 2 3 0 1 2 3 0 1. */
static void the_scale_of_a_step_is_that_of_its_labels_that_count(void **state) {
  static const float class_weights[4] = {0.5f, 1, 0, 4};
  static const struct label_rule rules[] = {
      {.classes = 4, .ignore_index = -100},
      {.classes = 4, .ignore_index = 1},
      {.classes = 4, .ignore_index = 3, .weights = class_weights},
      {.sample_denominator = 12},
  };
  static const double denominators[][2] = {{4, 4}, {3, 3}, {1.5, 1.5}, {48, 48}};
  struct fed_model fed;
  struct err err = ERR_NONE;
  struct dataset *dataset;
  Weir__RunSpec *spec = idx_spec("images", "labels");
  struct plan plan;
  (void)state;
  spec->data->shuffle = false;
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
  assert_int_equal(plan_init(&plan, spec, SAMPLES, SAMPLES - 1, &err), 0);
  for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
    const struct model *model = fed_model_init(&fed, rules[r]);
    struct loader *loader;
    fed.values[1].dtype = rules[r].classes ? DTYPE_I64 : DTYPE_F32;
    assert_int_equal(
        loader_new(
            &(struct loader_options){
                .model = model, .plan = &plan, .spec = spec, .train = dataset, .eval = dataset, .threads = 1},
            &loader, &err),
        0);
    for (uint64_t step = 0; step < 2; step++)
      for (uint32_t m = 0; m < 2; m++) {
        struct loader_batch *batch = loader_train(loader, step, m);
        assert_true(*(float *)batch->inputs[2] == (float)(1 / denominators[r][step]));
        loader_put(loader, batch);
      }
    struct loader_batch *last = loader_eval(loader, 0, 4); /* sample 8, and its repetition */
    assert_int_equal(last->samples, 1);
    if (rules[r].classes) {
      assert_true(((int64_t *)last->inputs[1])[0] == 0);
      assert_true(((int64_t *)last->inputs[1])[1] == rules[r].ignore_index);
    }
    loader_put(loader, last);
    loader_free(loader);
  }
  dataset_close(dataset);
  spec_free(spec);
}

/* Whatever the sampler, and of a split: the scale is that of the labels that the microbatches hold. */
static void the_scale_follows_the_sampler(void **state) {
  static const float class_weights[4] = {0.5f, 1, 3, 4};
  static char *const samplers[] = {"shuffle", "sequential", "weighted"};
  struct fed_model fed;
  const struct label_rule labels = {.classes = 4, .ignore_index = -1, .weights = class_weights};
  const struct model *model = fed_model_init(&fed, labels);
  double shares[2] = {0.7, 0.3};
  struct err err = ERR_NONE;
  struct dataset *dataset;
  Weir__RunSpec *spec = idx_spec("images", "labels");
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
  for (int way = 0; way < 6; way++) {
    struct plan plan;
    struct loader *loader;
    uint64_t train = SAMPLES, eval = 0;
    spec->data->sampler = samplers[way % 3];
    spec->data->split = shares;
    spec->data->n_split = way < 3 ? 0 : 2;
    if (way >= 3)
      plan_split(spec->data, SAMPLES, &train, &eval);
    assert_int_equal(plan_init(&plan, spec, train, eval, &err), 0);
    assert_int_equal(loader_new(&(struct loader_options){.model = model,
                                                         .plan = &plan,
                                                         .spec = spec,
                                                         .train = dataset,
                                                         .eval = eval ? dataset : NULL,
                                                         .threads = 1},
                                &loader, &err),
                     0);
    for (uint64_t step = 0; step < plan.steps; step++) {
      struct loader_batch *batches[2] = {loader_train(loader, step, 0), loader_train(loader, step, 1)};
      double denominator = 0;
      for (int i = 0; i < 4; i++)
        denominator += (double)class_weights[((int64_t *)batches[i / 2]->inputs[1])[i % 2]];
      for (int m = 0; m < 2; m++) {
        assert_true(*(float *)batches[m]->inputs[2] == (float)(1 / denominator));
        loader_put(loader, batches[m]);
      }
    }
    loader_free(loader);
  }
  spec->data->sampler = NULL;
  spec->data->split = NULL;
  spec->data->n_split = 0;
  dataset_close(dataset);
  spec_free(spec);
}

static void a_step_whose_labels_are_all_ignored_has_scale_0(void **state) {
  static const float nothing[4];
  struct fed_model fed;
  const struct label_rule labels = {.classes = 4, .ignore_index = -1, .weights = nothing};
  const struct model *model = fed_model_init(&fed, labels);
  struct err err = ERR_NONE;
  struct dataset *dataset;
  struct loader *loader;
  struct plan plan;
  Weir__RunSpec *spec = idx_spec("images", "labels");
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
  assert_int_equal(plan_init(&plan, spec, SAMPLES, 0, &err), 0);
  assert_int_equal(loader_new(
                       &(struct loader_options){
                           .model = model, .plan = &plan, .spec = spec, .train = dataset, .threads = 1},
                       &loader, &err),
                   0);
  struct loader_batch *batch = loader_train(loader, 0, 0);
  assert_true(*(float *)batch->inputs[2] == 0);
  loader_put(loader, batch);
  loader_free(loader);
  dataset_close(dataset);
  spec_free(spec);
}

static void batches_made_ahead_equal_batches_made_now(void **state) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  struct loader *ahead, *now;
  struct plan plan;
  struct fed_model fed;
  const struct model *model = fed_model_init(&fed, four_classes);
  Weir__RunSpec *spec = idx_spec("images", "labels");
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
  assert_int_equal(plan_init(&plan, spec, SAMPLES, SAMPLES, &err), 0);
  assert_int_equal(
      loader_new(
          &(struct loader_options){
              .model = model, .plan = &plan, .spec = spec, .train = dataset, .eval = dataset, .threads = 3},
          &ahead, &err),
      0);
  assert_int_equal(
      loader_new(
          &(struct loader_options){
              .model = model, .plan = &plan, .spec = spec, .train = dataset, .eval = dataset, .threads = 1},
          &now, &err),
      0);
  for (uint64_t step = 0; step < plan.steps; step++) {
    loader_expect(ahead, step, step == 3 ? 1 : 0, 2);
    for (uint32_t m = 0; m < 2; m++) {
      struct loader_batch *a = loader_train(ahead, step, m), *b = loader_train(now, step, m);
      assert_memory_equal(a->inputs[0], b->inputs[0], 2 * PIXELS * sizeof(float));
      assert_memory_equal(a->inputs[1], b->inputs[1], 2 * sizeof(int64_t));
      assert_int_equal(a->samples, 2);
      loader_put(ahead, a);
      loader_put(now, b);
    }
  }
  loader_free(ahead);
  loader_free(now);
  dataset_close(dataset);
  spec_free(spec);
}

static void evaluation_goes_through_its_own_transforms(void **state) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  struct loader *loader;
  struct loader_batch *batch;
  struct plan plan;
  struct fed_model fed;
  const struct model *model = fed_model_init(&fed, four_classes);
  Weir__RunSpec *spec =
      idx_transformed_spec("images", "labels", "{scale: 2}]\n  eval_transforms: [{scale: 10}, {scale: 10}");
  (void)state;
  spec->data->shuffle = false;
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
  assert_int_equal(plan_init(&plan, spec, SAMPLES, SAMPLES, &err), 0);
  if (loader_new(
          &(struct loader_options){
              .model = model, .plan = &plan, .spec = spec, .train = dataset, .eval = dataset, .threads = 1},
          &loader, &err))
    fail_msg("%s", err.text);
  batch = loader_train(loader, 0, 0);
  assert_true(((float *)batch->inputs[0])[1] == 6);
  loader_put(loader, batch);
  batch = loader_eval(loader, 0, 0);
  assert_true(((float *)batch->inputs[0])[1] == 300);
  loader_put(loader, batch);
  loader_free(loader);
  spec_free(spec);
  spec = idx_transformed_spec("images", "labels",
                              "]\n  eval_transforms: [{scale: 1}, {normalize: {mean: [1, 2], std: [1, 1]}}");
  assert_int_equal(
      loader_new(
          &(struct loader_options){
              .model = model, .plan = &plan, .spec = spec, .train = dataset, .eval = dataset, .threads = 1},
          &loader, &err),
      ERR_INVALID);
  assert_string_equal(err.text,
                      "data.eval: data.eval_transforms[1].normalize: 2 values for samples of 1 channels");
  dataset_close(dataset);
  spec_free(spec);
}

static void evaluation_covers_every_sample_once(void **state) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  struct loader *loader;
  struct plan plan;
  struct fed_model fed;
  const struct model *model = fed_model_init(&fed, four_classes);
  Weir__RunSpec *spec = idx_spec("images", "labels");
  uint32_t samples = 0;
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
  assert_int_equal(plan_init(&plan, spec, SAMPLES, SAMPLES - 1, &err), 0);
  assert_int_equal(
      loader_new(
          &(struct loader_options){
              .model = model, .plan = &plan, .spec = spec, .train = dataset, .eval = dataset, .threads = 1},
          &loader, &err),
      0);
  for (uint32_t chunk = 0; chunk < plan.eval_chunks; chunk++)
    for (uint32_t part = 0; part < plan.eval_chunk_samples / plan.microbatch_samples; part++) {
      struct loader_batch *batch = loader_eval(loader, chunk, part);
      if (!batch)
        continue;
      assert_true(((int64_t *)batch->inputs[1])[0] == samples % 4);
      samples += batch->samples;
      loader_put(loader, batch);
    }
  assert_int_equal(samples, SAMPLES - 1);
  loader_free(loader);
  dataset_close(dataset);
  spec_free(spec);
}

/* Epochs of 10 samples, batches of 4: whole batches of each cut are put side by side. */
static void augmentation_does_not_depend_on_how_a_batch_is_cut(void **state) {
  enum { BATCH = 4, WHOLE_STEPS = 7 };
  static float drawn[3][WHOLE_STEPS][BATCH * PIXELS];
  static const uint32_t cuts[3] = {1, 2, 4};
  struct fed_model fed;
  const struct model *model = fed_model_init(&fed, four_classes);
  static const char text[] = "{random_crop: {size: [2, 3], padding: 2}}";
  (void)state;
  for (int c = 0; c < 3; c++) {
    struct err err = ERR_NONE;
    struct dataset *dataset;
    struct loader *loader;
    struct plan plan;
    Weir__RunSpec *spec = idx_transformed_spec("images", "labels", text);
    spec->data->shuffle = false;
    spec->train->microbatches = cuts[c];
    fed.values[0].shape.dim[0] = fed.values[1].shape.dim[0] = BATCH / cuts[c];
    assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
    assert_int_equal(plan_init(&plan, spec, SAMPLES, 0, &err), 0);
    assert_int_equal(plan.steps, WHOLE_STEPS);
    if (loader_new(
            &(struct loader_options){
                .model = model, .plan = &plan, .spec = spec, .train = dataset, .threads = 2},
            &loader, &err))
      fail_msg("%s", err.text);
    for (uint64_t step = 0; step < WHOLE_STEPS; step++)
      for (uint32_t m = 0; m < cuts[c]; m++) {
        size_t elems = BATCH / cuts[c] * PIXELS;
        struct loader_batch *batch;
        loader_expect(loader, step, 0, m % 2 ? cuts[c] : 1);
        batch = loader_train(loader, step, m);
        memcpy(drawn[c][step] + m * elems, batch->inputs[0], elems * sizeof(float));
        loader_put(loader, batch);
      }
    loader_free(loader);
    dataset_close(dataset);
    spec_free(spec);
  }
  assert_memory_equal(drawn[0], drawn[1], sizeof drawn[0]);
  assert_memory_equal(drawn[0], drawn[2], sizeof drawn[0]);
  /* Steps 0 and 5 begin with samples 0 .. 3 of two epochs. */
  assert_memory_not_equal(drawn[0][0], drawn[0][5], sizeof drawn[0][0]);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(labels_of_any_shape_are_bound_by_their_rule),
      cmocka_unit_test(the_scale_of_a_step_is_that_of_its_labels_that_count),
      cmocka_unit_test(the_scale_follows_the_sampler),
      cmocka_unit_test(a_step_whose_labels_are_all_ignored_has_scale_0),
      cmocka_unit_test(batches_made_ahead_equal_batches_made_now),
      cmocka_unit_test(evaluation_goes_through_its_own_transforms),
      cmocka_unit_test(evaluation_covers_every_sample_once),
      cmocka_unit_test(augmentation_does_not_depend_on_how_a_batch_is_cut),
  };
  return cmocka_run_group_tests(tests, idx_make_folder, idx_remove_folder);
}
