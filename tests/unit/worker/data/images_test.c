/* Images and folders of them: pixels as Pillow decodes them (tests/parity/images.json, which images.py beside
   it makes), what is refused, and which classes there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "tests/support/worker/data_fixture.h"
#include "worker/data/formats/image.h"

static json_t *golden;
static char folder[64];

/* Bytes of hexadecimal text; freed by the caller. */
static unsigned char *unhex(const char *text, size_t *size) {
  unsigned char *bytes = malloc(strlen(text) / 2 + 1);
  *size = strlen(text) / 2;
  for (size_t i = 0; i < *size; i++) {
    unsigned value;
    assert_int_equal(sscanf(text + 2 * i, "%2x", &value), 1);
    bytes[i] = (unsigned char)value;
  }
  return bytes;
}

static unsigned char *golden_bytes(json_t *entry, const char *key, size_t *size) {
  return unhex(json_string_value(json_object_get(entry, key)), size);
}

static json_t *golden_file(const char *name) {
  json_t *entry;
  size_t i;
  json_array_foreach(json_object_get(golden, "files"), i,
                     entry) if (strcmp(json_string_value(json_object_get(entry, "name")), name) ==
                                0) return entry;
  fail_msg("no file '%s'", name);
  return NULL;
}

static int decode(const unsigned char *bytes, size_t size, int64_t channels, struct sample *sample,
                  struct err *err) {
  *err = ERR_NONE;
  sample->shape.channels = channels;
  return image_decode(bytes, size, sample, err);
}

static void compare(json_t *entry, const char *key, int64_t channels) {
  const char *name = json_string_value(json_object_get(entry, "name"));
  struct scratch scratch = {0};
  struct sample sample = {.scratch = &scratch};
  size_t size, wanted_size;
  unsigned char *bytes = golden_bytes(entry, "file", &size), *wanted = golden_bytes(entry, key, &wanted_size);
  struct err err;
  int64_t height, width;
  if (decode(bytes, size, channels, &sample, &err))
    fail_msg("%s: %s", name, err.text);
  height = sample.shape.height;
  width = sample.shape.width;
  assert_int_equal(height * width * channels, wanted_size);
  for (int64_t c = 0; c < channels; c++)
    for (int64_t i = 0; i < height * width; i++) {
      unsigned char have =
          ((const uint8_t *)sample
               .data)[c * sample.channel_step + i / width * sample.row_step + i % width * sample.pixel_step];
      if (have != wanted[i * channels + c])
        fail_msg("%s: pixel [%lld,%lld,%lld] is %d, Pillow's is %d", name, (long long)c,
                 (long long)(i / width), (long long)(i % width), have, wanted[i * channels + c]);
    }
  free(bytes);
  free(wanted);
  scratch_fini(&scratch);
}

static void every_kind_of_file_has_pillow_s_pixels(void **state) {
  json_t *entry;
  size_t i;
  (void)state;
  assert_true(json_array_size(json_object_get(golden, "files")) > 20);
  json_array_foreach(json_object_get(golden, "files"), i, entry) {
    compare(entry, "rgb", 3);
    compare(entry, "gray", 1);
  }
}

/* Each byte of each kind of file damaged, and each length: it is decoded or refused. */
static void damaged_and_cut_files_are_refused_or_decoded(void **state) {
  struct scratch scratch = {0};
  struct sample sample = {.scratch = &scratch};
  json_t *entry;
  size_t i;
  (void)state;
  json_array_foreach(json_object_get(golden, "files"), i, entry) {
    struct err err;
    size_t size;
    unsigned char *bytes = golden_bytes(entry, "file", &size);
    for (size_t cut = 0; cut < size; cut++) {
      unsigned char *copy = malloc(cut + 1); /* so that reading past the end is noticed */
      memcpy(copy, bytes, cut);
      if (decode(copy, cut, 3, &sample, &err) == 0 && cut < size / 2)
        fail_msg("%s: its first %zu bytes were decoded", json_string_value(json_object_get(entry, "name")),
                 cut);
      free(copy);
    }
    for (size_t at = 0; at < size; at++) {
      bytes[at] ^= 0x5a;
      decode(bytes, size, 1, &sample, &err);
      bytes[at] ^= 0x5a;
    }
    free(bytes);
  }
  scratch_fini(&scratch);
}

