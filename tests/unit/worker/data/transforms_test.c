/* Transforms of images: torchvision's numbers (tests/parity/images.json, which images.py beside it makes),
   and draws that follow from a sample's place alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/agree/spec.h"
#include "worker/data/transform.h"

enum { ELEMS_MAX = 3 * 64 * 64 };

/* A list of transforms and what goes through it. */
struct chain {
  Weir__RunSpec *spec;
  struct transforms transforms;
  struct scratch scratch;
  float out[ELEMS_MAX];
  struct image_shape shape; /* of what was made last */
};

static void chain_init(struct chain *chain, const char *transforms, bool is_training) {
  char *text = mem_printf("data: {transforms: [%s]}", transforms);
  struct err err = ERR_NONE;
  *chain = (struct chain){0};
  if (spec_read("t", text, strlen(text), &chain->spec, &err))
    fail_msg("%s: %s", transforms, err.text);
  chain->transforms = (struct transforms){.list = chain->spec->data->transforms,
                                          .n = chain->spec->data->n_transforms,
                                          .is_training = is_training};
  free(text);
}

static void chain_fini(struct chain *chain) {
  scratch_fini(&chain->scratch);
  spec_free(chain->spec);
}

struct image {
  struct image_shape shape;
  const uint8_t *bytes;
  bool is_in_turns; /* u8[h,w,c], as images are decoded; else u8[c,h,w] */
};

/* One sample through it. */
static int chain_run(struct chain *chain, const struct image *image, uint64_t key, struct err *err) {
  struct image_shape shape = image->shape;
  struct sample sample = {.scratch = &chain->scratch};
  struct transforms_run run;
  if (transforms_begin(&chain->transforms, (struct sample_kind){DTYPE_U8, shape.channels}, &chain->scratch,
                       &run, err))
    return err->code;
  sample_set_dense(&sample, shape, DTYPE_U8, image->bytes);
  if (image->is_in_turns) {
    sample.channel_step = 1;
    sample.pixel_step = shape.channels;
    sample.row_step = shape.channels * shape.width;
  }
  if (transforms_apply(&run, key, &sample, err))
    return err->code;
  chain->shape = sample.shape;
  assert_in_range(sample.shape.channels * sample.shape.height * sample.shape.width, 1, ELEMS_MAX);
  sample_write(&sample, chain->out);
  return 0;
}

static struct image_shape shape_of(json_t *list) {
  return (struct image_shape){json_integer_value(json_array_get(list, 0)),
                              json_integer_value(json_array_get(list, 1)),
                              json_integer_value(json_array_get(list, 2))};
}

/* Bytes of one image in both orders. */
static void read_image(const char *text, struct image_shape shape, uint8_t *in_turns, uint8_t *planes) {
  int64_t n = shape.channels * shape.height * shape.width;
  for (int64_t i = 0; i < n; i++) {
    unsigned value;
    assert_int_equal(sscanf(text + 2 * i, "%2x", &value), 1);
    in_turns[i] = (uint8_t)value;
    planes[i % shape.channels * shape.height * shape.width + i / shape.channels] = (uint8_t)value;
  }
}

static void compare(json_t *entry, const char *before, bool is_in_turns) {
  const char *transform = json_string_value(json_object_get(entry, "transform"));
  struct image_shape shape = shape_of(json_object_get(entry, "shape"));
  struct image_shape wanted = shape_of(json_object_get(entry, "out_shape")), told = shape;
  uint8_t in_turns[ELEMS_MAX], planes[ELEMS_MAX];
  struct image image = {.shape = shape, .bytes = is_in_turns ? in_turns : planes, .is_in_turns = is_in_turns};
  struct err err = ERR_NONE;
  struct chain chain;
  char *text = mem_printf("%s%s", before, transform);
  read_image(json_string_value(json_object_get(entry, "image")), shape, in_turns, planes);
  chain_init(&chain, text, true);
  if (transforms_check(&chain.transforms, &told, &err) || chain_run(&chain, &image, 1, &err))
    fail_msg("%s: %s", transform, err.text);
  assert_memory_equal(&chain.shape, &wanted, sizeof wanted);
  assert_memory_equal(&told, &wanted, sizeof wanted);
  for (int64_t i = 0; i < wanted.channels * wanted.height * wanted.width; i++) {
    double value = json_number_value(json_array_get(json_object_get(entry, "out"), (size_t)i));
    if (fabs(value - (double)chain.out[i]) > 1e-3)
      fail_msg("%s of %lld x %lld: element %lld is %g, torchvision's is %g", text, (long long)shape.height,
               (long long)shape.width, (long long)i, (double)chain.out[i], value);
  }
  free(text);
  chain_fini(&chain);
}

