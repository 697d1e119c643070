/* Datasets: what is read, what is refused, and that prefetching changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "tests/support/data_fixture.h"
#include "worker/data/dataset.h"
#include "worker/data/loader.h"

enum { SAMPLES = 10, PIXELS = 6 };

static char folder[64];

static const unsigned char images_header[] = {0, 0, 8, 3, 0, 0, 0, SAMPLES, 0, 0, 0, 2, 0, 0, 0, 3};
static const unsigned char labels_header[] = {0, 0, 8, 1, 0, 0, 0, SAMPLES};

static void path_of(const char *name, char path[128]) {
  snprintf(path, 128, "%s/%s", folder, name);
}

static void write_file(const char *name, const void *data, size_t size) {
  char path[128];
  FILE *file;
  path_of(name, path);
  file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, size, file), size);
  fclose(file);
}

static void write_gzip(const char *name, const void *data, size_t size) {
  char path[128];
  gzFile file;
  path_of(name, path);
  file = gzopen(path, "wb");
  assert_int_equal(gzwrite(file, data, (unsigned)size), size);
  gzclose(file);
}

static size_t make_images(unsigned char *out) {
  memcpy(out, images_header, sizeof images_header);
  for (int i = 0; i < SAMPLES * PIXELS; i++)
    out[sizeof images_header + (size_t)i] = (unsigned char)(i * 3);
  return sizeof images_header + SAMPLES * PIXELS;
}

static size_t make_labels(unsigned char *out) {
  memcpy(out, labels_header, sizeof labels_header);
  for (int i = 0; i < SAMPLES; i++)
    out[sizeof labels_header + (size_t)i] = (unsigned char)(i % 4);
  return sizeof labels_header + SAMPLES;
}

static int make_folder(void **state) {
  unsigned char bytes[256];
  size_t size;
  (void)state;
  strcpy(folder, "/tmp/weir-data-XXXXXX");
  if (!mkdtemp(folder))
    return -1;
  size = make_images(bytes);
  write_file("images", bytes, size);
  write_gzip("images.gz", bytes, size);
  write_file("cut", bytes, size - 1);
  write_file("long", bytes, size + 1);
  write_file("plain.gz", bytes, size);
  size = make_labels(bytes);
  write_file("labels", bytes, size);
  bytes[7] = 9;
  write_file("nine", bytes, size - 1);
  write_file("text", "hello, this is text", 19);
  write_file("empty", "", 0);
  memcpy(bytes, "\0\0\x08\x04\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 20);
  write_file("huge", bytes, 20);
  return 0;
}

static int remove_folder(void **state) {
  static const char *const names[] = {"images", "images.gz", "cut",  "long",  "plain.gz",  "labels",
                                      "nine",   "text",      "huge", "empty", "damaged.gz"};
  char path[128];
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    path_of(names[i], path);
    unlink(path);
  }
  return rmdir(folder);
}

static Weir__RunSpec *make_transformed_spec(const char *images, const char *labels, const char *transforms) {
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  char *text = mem_printf("name: t\nmodel: {onnx: m}\ndata:\n  root: %s\n"
                          "  train: {format: idx, images: %s, labels: %s}\n"
                          "  transforms: [%s]\n"
                          "train: {epochs: 3, batch: 4, microbatches: 2, seed: 1, optimizer: {lr: 1}}\n",
                          folder, images, labels, transforms);
  if (spec_read("t", text, strlen(text), &spec, &err) || spec_check(spec, &err))
    fail_msg("%s", err.text);
  free(text);
  return spec;
}

static Weir__RunSpec *make_spec(const char *images, const char *labels) {
  return make_transformed_spec(images, labels, "{scale: 0.5}, {normalize: {mean: [1], std: [2]}}");
}

static void refuse(const char *images, const char *labels, enum err_code code, const char *wanted) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  Weir__RunSpec *spec = make_spec(images, labels);
  assert_int_equal(dataset_open(spec, spec->data->train, "/", &dataset, &err), code);
  if (!strstr(err.text, wanted))
    fail_msg("'%s' does not hold '%s'", err.text, wanted);
  spec_free(spec);
}

static void a_bad_file_is_refused_with_its_name_and_cause(void **state) {
  (void)state;
  refuse("absent", "labels", ERR_NOT_FOUND, "/absent: No such file");
  refuse("cut", "labels", ERR_CORRUPT, "/cut: cut short: it ends within its data");
  refuse("long", "labels", ERR_INVALID, "/long: goes on after");
  refuse("plain.gz", "labels", ERR_INVALID, "/plain.gz: is named .gz but is not gzip data");
  refuse("text", "labels", ERR_INVALID, "/text: is not an IDX file");
  refuse("empty", "labels", ERR_CORRUPT, "/empty: cut short");
  refuse("huge", "labels", ERR_INVALID, "/huge: has no sample, or impossible dimensions");
  refuse("images", "nine", ERR_INVALID, "10 images but 9 labels");
}

static void a_key_of_another_format_is_refused_by_name(void **state) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  Weir__RunSpec *spec = make_spec("images", "labels");
  (void)state;
  strcpy(spec->data->train->format, "npy"); /* as long */
  assert_int_equal(dataset_open(spec, spec->data->train, "/", &dataset, &err), ERR_INVALID);
  assert_string_equal(err.text, "data.train.images: is not a key of format 'npy' (it has: columns)");
  strcpy(spec->data->train->format, "ids");
  assert_int_equal(dataset_open(spec, spec->data->train, "/", &dataset, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "data.train.format: 'ids' is not known (known: idx npy"));
  spec_free(spec);
}