static void refuse_bytes(const unsigned char *bytes, size_t size, enum err_code code, const char *wanted) {
  struct scratch scratch = {0};
  struct sample sample = {.scratch = &scratch};
  struct err err;
  int got = decode(bytes, size, 3, &sample, &err);
  if (got != (int)code || !strstr(err.text, wanted))
    fail_msg("%d '%s' is not %d with '%s'", got, err.text, code, wanted);
  assert_int_equal(scratch.size_bytes[SCRATCH_PIXELS], 0);
  scratch_fini(&scratch);
}

/* A PNG of that size with nothing in it. Its check sums are right. */
static void png_of_size(unsigned width, unsigned height, unsigned char out[33]) {
  static const unsigned char begin[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n',
                                        0,    0,   0,   13,  'I',  'H',  'D',  'R'};
  unsigned crc = ~0u;
  memcpy(out, begin, sizeof begin);
  for (int i = 0; i < 4; i++) {
    out[16 + i] = (unsigned char)(width >> (24 - 8 * i));
    out[20 + i] = (unsigned char)(height >> (24 - 8 * i));
  }
  memcpy(out + 24, "\x08\x02\0\0\0", 5);
  for (int i = 12; i < 29; i++) {
    crc ^= out[i];
    for (int bit = 0; bit < 8; bit++)
      crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
  }
  for (int i = 0; i < 4; i++)
    out[29 + i] = (unsigned char)(~crc >> (24 - 8 * i));
}

static void bombs_are_refused_before_memory_is_asked_for(void **state) {
  unsigned char png[33 + 12] = {0}, *jpeg;
  size_t size, at = 2;
  (void)state;
  png_of_size(60000, 60000, png);
  memcpy(png + 33, "\0\0\0\0IDAT\x35\xaf\x06\x1e", 12);
  refuse_bytes(png, sizeof png, ERR_INVALID, "has 60000 x 60000 pixels");
  png_of_size(0x7fffffff, 0x7fffffff, png);
  refuse_bytes(png, sizeof png, ERR_INVALID, "has 2147483647 x 2147483647 pixels");
  png_of_size(8000, 8000, png);
  refuse_bytes(png, sizeof png, ERR_CORRUPT, "45 bytes cannot hold 8000 x 8000 pixels");
  jpeg = golden_bytes(golden_file("JPEG, progressive"), "file", &size);
  while (jpeg[at + 1] != 0xc2) /* the frame's header */
    at += 2u + (size_t)(jpeg[at + 2] << 8 | jpeg[at + 3]);
  memcpy(jpeg + at + 5, "\xff\x00\xff\x00", 4);
  refuse_bytes(jpeg, size, ERR_INVALID, "has 65280 x 65280 pixels");
  memcpy(jpeg + at + 5, "\x20\x00\x20\x00", 4);
  refuse_bytes(jpeg, size, ERR_CORRUPT, "cannot hold the pixels that it announces");
  refuse_bytes((const unsigned char *)"GIF89a", 6, ERR_INVALID, "is neither a JPEG nor a PNG file");
  refuse_bytes(jpeg, 0, ERR_INVALID, "is neither a JPEG nor a PNG file");
  free(jpeg);
}

static void write_file(const char *name, const void *data, size_t size) {
  char path[160];
  FILE *file;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, size, file), size);
  fclose(file);
}

static void write_image(const char *name, const char *kind) {
  size_t size;
  unsigned char *bytes = golden_bytes(golden_file(kind), "file", &size);
  write_file(name, bytes, size);
  free(bytes);
}

static void make_subfolder(const char *name) {
  char path[160];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  assert_int_equal(mkdir(path, 0700), 0);
}

static const char *const subfolders[] = {"train",    "train/cat", "train/Dog", "train/cat/more", "eval",
                                         "eval/cat", "eval/Dog",  "other",     "other/cat",      "other/cow",
                                         "empty",    "empty/cat", "bad",       "bad/cat",        "flat"};
static const char *const files[] = {"train/cat/b.png",     "train/cat/a.JPEG", "train/cat/more/0.png",
                                    "train/cat/notes.txt", "train/Dog/x.jpg",  "eval/cat/1.png",
                                    "eval/Dog/2.png",      "other/cat/1.png",  "other/cow/1.png",
                                    "empty/cat/notes.txt", "bad/cat/cut.png",  "flat/1.png"};

