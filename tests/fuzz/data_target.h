/* What a hostile file of a dataset goes through: opening by its format, with each of the keys that change how
   it is read, its hash, and the samples. Images are decoded. */
#ifndef WEIR_TESTS_FUZZ_DATA_TARGET_H
#define WEIR_TESTS_FUZZ_DATA_TARGET_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/agree/spec.h"
#include "worker/data/format.h"
#include "worker/data/formats/image.h"

enum { TARGET_SAMPLES = 64, TARGET_ELEMS = 1 << 16 };

static const struct data_case {
  const char *corpus, *source; /* data.gz is the same file as data */
} data_cases[] = {
    {"idx", "format: idx, images: data, labels: data"},
    {"idx", "format: idx, images: data.gz"},
    {"npy", "format: npy, columns: {x: data, labels: data}"},
    {"npz", "format: npz, file: data, columns: {images: images, labels: labels}"},
    {"csv", "format: csv, file: data, columns: {x: \"x1:x3\", labels: y}"},
    {"csv", "format: csv, file: data, header: false, columns: {x: \"1:2\", y: 1}"},
    {"csv", "format: csv, file: data, header: false, delimiter: \"\\t\", columns: {x: \"1\"}"},
    {"cifar", "format: cifar, files: [data, data]"},
    {"tokens", "format: tokens, file: data, dtype: u16, context: 3"},
    {"tokens", "format: tokens, file: data, dtype: u32, context: 2, stride: 1"},
    {"text", "format: text, file: data, context: 3, stride: 2"},
    {"text", "format: text, file: data, context: 2, unit: bytes"},
};

static char data_folder[64];

static void data_clean(void) {
  char path[96];
  snprintf(path, sizeof path, "%s/data", data_folder);
  unlink(path);
  snprintf(path, sizeof path, "%s/data.gz", data_folder);
  unlink(path);
  rmdir(data_folder);
}

static void data_write(const uint8_t *bytes, size_t size) {
  char path[96];
  int fd;
  if (!*data_folder) {
    strcpy(data_folder, "/tmp/weir-fuzz-XXXXXX");
    if (!mkdtemp(data_folder))
      abort();
    snprintf(path, sizeof path, "%s/data.gz", data_folder);
    if (symlink("data", path))
      abort();
    atexit(data_clean);
  }
  snprintf(path, sizeof path, "%s/data", data_folder);
  fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
    abort();
  close(fd);
}

static Weir__RunSpec *data_spec(const char *source) {
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  char text[512];
  int length = snprintf(text, sizeof text, "data: {train: {%s}}\n", source);
  if (spec_read("spec", text, (size_t)length, &spec, &err))
    abort();
  return spec;
}

/* The first samples and the last. */
static void data_read(const struct column *column) {
  int64_t elems = shape_elems(&column->sample);
  void *out = elems <= TARGET_ELEMS ? malloc((size_t)elems * sizeof(int64_t)) : NULL;
  struct sha256 *sha = sha256_new();
  char hex[SHA256_HEX_SIZE];
  column_hash(column, sha);
  sha256_finish(sha, hex);
  for (uint64_t s = 0; out && s < column->samples; s++) {
    if (s == TARGET_SAMPLES && column->samples > 2 * TARGET_SAMPLES)
      s = column->samples - TARGET_SAMPLES;
    column_read_f32(column, s, out);
    if (column->dtype != DTYPE_F32)
      column_read_integers(column, s, DTYPE_I64, out);
  }
  free(out);
}

static void data_open(const struct data_case *from) {
  struct column columns[COLUMNS_MAX] = {0};
  struct err err = ERR_NONE;
  Weir__RunSpec *spec = data_spec(from->source);
  struct format_source source = {"data.train", NULL, spec->data->train, spec->data->train};
  int n = 0;
  if (data_folder_open(&(struct data_root){.path = data_folder}, "", &source.folder, &err))
    abort();
  if (format_open(&source, columns, &n, &err) == 0)
    for (int c = 0; c < n; c++)
      data_read(&columns[c]);
  else if (!*err.text)
    abort();
  for (int c = 0; c < n; c++)
    column_release(&columns[c]);
  data_folder_put(source.folder);
  spec_free(spec);
}

static void data_decode(const uint8_t *bytes, size_t size) {
  struct scratch scratch = {0};
  struct err err = ERR_NONE;
  for (int channels = 1; channels <= 3; channels += 2) {
    struct sample sample = {.scratch = &scratch, .shape = {channels, 0, 0}};
    int64_t elems = 0;
    if (image_decode(bytes, size, &sample, &err) == 0)
      elems = sample.shape.channels * sample.shape.height * sample.shape.width;
    if (elems > 0 && elems <= TARGET_ELEMS) {
      float *out = malloc((size_t)elems * sizeof *out);
      sample_write(&sample, out);
      free(out);
    }
  }
  scratch_fini(&scratch);
}

/* corpus: the format, or "image". */
static inline void data_target(const char *corpus, const uint8_t *bytes, size_t size) {
  if (strcmp(corpus, "image") == 0) {
    data_decode(bytes, size);
    return;
  }
  data_write(bytes, size);
  for (size_t c = 0; c < sizeof data_cases / sizeof *data_cases; c++)
    if (strcmp(data_cases[c].corpus, corpus) == 0)
      data_open(&data_cases[c]);
}

#endif
