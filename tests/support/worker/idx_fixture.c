#include "tests/support/worker/idx_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "common/agree/spec.h"
#include "common/base/memory.h"

static char folder[64]; /* of the tests of one program, which make it once */

static const unsigned char images_header[] = {0, 0, 8, 3, 0, 0, 0, SAMPLES, 0, 0, 0, 2, 0, 0, 0, 3};

static const unsigned char labels_header[] = {0, 0, 8, 1, 0, 0, 0, SAMPLES};

const char *idx_folder(void) {
  return folder;
}

void idx_path_of(const char *name, char path[128]) {
  snprintf(path, 128, "%s/%s", folder, name);
}

void idx_write_file(const char *name, const void *data, size_t size) {
  char path[128];
  FILE *file;
  idx_path_of(name, path);
  file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, size, file), size);
  fclose(file);
}

static void write_gzip(const char *name, const void *data, size_t size) {
  char path[128];
  gzFile file;
  idx_path_of(name, path);
  file = gzopen(path, "wb");
  assert_int_equal(gzwrite(file, data, (unsigned)size), size);
  gzclose(file);
}

size_t idx_make_images(unsigned char *out) {
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

int idx_make_folder(void **state) {
  unsigned char bytes[256];
  size_t size;
  (void)state;
  strcpy(folder, "/tmp/weir-data-XXXXXX");
  if (!mkdtemp(folder))
    return -1;
  size = idx_make_images(bytes);
  idx_write_file("images", bytes, size);
  write_gzip("images.gz", bytes, size);
  idx_write_file("cut", bytes, size - 1);
  idx_write_file("long", bytes, size + 1);
  idx_write_file("plain.gz", bytes, size);
  size = make_labels(bytes);
  idx_write_file("labels", bytes, size);
  bytes[7] = 9;
  idx_write_file("nine", bytes, size - 1);
  idx_write_file("text", "hello, this is text", 19);
  idx_write_file("empty", "", 0);
  memcpy(bytes, "\0\0\x08\x04\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 20);
  idx_write_file("huge", bytes, 20);
  return 0;
}

int idx_remove_folder(void **state) {
  static const char *const names[] = {"images", "images.gz", "cut",  "long",  "plain.gz",  "labels",
                                      "nine",   "text",      "huge", "empty", "damaged.gz"};
  char path[128];
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    idx_path_of(names[i], path);
    unlink(path);
  }
  return rmdir(folder);
}

Weir__RunSpec *idx_transformed_spec(const char *images, const char *labels, const char *transforms) {
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

Weir__RunSpec *idx_spec(const char *images, const char *labels) {
  return idx_transformed_spec(images, labels, "{scale: 0.5}, {normalize: {mean: [1], std: [2]}}");
}

const struct value image_input = {.name = "image", .dtype = DTYPE_F32, .shape = {4, {2, 1, 2, 3}}};

const struct label_rule four_classes = {.classes = 4, .ignore_index = -100};

const struct value label_input = {.name = "labels", .dtype = DTYPE_I64, .shape = {1, {2}}};

const struct model *fed_model_init(struct fed_model *fed, struct label_rule labels) {
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