static int make_folder(void **state) {
  json_error_t error;
  (void)state;
  golden = json_load_file("tests/parity/images.json", 0, &error);
  strcpy(folder, "/tmp/weir-images-XXXXXX");
  if (!golden || !mkdtemp(folder))
    return -1;
  for (size_t i = 0; i < sizeof subfolders / sizeof *subfolders; i++)
    make_subfolder(subfolders[i]);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (strstr(files[i], ".txt"))
      write_file(files[i], "not an image", 12);
    else
      write_image(files[i], strstr(files[i], ".png") ? "PNG, RGB" : "JPEG, 4:2:0");
  write_image("train/cat/b.png", "PNG, gray");
  write_file("bad/cat/cut.png", "\x89PNG\r\n\x1a\n", 8);
  return 0;
}

static int remove_folder(void **state) {
  char path[160];
  (void)state;
  json_decref(golden);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, files[i]);
    unlink(path);
  }
  for (size_t i = sizeof subfolders / sizeof *subfolders; i-- > 0;) {
    snprintf(path, sizeof path, "%s/%s", folder, subfolders[i]);
    rmdir(path);
  }
  return rmdir(folder);
}

static Weir__RunSpec *make_spec(const char *train, const char *eval, const char *transforms) {
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  char *text = mem_printf("name: t\nmodel: {onnx: m}\ndata:\n  root: %s\n"
                          "  train: {format: images, folder: %s}\n  eval: {format: images, folder: %s}\n"
                          "  transforms: [%s]\n"
                          "train: {epochs: 3, batch: 2, optimizer: {lr: 1}}\n",
                          folder, train, eval, transforms);
  if (spec_read("t", text, strlen(text), &spec, &err) || spec_check(spec, &err))
    fail_msg("%s", err.text);
  free(text);
  return spec;
}

static void refuse_folder(const char *train, const char *eval, enum err_code code, const char *wanted) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  Weir__RunSpec *spec = make_spec(train, eval, "");
  int got = dataset_open(spec, spec->data->eval, &everything, &dataset, &err);
  if (got != (int)code || !strstr(err.text, wanted))
    fail_msg("%d '%s' is not %d with '%s'", got, err.text, code, wanted);
  spec_free(spec);
}

static const struct value image_input = {.name = "x", .dtype = DTYPE_F32, .shape = {4, {2, 3, 11, 19}}};
static const struct value label_input = {.name = "y", .dtype = DTYPE_I64, .shape = {1, {2}}};

/* Dog/x.jpg, cat/a.JPEG, cat/b.png, cat/more/0.png */
static void classes_and_files_are_sorted_by_name(void **state) {
  const struct label_rule rule = {.classes = 2, .ignore_index = -100};
  const uint64_t indices[4] = {0, 1, 2, 3};
  struct err err = ERR_NONE;
  struct dataset *dataset;
  struct column_form form;
  int64_t labels[4];
  static float x[4][3 * 11 * 19];
  size_t size;
  unsigned char *wanted = golden_bytes(golden_file("PNG, gray"), "rgb", &size);
  Weir__RunSpec *spec = make_spec("train", "eval", "");
  const struct training_input images = {.spec = spec, .value = &image_input};
  const struct training_input classes = {.spec = spec, .value = &label_input, .labels = &rule};
  (void)state;
  if (dataset_open(spec, spec->data->train, &everything, &dataset, &err))
    fail_msg("%s", err.text);
  assert_int_equal(dataset_samples(dataset), 4);
  assert_int_equal(bind_column(dataset, "", &classes, &form, &err), 0);
  read_samples(dataset, &form, indices, 4, labels);
  assert_true(labels[0] == 0 && labels[1] == 1 && labels[2] == 1 && labels[3] == 1);
  if (bind_column(dataset, "", &images, &form, &err))
    fail_msg("%s", err.text);
  read_samples(dataset, &form, indices, 4, x);
  assert_memory_equal(x[0], x[1], sizeof x[0]);
  assert_memory_not_equal(x[1], x[2], sizeof x[0]);
  for (int i = 0; i < 11 * 19; i++)
    assert_true(x[2][i] == wanted[3 * i] && x[2][2 * 11 * 19 + i] == wanted[3 * i]);
  assert_int_equal(dataset_check(dataset, &err), 0);
  dataset_close(dataset);
  spec_free(spec);
  free(wanted);
}

