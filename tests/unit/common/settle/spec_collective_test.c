/* What auto means for a spec: it chooses nothing that the spec could not name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/spec.h"
#include "common/modes/mode.h"
#include "common/settle/spec_collective.h"
#include "common/settle/spec_settle.h"

/* Of each mode what it needs. */
static const struct {
  const char *mode, *options;
} modes[] = {{"sync", ""},
             {"ssp", ", staleness: 1"},
             {"local", ", local: {replicas: 2, inner_steps: 5}"},
             {"async", ", deterministic: false"}};
static const char *const others[] = {"min: 1", "stages: 2", "stages: auto"};

static Weir__RunSpec *read_spec(size_t mode, const char *workers, const char *collective) {
  Weir__RunSpec *spec;
  struct err err = ERR_NONE;
  char text[600];
  snprintf(text, sizeof text,
           "name: mlp\nmodel: {onnx: mlp.onnx, loss: cross_entropy}\n"
           "data: {train: {format: idx, images: i, labels: l}}\n"
           "train: {steps: 10, batch: 8, microbatches: 4, optimizer: {name: sgd, lr: 0.1}, mode: %s%s%s%s}\n"
           "workers: {%s}\n",
           modes[mode].mode, modes[mode].options, *collective ? ", collective: " : "", collective, workers);
  if (spec_read("spec", text, strlen(text), &spec, &err))
    fail_msg("%s", err.text);
  return spec;
}

static bool is_accepted(Weir__RunSpec *spec) {
  struct err err = ERR_NONE;
  return spec_check(spec, &err) == 0 && spec_settle(spec, &err) == 0;
}

/* "" where the spec is refused. */
static const char *meaning(size_t mode, const char *workers, const char *collective) {
  Weir__RunSpec *spec = read_spec(mode, workers, collective);
  static char text[16];
  snprintf(text, sizeof text, "%s", is_accepted(spec) ? spec_collective(spec) : "");
  spec_free(spec);
  return text;
}

static void auto_is_none_where_shm_would_be_refused(void **state) {
  (void)state;
  for (size_t m = 0; mode_at((int)m); m++) {
    assert_true(m < sizeof modes / sizeof *modes);
    assert_string_equal(mode_at((int)m)->name, modes[m].mode);
    for (size_t w = 0; w < sizeof others / sizeof *others; w++) {
      bool is_cut = w > 0, may_be_cut = *meaning(m, others[w], "none");
      bool may_name = strcmp(meaning(m, others[w], "shm"), "shm") == 0;
      assert_int_equal(may_name, m == 0 && !is_cut);
      if (!may_be_cut)
        continue;
      assert_string_equal(meaning(m, others[w], "auto"), may_name ? "shm" : "none");
      assert_string_equal(meaning(m, others[w], ""), may_name ? "shm" : "none");
      assert_string_equal(meaning(m, others[w], "none"), "none");
    }
  }
}

static void what_a_spec_names_is_what_it_means(void **state) {
  (void)state;
  assert_string_equal(meaning(0, "min: 1", "nccl"), "nccl");
  assert_string_equal(meaning(0, "min: 1", "shm"), "shm");
  assert_string_equal(meaning(0, "min: 1", "gloo"), "");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(auto_is_none_where_shm_would_be_refused),
                                     cmocka_unit_test(what_a_spec_names_is_what_it_means)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