static void geometry_is_torchvision_s(void **state) {
  json_error_t error;
  json_t *golden = json_load_file("tests/parity/images.json", 0, &error), *entry;
  size_t i;
  (void)state;
  assert_true(json_array_size(json_object_get(golden, "transforms")) > 15);
  json_array_foreach(json_object_get(golden, "transforms"), i, entry) {
    compare(entry, "", true);
    compare(entry, "", false);
    compare(entry, "{scale: 1}, {normalize: {mean: [0], std: [1]}}, ", true); /* as f32 */
    compare(entry, "{horizontal_flip: {p: 1}}, {horizontal_flip: {p: 1}}, ", true);
  }
  json_decref(golden);
}

/* An image whose elements say where they are: y * width + x, as far as bytes go. */
static struct image_shape count_image(int64_t height, int64_t width, uint8_t *bytes) {
  for (int64_t i = 0; i < height * width; i++)
    bytes[i] = (uint8_t)i;
  return (struct image_shape){1, height, width};
}

/* The draws of 4,000 samples. */
enum { DRAWS = 4000 };

static uint64_t key_of(uint64_t place) {
  return random_key(7, place, 0, UINT64_MAX);
}

static void run_on(struct chain *chain, struct image_shape shape, const uint8_t *bytes, uint64_t key) {
  struct err err = ERR_NONE;
  if (chain_run(chain, &(struct image){.shape = shape, .bytes = bytes}, key, &err))
    fail_msg("%s", err.text);
}

/* A 6 x 6 image with a border of 1 has 9 places for a window of 6 x 6, all as likely as each other. */
static void random_crops_lie_anywhere_in_the_padded_image(void **state) {
  uint8_t bytes[36];
  struct image_shape shape = count_image(6, 6, bytes);
  int seen[3][3] = {{0}};
  struct chain chain;
  (void)state;
  chain_init(&chain, "{random_crop: {size: 6, padding: 1, fill: 200}}", true);
  for (uint64_t i = 0; i < DRAWS; i++) {
    int top = -1, left = -1;
    run_on(&chain, shape, bytes, key_of(i));
    for (int t = 0; t < 3; t++)
      for (int l = 0; l < 3; l++) {
        bool is_there = true;
        for (int y = 0; y < 6; y++)
          for (int x = 0; x < 6; x++) {
            int from_y = y + t - 1, from_x = x + l - 1;
            bool is_border = from_y < 0 || from_y > 5 || from_x < 0 || from_x > 5;
            is_there &= chain.out[y * 6 + x] == (float)(is_border ? 200 : from_y * 6 + from_x);
          }
        if (is_there)
          top = t, left = l;
      }
    assert_true(top >= 0);
    seen[top][left]++;
  }
  for (int i = 0; i < 9; i++)
    assert_in_range(seen[i / 3][i % 3], DRAWS / 9 - 80, DRAWS / 9 + 80); /* 4 deviations */
  chain_fini(&chain);
}