static void folders_that_are_not_what_was_meant_are_refused(void **state) {
  (void)state;
  refuse_folder("train", "other", ERR_INVALID, "/other: its class 0 is cat, that of");
  refuse_folder("train", "flat", ERR_INVALID, "/flat: holds no folder: each class has one");
  refuse_folder("train", "absent", ERR_NOT_FOUND, "/absent: No such file");
  refuse_folder("empty", "empty", ERR_INVALID, "/empty/cat: the folder of a class holds no .jpg");
  refuse_folder("train", "../etc", ERR_INVALID, "names no file below");
}

static void links_are_followed_but_not_in_circles(void **state) {
  char path[160];
  struct err err = ERR_NONE;
  struct dataset *dataset;
  Weir__RunSpec *spec = make_spec("train", "eval", "");
  (void)state;
  snprintf(path, sizeof path, "%s/train/Dog/link", folder);
  assert_int_equal(symlink("../cat/more", path), 0);
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
  assert_int_equal(dataset_samples(dataset), 5);
  dataset_close(dataset);
  unlink(path);
  assert_int_equal(symlink("..", path), 0);
  refuse_folder("train", "train", ERR_INVALID, "more than 8 folders within each other");
  unlink(path);
  snprintf(path, sizeof path, "%s/train/Dog/lost.png", folder);
  assert_int_equal(symlink("nothing", path), 0);
  refuse_folder("train", "train", ERR_NOT_FOUND, "/train/Dog/lost.png: No such file");
  unlink(path);
  spec_free(spec);
}

static void read_and_refuse(const struct value *input, const char *train, const char *transforms,
                            const char *wanted) {
  const uint64_t indices[1] = {0};
  struct err err = ERR_NONE;
  struct dataset *dataset;
  struct column_form form;
  float x[3 * 11 * 19];
  Weir__RunSpec *spec = make_spec(train, train, transforms);
  const struct training_input images = {.spec = spec, .value = input};
  assert_int_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
  if (!bind_column(dataset, "", &images, &form, &err)) {
    memset(x, 0xff, sizeof x);
    read_samples(dataset, &form, indices, 1, x);
    assert_true(x[0] == 0 && x[3 * 11 * 19 - 1] == 0);
    assert_int_not_equal(dataset_check(dataset, &err), 0);
  }
  if (!strstr(err.text, wanted))
    fail_msg("'%s' does not hold '%s'", err.text, wanted);
  dataset_close(dataset);
  spec_free(spec);
}

static void what_a_sample_lacks_comes_out_of_dataset_check_with_its_file(void **state) {
  static const struct value upright = {.name = "x", .dtype = DTYPE_F32, .shape = {4, {2, 3, 19, 11}}};
  (void)state;
  read_and_refuse(&image_input, "bad", "", "/bad/cat/cut.png: is a PNG that was cut short");
  read_and_refuse(&image_input, "train", "{resize: {size: 5}}", "Dog/x.jpg: is [3,5,8] after the transforms");
  read_and_refuse(&upright, "train", "",
                  "Dog/x.jpg: is [3,11,19] after the transforms, and the model wants [3,19,11]");
  read_and_refuse(&image_input, "train", "{random_crop: {size: 12}}, {resize: {size: [11, 19]}}",
                  "Dog/x.jpg: random_crop: size: 12 x 12 pixels cannot be");
  read_and_refuse(&image_input, "train", "{center_crop: {size: 9}}",
                  "are [3,9,9], the model's input 'x' wants [3,11,19]");
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_of_file_has_pillow_s_pixels),
      cmocka_unit_test(damaged_and_cut_files_are_refused_or_decoded),
      cmocka_unit_test(bombs_are_refused_before_memory_is_asked_for),
      cmocka_unit_test(classes_and_files_are_sorted_by_name),
      cmocka_unit_test(folders_that_are_not_what_was_meant_are_refused),
      cmocka_unit_test(links_are_followed_but_not_in_circles),
      cmocka_unit_test(what_a_sample_lacks_comes_out_of_dataset_check_with_its_file),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
