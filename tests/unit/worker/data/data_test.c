/* Datasets: what is read, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "tests/support/worker/data_fixture.h"
#include "tests/support/worker/idx_fixture.h"
#include "worker/data/dataset.h"

static void refuse(const char *images, const char *labels, enum err_code code, const char *wanted) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  Weir__RunSpec *spec = idx_spec(images, labels);
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), code);
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
  Weir__RunSpec *spec = idx_spec("images", "labels");
  (void)state;
  strcpy(spec->data->train->format, "npy"); /* as long */
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), ERR_INVALID);
  assert_string_equal(err.text, "data.train.images: is not a key of format 'npy' (it has: columns)");
  strcpy(spec->data->train->format, "ids");
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), ERR_INVALID);
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
  Weir__RunSpec *spec = idx_spec("damaged.gz", "labels");
  (void)state;
  idx_path_of("images.gz", path);
  file = fopen(path, "rb");
  size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  for (size_t cut = 0; cut < size; cut++) {
    idx_write_file("damaged.gz", bytes, cut);
    assert_int_not_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
  }
  for (size_t at = 0; at < size; at++) {
    bytes[at] ^= 0x55;
    idx_write_file("damaged.gz", bytes, size);
    if (dataset_open(spec, spec->data->train, &everything, &dataset, &err) == 0)
      dataset_close(dataset);
    bytes[at] ^= 0x55;
  }
  spec_free(spec);
}

static void the_data_root_confines_a_spec(void **state) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  Weir__RunSpec *spec = idx_spec("images", "labels");
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, &(struct data_root){.path = "/usr"}, &dataset, &err),
                   ERR_INVALID);
  assert_non_null(strstr(err.text, "outside"));
  assert_int_equal(
      dataset_open(spec, spec->data->train, &(struct data_root){.path = idx_folder()}, &dataset, &err), 0);
  dataset_close(dataset);
  assert_int_equal(
      dataset_open(spec, spec->data->train, &(struct data_root){.path = "/no-such-root"}, &dataset, &err),
      ERR_NOT_FOUND);
  spec_free(spec);
}

static void gzip_and_plain_have_the_same_content_hash(void **state) {
  struct err err = ERR_NONE;
  struct dataset *plain, *gzip;
  Weir__RunSpec *spec = idx_spec("images", "labels"), *gzip_spec = idx_spec("images.gz", "labels");
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &plain, &err), 0);
  assert_int_equal(dataset_open(gzip_spec, gzip_spec->data->train, &everything, &gzip, &err), 0);
  assert_string_equal(dataset_sha256(plain), dataset_sha256(gzip));
  assert_int_equal(dataset_samples(plain), SAMPLES);
  dataset_close(plain);
  dataset_close(gzip);
  spec_free(spec);
  spec_free(gzip_spec);
}

static void samples_are_transformed_in_the_spec_s_order(void **state) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  struct column_form form;
  uint64_t indices[2] = {9, 1};
  float out[2 * PIXELS];
  int64_t labels[2];
  Weir__RunSpec *spec = idx_spec("images", "labels");
  const struct training_input images = {.spec = spec, .value = &image_input};
  const struct training_input classes = {.spec = spec, .value = &label_input, .labels = &four_classes};
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
  assert_int_equal(bind_column(dataset, "", &images, &form, &err), 0);
  read_samples(dataset, &form, indices, 2, out);
  for (int i = 0; i < PIXELS; i++) {
    assert_true(out[i] == ((float)(9 * PIXELS + i) * 3 * 0.5f - 1) / 2);
    assert_true(out[PIXELS + i] == ((float)(PIXELS + i) * 3 * 0.5f - 1) / 2);
  }
  assert_int_equal(bind_column(dataset, "", &classes, &form, &err), 0);
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
  Weir__RunSpec *spec = idx_spec("images", "labels");
  const struct training_input images = {.spec = spec, .value = &image_input};
  const struct training_input classes = {.spec = spec, .value = &label_input, .labels = &three_classes};
  const struct training_input wide_images = {.spec = spec, .value = &wide};
  (void)state;
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
  assert_int_equal(bind_column(dataset, "", &classes, &form, &err), ERR_INVALID);
  assert_string_equal(err.text, "labels: sample 3 has a label that is no class, the model has 3 classes");
  wide.shape.dim[3] = 4;
  assert_int_equal(bind_column(dataset, "", &wide_images, &form, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "[2,3], the model's input 'image' wants [1,2,4]"));
  assert_int_equal(bind_column(dataset, "pictures", &images, &form, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "no column 'pictures'; the dataset has: images labels"));
  spec->data->transforms[1]->normalize->n_mean = 2;
  spec->data->transforms[1]->normalize->n_std = 2;
  assert_int_equal(bind_column(dataset, "", &images, &form, &err), ERR_INVALID);
  dataset_close(dataset);
  spec_free(spec);
}

static void samples_fit_an_input_that_has_their_elements_in_their_order(void **state) {
  static const struct {
    struct shape sample, input;
    bool fits;
  } rows[] = {
      {{3, {3, 32, 32}}, {3, {3, 32, 32}}, true},
      {{1, {3072}}, {3, {3, 32, 32}}, true},
      {{2, {3, 1024}}, {3, {3, 32, 32}}, true},
      {{3, {3, 32, 32}}, {2, {96, 32}}, true},
      {{2, {28, 28}}, {3, {1, 28, 28}}, true},
      {{3, {28, 28, 1}}, {3, {1, 28, 28}}, true},
      {{3, {1, 28, 28}}, {1, {784}}, true},
      {{0}, {1, {1}}, true},
      {{2, {1, 1}}, {0}, true},
      {{4, {2, 3, 4, 5}}, {2, {6, 20}}, true},
      {{3, {32, 32, 3}}, {3, {3, 32, 32}}, false},
      {{3, {4, 4, 3}}, {3, {3, 4, 4}}, false},
      {{2, {2, 24}}, {3, {3, 4, 4}}, false},
      {{3, {3, 2, 8}}, {3, {3, 4, 4}}, false},
      {{2, {2, 8}}, {3, {1, 4, 4}}, false},
      {{2, {16, 48}}, {3, {3, 16, 16}}, false},
      {{1, {47}}, {3, {3, 4, 4}}, false},
      {{3, {3, 4, 4}}, {3, {3, 4, 5}}, false},
      {{4, {2, 3, 4, 5}}, {2, {8, 15}}, false},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (form_fits(&rows[i].sample, &rows[i].input) != rows[i].fits)
      fail_msg("row %zu", i);
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
      cmocka_unit_test(samples_fit_an_input_that_has_their_elements_in_their_order),
      cmocka_unit_test(a_label_out_of_range_is_named_with_its_sample),
  };
  return cmocka_run_group_tests(tests, idx_make_folder, idx_remove_folder);
}