static void padding_and_fill_are_torchvision_s(void **state) {
  uint8_t bytes[6];
  struct image_shape shape = count_image(2, 3, bytes);
  struct err err = ERR_NONE;
  struct chain chain;
  (void)state;
  chain_init(&chain, "{random_crop: {size: [5, 10], padding: [3, 1, 4, 2], fill: 9}}", true);
  run_on(&chain, shape, bytes, 1); /* one place only */
  for (int y = 0; y < 5; y++)
    for (int x = 0; x < 10; x++) {
      bool is_inner = y >= 1 && y < 3 && x >= 3 && x < 6;
      assert_true(chain.out[y * 10 + x] == (float)(is_inner ? (y - 1) * 3 + x - 3 : 9));
    }
  chain_fini(&chain);
  chain_init(&chain, "{random_crop: {size: 4, padding: [0, 1]}}", true);
  assert_int_equal(chain_run(&chain, &(struct image){.shape = shape, .bytes = bytes}, 1, &err), ERR_INVALID);
  assert_string_equal(err.text,
                      "random_crop: size: 4 x 4 pixels cannot be cut out of 2 x 3 with its padding");
  chain_fini(&chain);
  chain_init(&chain,
             "{normalize: {mean: [2], std: [2]}}, {random_crop: {size: [4, 3], padding: [0, 1], fill: -7}}",
             true);
  run_on(&chain, shape, bytes, 1);
  for (int i = 0; i < 12; i++)
    assert_true(chain.out[i] == (i >= 3 && i < 9 ? ((float)(i - 3) - 2) / 2 : -7));
  chain_fini(&chain);
}

static void a_flip_mirrors_as_often_as_p_says(void **state) {
  uint8_t bytes[12];
  struct image_shape shape = count_image(3, 4, bytes);
  struct chain chain;
  int mirrored = 0;
  (void)state;
  chain_init(&chain, "{horizontal_flip: {p: 0.25}}", true);
  for (uint64_t i = 0; i < DRAWS; i++) {
    bool is_mirrored;
    run_on(&chain, shape, bytes, key_of(i));
    is_mirrored = chain.out[0] == 3;
    mirrored += is_mirrored;
    for (int at = 0; at < 12; at++)
      assert_true(chain.out[at] == (float)(is_mirrored ? at / 4 * 4 + 3 - at % 4 : at));
  }
  assert_in_range(mirrored, DRAWS / 4 - 110, DRAWS / 4 + 110);
  chain_fini(&chain);
}

/* The hole is 3 x 3 around any of the 25 places, cut at the borders: its mean area is (3 - 2 / 5)^2. */
static void cutout_zeroes_a_square_around_any_place(void **state) {
  uint8_t bytes[25];
  struct image_shape shape = {1, 5, 5};
  int zeros = 0, corners = 0;
  struct chain chain;
  (void)state;
  memset(bytes, 50, sizeof bytes);
  chain_init(&chain, "{scale: 0.5}, {cutout: {size: 3}}", true);
  for (uint64_t i = 0; i < DRAWS; i++) {
    int hole = 0;
    run_on(&chain, shape, bytes, key_of(i));
    for (int at = 0; at < 25; at++) {
      assert_true(chain.out[at] == 0 || chain.out[at] == 25);
      hole += chain.out[at] == 0;
    }
    assert_true(hole == 4 || hole == 6 || hole == 9);
    zeros += hole;
    corners += chain.out[0] == 0;
  }
  assert_true(fabs((double)zeros / DRAWS - 2.6 * 2.6) < 0.15);
  assert_in_range(corners, DRAWS * 4 / 25 - 100, DRAWS * 4 / 25 + 100);
  chain_fini(&chain);
}

/* A ramp along the rows is still one after resampling, and its slope tells the window's width. */
static void random_resized_crops_have_the_areas_and_ratios_that_are_asked_for(void **state) {
  static uint8_t across[200 * 200], down[200 * 200];
  struct image_shape shape = {1, 200, 200};
  double areas = 0, logs = 0, least = 2, most = 0;
  struct chain chain;
  (void)state;
  for (int i = 0; i < 200 * 200; i++)
    across[i] = (uint8_t)(i % 200), down[i] = (uint8_t)(i / 200);
  chain_init(&chain, "{random_resized_crop: {size: 4, scale: [0.2, 0.6], ratio: [0.5, 2]}}", true);
  for (uint64_t i = 0; i < DRAWS; i++) {
    double width, height, area;
    run_on(&chain, shape, across, key_of(i));
    width = (double)(chain.out[2] - chain.out[1]) * 4;
    run_on(&chain, shape, down, key_of(i));
    height = (double)(chain.out[8] - chain.out[4]) * 4;
    area = width * height / 40000;
    assert_true(area > 0.19 && area < 0.62 && width / height > 0.48 && width / height < 2.1);
    areas += area;
    logs += log(width / height);
    least = fmin(least, area);
    most = fmax(most, area);
  }
  assert_true(fabs(areas / DRAWS - 0.4) < 0.01 && fabs(logs / DRAWS) < 0.03);
  assert_true(least < 0.21 && most > 0.58);
  chain_fini(&chain);
}

