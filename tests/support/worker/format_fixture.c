#include "tests/support/worker/format_fixture.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "tests/support/worker/data_fixture.h"

static char folder[64]; /* of the test that runs */

int make_folder(void **state) {
  (void)state;
  strcpy(folder, "/tmp/weir-format-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

int remove_folder(void **state) {
  DIR *dir = opendir(folder);
  char path[512];
  (void)state;
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (entry->d_name[0] != '.')
      unlink(path);
  }
  closedir(dir);
  return rmdir(folder);
}

void write_file(const char *name, const void *data, size_t size) {
  char path[128];
  FILE *file;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, size, file), size);
  fclose(file);
}

void write_text(const char *name, const char *text) {
  write_file(name, text, strlen(text));
}

Weir__RunSpec *make_spec(const char *root, const char *data) {
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  char *path = realpath(root ? root : folder, NULL);
  char *text = mem_printf("name: t\nmodel: {onnx: m}\ndata: {root: \"%s\", %s}\n"
                          "train: {epochs: 3, batch: 2, optimizer: {lr: 1}}\n",
                          path, data);
  if (spec_read("t", text, strlen(text), &spec, &err) || spec_check(spec, &err))
    fail_msg("%s", err.text);
  free(text);
  free(path);
  return spec;
}

struct dataset *open_at(const char *root, const char *data, bool is_eval, Weir__RunSpec **spec) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  *spec = make_spec(root, data);
  if (dataset_open(*spec, is_eval ? (*spec)->data->eval : (*spec)->data->train, &everything, &dataset, &err))
    fail_msg("%s", err.text);
  return dataset;
}

struct dataset *open_data(const char *data, Weir__RunSpec **spec) {
  return open_at(NULL, data, false, spec);
}

void refuse_at(const char *root, const char *data, bool is_eval, enum err_code code, const char *wanted) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  Weir__RunSpec *spec = make_spec(root, data);
  int got = dataset_open(spec, is_eval ? spec->data->eval : spec->data->train, &everything, &dataset, &err);
  if (got != (int)code || !strstr(err.text, wanted))
    fail_msg("%d '%s' is not %d with '%s'", got, err.text, code, wanted);
  spec_free(spec);
}

void refuse_data(const char *data, enum err_code code, const char *wanted) {
  refuse_at(NULL, data, false, code, wanted);
}

void read_input(struct dataset *dataset, const char *column, uint64_t index, const struct value *input,
                void *out) {
  struct transforms none = {0};
  struct scratch scratch = {0};
  struct dataset_read read = {.indices = &index, .n = 1, .scratch = &scratch};
  struct column_form form;
  struct err err = ERR_NONE;
  if (dataset_bind(dataset, column, &(struct feed_rule){.input = input, .transforms = &none}, &form, &err))
    fail_msg("%s", err.text);
  dataset_read(dataset, &form, &read, out);
  scratch_fini(&scratch);
}

/* Of a batch of one sample of so many elements. */
static struct value input_of(enum dtype dtype, int64_t elems) {
  return (struct value){.name = "in", .dtype = dtype, .shape = {2, {1, elems}}};
}

void expect_floats(struct dataset *dataset, const char *column, uint64_t index, int64_t elems,
                   const float *wanted) {
  struct value input = input_of(DTYPE_F32, elems);
  float have[64];
  read_input(dataset, column, index, &input, have);
  assert_memory_equal(have, wanted, (size_t)elems * sizeof *have);
}

void expect_integers(struct dataset *dataset, const char *column, uint64_t index, int64_t elems,
                     const int64_t *wanted) {
  struct value input = input_of(DTYPE_I64, elems);
  int64_t have[64];
  read_input(dataset, column, index, &input, have);
  assert_memory_equal(have, wanted, (size_t)elems * sizeof *have);
}