static void damaged_gzip_never_crashes_the_reader(void **state) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  unsigned char bytes[512];
  char path[128];
  size_t size;
  FILE *file;
  Weir__RunSpec *spec = make_spec("damaged.gz", "labels");
  (void)state;
  path_of("images.gz", path);
  file = fopen(path, "rb");
  size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  for (size_t cut = 0; cut < size; cut++) {
    write_file("damaged.gz", bytes, cut);
    assert_int_not_equal(dataset_open(spec, spec->data->train, "/", &dataset, &err), 0);
  }
  for (size_t at = 0; at < size; at++) {
    bytes[at] ^= 0x55;
    write_file("damaged.gz", bytes, size);
    if (dataset_open(spec, spec->data->train, "/", &dataset, &err) == 0)
      dataset_close(dataset);
    bytes[at] ^= 0x55;
  }
  spec_free(spec);
}

static void the_data_root_confines_a_spec(void **state) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  Weir__RunSpec *spec = make_spec("images", "labels");
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, "/usr", &dataset, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "outside"));
  assert_int_equal(dataset_open(spec, spec->data->train, folder, &dataset, &err), 0);
  dataset_close(dataset);
  assert_int_equal(dataset_open(spec, spec->data->train, "/no-such-root", &dataset, &err), ERR_NOT_FOUND);
  spec_free(spec);
}

static void gzip_and_plain_have_the_same_content_hash(void **state) {
  struct err err = ERR_NONE;
  struct dataset *plain, *gzip;
  Weir__RunSpec *spec = make_spec("images", "labels"), *gzip_spec = make_spec("images.gz", "labels");
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, "/", &plain, &err), 0);
  assert_int_equal(dataset_open(gzip_spec, gzip_spec->data->train, "/", &gzip, &err), 0);
  assert_string_equal(dataset_sha256(plain), dataset_sha256(gzip));
  assert_int_equal(dataset_samples(plain), SAMPLES);
  dataset_close(plain);
  dataset_close(gzip);
  spec_free(spec);
  spec_free(gzip_spec);
}

static const struct value image_input = {.name = "image", .dtype = DTYPE_F32, .shape = {4, {2, 1, 2, 3}}};
static const struct label_rule four_classes = {.classes = 4, .ignore_index = -100};
static const struct value label_input = {.name = "labels", .dtype = DTYPE_I64, .shape = {1, {2}}};

/* A model of one image and its labels, as far as a loader looks at it. */
struct fed_model {
  struct value values[2]; /* image_input, label_input */
  int inputs[2];
  struct graph graph;
  const char *columns[1];
  struct model model;
};

static const struct model *fed_model_init(struct fed_model *fed, struct label_rule labels) {
  *fed = (struct fed_model){.values = {image_input, label_input}, .inputs = {0, 1}, .columns = {""}};
  fed->graph = (struct graph){.values = fed->values, .n_values = 2, .inputs = fed->inputs, .n_inputs = 2};
  fed->model = (struct model){.train = &fed->graph,
                              .n_columns = 1,
                              .has_labels = true,
                              .labels = labels,
                              .input_columns = fed->columns,
                              .label_column = ""};
  return &fed->model;
}

static void samples_are_transformed_in_the_spec_s_order(void **state) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  struct column_form form;
  uint64_t indices[2] = {9, 1};
  float out[2 * PIXELS];
  int64_t labels[2];
  Weir__RunSpec *spec = make_spec("images", "labels");
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, "/", &dataset, &err), 0);
  assert_int_equal(bind_column(dataset, spec, "", &image_input, NULL, &form, &err), 0);
  read_samples(dataset, &form, indices, 2, out);
  for (int i = 0; i < PIXELS; i++) {
    assert_true(out[i] == ((float)(9 * PIXELS + i) * 3 * 0.5f - 1) / 2);
    assert_true(out[PIXELS + i] == ((float)(PIXELS + i) * 3 * 0.5f - 1) / 2);
  }
  assert_int_equal(bind_column(dataset, spec, "", &label_input, &four_classes, &form, &err), 0);
  read_samples(dataset, &form, indices, 2, labels);
  assert_int_equal(labels[0], 1);
  assert_int_equal(labels[1], 1);
  dataset_close(dataset);
  spec_free(spec);
}