/* No window of these ratios fits: torchvision takes the middle of that ratio. */
static void a_crop_that_fits_nowhere_is_the_middle(void **state) {
  static uint8_t bytes[40 * 4];
  struct image_shape shape = {1, 4, 40};
  struct chain chain;
  (void)state;
  for (int i = 0; i < 160; i++)
    bytes[i] = (uint8_t)(i % 40);
  chain_init(&chain, "{random_resized_crop: {size: [4, 8], scale: [1, 1], ratio: [0.5, 2]}}", true);
  run_on(&chain, shape, bytes, 3); /* 4 x 8 pixels from 16 on: nothing to resample */
  for (int i = 0; i < 32; i++)
    assert_true(chain.out[i] == (float)(16 + i % 8));
  chain_fini(&chain);
}

static void draws_follow_from_the_place_alone(void **state) {
  static const char transforms[] = "{random_crop: {size: 8, padding: 2}}, {horizontal_flip: {}}, "
                                   "{random_resized_crop: {size: 6}}, {cutout: {size: 2}}";
  uint8_t bytes[64];
  struct image_shape shape = count_image(8, 8, bytes);
  float first[36], other[36];
  struct chain chain, again;
  int same = 0;
  (void)state;
  chain_init(&chain, transforms, true);
  chain_init(&again, transforms, true);
  for (uint64_t i = 0; i < 20; i++) {
    run_on(&chain, shape, bytes, key_of(i));
    memcpy(first, chain.out, sizeof first);
    run_on(&again, shape, bytes, key_of(1000 + i)); /* the same sample in another epoch */
    memcpy(other, again.out, sizeof other);
    same += memcmp(first, other, sizeof first) == 0;
    run_on(&again, shape, bytes, key_of(i));
    assert_memory_equal(first, again.out, sizeof first);
  }
  assert_int_equal(same, 0);
  chain_fini(&chain);
  chain_fini(&again);
}

static void nothing_is_random_in_evaluation(void **state) {
  static uint8_t bytes[24 * 32];
  struct image_shape shape = count_image(24, 32, bytes);
  struct chain chain, wanted;
  (void)state;
  chain_init(&chain, "{random_crop: {size: 20, padding: 4}}, {horizontal_flip: {p: 1}}, {cutout: {size: 8}}",
             false);
  chain_init(&wanted, "{center_crop: {size: 20}}", true);
  run_on(&chain, shape, bytes, 1);
  run_on(&wanted, shape, bytes, 2);
  assert_memory_equal(chain.out, wanted.out, 400 * sizeof(float));
  chain_fini(&chain);
  chain_fini(&wanted);
  chain_init(&chain, "{random_resized_crop: {size: 14}}", false);
  chain_init(&wanted, "{resize: {size: 16}}, {center_crop: {size: 14}}", true);
  run_on(&chain, shape, bytes, 1);
  run_on(&wanted, shape, bytes, 2);
  assert_int_equal(chain.shape.width, 14);
  assert_memory_equal(chain.out, wanted.out, 14 * 14 * sizeof(float));
  chain_fini(&chain);
  chain_fini(&wanted);
}

