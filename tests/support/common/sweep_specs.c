/* Specs of sweeps for tests. */
#include "tests/support/common/sweep_specs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "common/sweep/sweep_spec.h"

static const char base_text[] =
    "name: base\n"
    "model: {onnx: a.onnx}\n"
    "data:\n"
    "  train: {format: npy, columns: {x: x.npy, label: y.npy}}\n"
    "  split: [0.9, 0.1]\n"
    "train: {epochs: 2, batch: 64, microbatches: 4, optimizer: {name: sgd, lr: 0.1}}\n";

const char sweep_asha_text[] = "name: search\n"
                               "spec: base.yaml\n"
                               "objective: {metric: accuracy}\n"
                               "search: {name: random, seed: 3}\n"
                               "schedule: {name: asha, rungs: [10, 30, 90], eta: 3}\n"
                               "budget: {trials: 27}\n"
                               "concurrency: 4\n"
                               "space:\n"
                               "  train.optimizer.lr: {log: [0.0001, 0.3]}\n"
                               "  train.batch: [32, 64, 128]\n";

const char sweep_pbt_text[] = "name: search\n"
                              "spec: base.yaml\n"
                              "objective: {metric: accuracy}\n"
                              "search: {name: random, seed: 3}\n"
                              "schedule: {name: pbt, rungs: [10, 20, 30, 40, 50], quantile: 0.25}\n"
                              "budget: {trials: 8}\n"
                              "concurrency: 3\n"
                              "space:\n"
                              "  train.optimizer.lr: {log: [0.0001, 0.3]}\n"
                              "  train.optimizer.name: [sgd, adamw]\n"
                              "  train.optimizer.momentum: {uniform: [0.8, 0.98], step: 0.02, when: "
                              "{train.optimizer.name: sgd}}\n";

Weir__RunSpec *sweep_base_spec(void) {
  Weir__RunSpec *base;
  struct err err = ERR_NONE;
  assert_int_equal(spec_read("base.yaml", base_text, strlen(base_text), &base, &err), 0);
  assert_int_equal(spec_check(base, &err), 0);
  return base;
}

static char *write_file(const char *text) {
  char *path = mem_strdup("/tmp/sweep_test-XXXXXX");
  int fd = mkstemp(path);
  FILE *file = fdopen(fd, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
  return path;
}

Weir__SweepSpec *sweep_spec_of(const char *text, const char *const *settings, int n, struct err *err) {
  char *path = write_file(text);
  struct spec_source source = {.file = path, .settings = settings, .n_settings = n};
  Weir__RunSpec *base = sweep_base_spec();
  Weir__SweepSpec *spec = NULL;
  *err = ERR_NONE;
  if (sweep_spec_read(&source, &spec, err) == 0 &&
      (sweep_spec_check(spec, err) || sweep_spec_check_base(spec, base, err))) {
    spec_blame(&source, err);
    message_free(spec);
    spec = NULL;
  }
  spec_free(base);
  remove(path);
  free(path);
  return spec;
}

static void set_models(struct sweep *sweep) {
  int at = space_files(sweep->space), n = at >= 0 ? (int)sweep->space->dimensions[at].n_values : 0;
  struct sweep_model *models = mem_new((size_t)(1 + n) * sizeof *models);
  for (int i = 0; i <= n; i++)
    models[i] = (struct sweep_model){.multiply_adds = 100 + i, .sha256 = ""};
  sweep_set_models(sweep, models);
  free(models);
}

struct sweep *sweep_of_spec(const Weir__SweepSpec *spec) {
  Weir__RunSpec *base = sweep_base_spec();
  struct sweep *sweep;
  struct err err = ERR_NONE;
  assert_int_equal(sweep_new(spec, base, &sweep, &err), 0);
  set_models(sweep);
  spec_free(base);
  return sweep;
}

struct sweep *sweep_of(const char *text, const char *const *settings, int n) {
  struct sweep *sweep;
  struct err err;
  Weir__SweepSpec *spec = sweep_spec_of(text, settings, n, &err);
  assert_string_equal(err.text, "");
  sweep = sweep_of_spec(spec);
  message_free(spec);
  return sweep;
}