static void a_label_out_of_range_is_named_with_its_sample(void **state) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  struct column_form form;
  struct value wide = image_input;
  const struct label_rule three_classes = {.classes = 3, .ignore_index = -100};
  Weir__RunSpec *spec = make_spec("images", "labels");
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, "/", &dataset, &err), 0);
  assert_int_equal(bind_column(dataset, spec, "", &label_input, &three_classes, &form, &err), ERR_INVALID);
  assert_string_equal(err.text, "labels: sample 3 has a label that is no class, the model has 3 classes");
  wide.shape.dim[3] = 4;
  assert_int_equal(bind_column(dataset, spec, "", &wide, NULL, &form, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "[2,3], the model's input 'image' wants [1,2,4]"));
  assert_int_equal(bind_column(dataset, spec, "pictures", &image_input, NULL, &form, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "no column 'pictures'; the dataset has: images labels"));
  spec->data->transforms[1]->normalize->n_mean = 2;
  spec->data->transforms[1]->normalize->n_std = 2;
  assert_int_equal(bind_column(dataset, spec, "", &image_input, NULL, &form, &err), ERR_INVALID);
  dataset_close(dataset);
  spec_free(spec);
}

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
  Weir__RunSpec *spec = make_spec("images", "labels");
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, "/", &dataset, &err), 0);
  assert_int_equal(bind_column(dataset, spec, "images", &pixels, &rule, &form, &err), 0);
  read_samples(dataset, &form, indices, 1, labels);
  assert_true(labels[0] == 18 && labels[5] == 33);
  rule.classes = 100; /* 102 is sample 5's element 4 */
  assert_int_equal(bind_column(dataset, spec, "images", &pixels, &rule, &form, &err), ERR_INVALID);
  assert_string_equal(err.text,
                      "images: sample 5 has a label that is no class at [1,1], the model has 100 classes");
  rule.classes = 177;
  rule.ignore_index = 177; /* of sample 9's last element alone */
  assert_int_equal(bind_column(dataset, spec, "images", &pixels, &rule, &form, &err), 0);
  dataset_label_weights(dataset, &form, &rule, weights);
  assert_true(weights[0] == 6 && weights[9] == 5);
  assert_int_equal(bind_column(dataset, spec, "images", &targets, &none, &form, &err), 0);
  read_samples(dataset, &form, indices, 1, values); /* no transforms */
  assert_true(values[0] == 18 && values[5] == 33);
  assert_int_equal(bind_column(dataset, spec, "images", &turned, &none, &form, &err), ERR_INVALID);
  assert_string_equal(err.text, "labels of column 'images' are [2,3] in each sample, where [3,2] is needed");
  assert_int_equal(bind_column(dataset, spec, "images", &single, &none, &form, &err), ERR_INVALID);
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
  Weir__RunSpec *spec = make_spec("images", "labels");
  struct plan plan;
  (void)state;
  spec->data->shuffle = false;
  assert_int_equal(dataset_open(spec, spec->data->train, "/", &dataset, &err), 0);
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
  Weir__RunSpec *spec = make_spec("images", "labels");
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, "/", &dataset, &err), 0);
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
  Weir__RunSpec *spec = make_spec("images", "labels");
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, "/", &dataset, &err), 0);
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
  Weir__RunSpec *spec = make_spec("images", "labels");
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, "/", &dataset, &err), 0);
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
      make_transformed_spec("images", "labels", "{scale: 2}]\n  eval_transforms: [{scale: 10}, {scale: 10}");
  (void)state;
  spec->data->shuffle = false;
  assert_int_equal(dataset_open(spec, spec->data->train, "/", &dataset, &err), 0);
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
  spec = make_transformed_spec("images", "labels",
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
  Weir__RunSpec *spec = make_spec("images", "labels");
  uint32_t samples = 0;
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, "/", &dataset, &err), 0);
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
    Weir__RunSpec *spec = make_transformed_spec("images", "labels", text);
    spec->data->shuffle = false;
    spec->train->microbatches = cuts[c];
    fed.values[0].shape.dim[0] = fed.values[1].shape.dim[0] = BATCH / cuts[c];
    assert_int_equal(dataset_open(spec, spec->data->train, "/", &dataset, &err), 0);
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
      cmocka_unit_test(a_bad_file_is_refused_with_its_name_and_cause),
      cmocka_unit_test(a_key_of_another_format_is_refused_by_name),
      cmocka_unit_test(damaged_gzip_never_crashes_the_reader),
      cmocka_unit_test(the_data_root_confines_a_spec),
      cmocka_unit_test(gzip_and_plain_have_the_same_content_hash),
      cmocka_unit_test(samples_are_transformed_in_the_spec_s_order),
      cmocka_unit_test(a_label_out_of_range_is_named_with_its_sample),
      cmocka_unit_test(labels_of_any_shape_are_bound_by_their_rule),
      cmocka_unit_test(the_scale_of_a_step_is_that_of_its_labels_that_count),
      cmocka_unit_test(the_scale_follows_the_sampler),
      cmocka_unit_test(a_step_whose_labels_are_all_ignored_has_scale_0),
      cmocka_unit_test(batches_made_ahead_equal_batches_made_now),
      cmocka_unit_test(evaluation_goes_through_its_own_transforms),
      cmocka_unit_test(evaluation_covers_every_sample_once),
      cmocka_unit_test(augmentation_does_not_depend_on_how_a_batch_is_cut),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