/* What is looked up for bytes, and what is computed for f32, are the same bits. */
static void bytes_and_floats_become_the_same(void **state) {
  static const char pointwise[] =
      "{scale: 0.00392156862745098}, {normalize: {mean: [0.485, 0.456, 0.406], std: "
      "[0.229, 0.224, 0.225]}}";
  uint8_t bytes[3 * 256];
  struct image_shape shape = {3, 16, 16};
  struct chain chain;
  (void)state;
  for (int i = 0; i < 3 * 256; i++)
    bytes[i] = (uint8_t)(i * 11);
  chain_init(&chain, pointwise, true);
  run_on(&chain, shape, bytes, 1);
  for (int i = 0; i < 3 * 256; i++) {
    static const float mean[] = {0.485f, 0.456f, 0.406f}, std[] = {0.229f, 0.224f, 0.225f};
    volatile float scaled = (float)bytes[i] * (float)0.00392156862745098;
    assert_true(chain.out[i] == (scaled - mean[i / 256]) / std[i / 256]);
  }
  chain_fini(&chain);
}

static void refuse(const char *transforms, struct image_shape shape, const char *wanted) {
  struct err err = ERR_NONE;
  struct chain chain;
  chain_init(&chain, transforms, true);
  assert_int_equal(transforms_check(&chain.transforms, &shape, &err), ERR_INVALID);
  if (!strstr(err.text, wanted))
    fail_msg("'%s' does not hold '%s'", err.text, wanted);
  chain_fini(&chain);
}

static void options_that_make_no_sense_are_refused_by_name(void **state) {
  const struct image_shape images = {3, -1, -1}, small = {1, 8, 8};
  (void)state;
  refuse("{scale: 2}, {resize: {}}", images, "data.transforms[1].resize: size: wants [height, width]");
  refuse("{resize: {size: [1, 2, 3]}}", images, "data.transforms[0].resize: size: wants");
  refuse("{resize: {size: 0}}", images, "data.transforms[0].resize: size: 0 x 0 pixels");
  refuse("{resize: {size: [60000, 60000]}}", images, "at most 67108864 pixels");
  refuse("{resize: {size: 4000000000}}", images, "data.transforms[0].resize: size: 4000000000 x");
  refuse("{center_crop: {size: []}}", images, "center_crop: size: wants");
  refuse("{random_crop: {size: 8, padding: [1, 2, 3]}}", images,
         "random_crop: padding: wants 1, 2 or 4 numbers");
  refuse("{random_crop: {size: 8, padding: 4000000000}}", images,
         "random_crop: padding: must be at most 65536");
  refuse("{random_crop: {size: 8, fill: 1e300}}", images, "random_crop: fill: must be finite");
  refuse("{random_crop: {size: 9}}", small, "random_crop: size: 9 x 9 pixels cannot be cut out of 8 x 8");
  refuse("{random_resized_crop: {size: 8, scale: [0.5, 0.1]}}", images,
         "random_resized_crop: scale: wants [least");
  refuse("{random_resized_crop: {size: 8, scale: 0.5}}", images, "random_resized_crop: scale: wants");
  refuse("{random_resized_crop: {size: 8, ratio: [0, 1]}}", images, "random_resized_crop: ratio: wants");
  refuse("{horizontal_flip: {p: 1.5}}", images, "horizontal_flip: p: must be from 0 to 1");
  refuse("{cutout: {}}", images, "cutout: size: wants");
  refuse("{normalize: {mean: [1, 2], std: [1, 2]}}", images, "normalize: 2 values for samples of 3 channels");
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(geometry_is_torchvision_s),
      cmocka_unit_test(random_crops_lie_anywhere_in_the_padded_image),
      cmocka_unit_test(padding_and_fill_are_torchvision_s),
      cmocka_unit_test(a_flip_mirrors_as_often_as_p_says),
      cmocka_unit_test(cutout_zeroes_a_square_around_any_place),
      cmocka_unit_test(random_resized_crops_have_the_areas_and_ratios_that_are_asked_for),
      cmocka_unit_test(a_crop_that_fits_nowhere_is_the_middle),
      cmocka_unit_test(draws_follow_from_the_place_alone),
      cmocka_unit_test(nothing_is_random_in_evaluation),
      cmocka_unit_test(bytes_and_floats_become_the_same),
      cmocka_unit_test(options_that_make_no_sense_are_refused_by_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
