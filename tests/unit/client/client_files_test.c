/* What `weir train --resume` compares and remembers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/files/run_file.h"
#include "common/agree/spec.h"
#include "common/specs/spec_diff.h"

#define SPEC(batch, optimizer, rest)                                                                         \
  "name: a\nmodel: {onnx: m.onnx, loss: cross_entropy}\n"                                                    \
  "data:\n  root: /d\n  train: {format: idx, images: i, labels: l}\n  transforms: [{scale: 0.5}]\n"          \
  "train: {epochs: 2, batch: " batch ", optimizer: " optimizer "}\n" rest

static Weir__RunSpec *spec_of(const char *text) {
  Weir__RunSpec *spec = NULL;
  struct err err = ERR_NONE;
  if (spec_read("spec", text, strlen(text), &spec, &err) || spec_check(spec, &err))
    fail_msg("%s", err.text);
  return spec;
}

/* Empty: they are the same. */
static const char *difference(const char *now, const char *was) {
  static char text[600];
  Weir__RunSpec *a = spec_of(now), *b = spec_of(was);
  bool is_different;
  text[0] = '\0';
  is_different = spec_differs(a, b, NULL, text, sizeof text);
  assert_int_equal(is_different, text[0] != '\0');
  spec_free(a);
  spec_free(b);
  return text;
}

static void specs_that_ask_for_the_same_are_the_same(void **state) {
  (void)state;
  assert_string_equal(difference(SPEC("32", "{lr: 0.1}", ""), SPEC("32", "{lr: 0.1}", "")), "");
  assert_string_equal(
      difference(SPEC("32", "{lr: 0.10}", "# why\n"), SPEC("32", "{name: sgd, lr: 1e-1}", "")), "");
}

static void the_first_difference_is_named_with_both_values(void **state) {
  (void)state;
  assert_string_equal(difference(SPEC("64", "{lr: 0.1}", ""), SPEC("32", "{lr: 0.1}", "")),
                      "train.batch is 64 and was 32");
  assert_string_equal(difference(SPEC("32", "{lr: 0.5}", ""), SPEC("32", "{lr: 0.25}", "")),
                      "train.optimizer.lr is 0.5 and was 0.25");
  assert_string_equal(difference(SPEC("32", "{name: adamw, lr: 1, weight_decay: 0}", ""),
                                 SPEC("32", "{name: adamw, lr: 1}", "")),
                      "train.optimizer.weight_decay is 0 and was not given");
  assert_string_equal(difference(SPEC("32", "{lr: 1, groups: [{params: [a]}, {params: [b], lr: 2}]}", ""),
                                 SPEC("32", "{lr: 1, groups: [{params: [a]}, {params: [b], lr: 3}]}", "")),
                      "train.optimizer.groups[1].lr is 2 and was 3");
  assert_non_null(
      strstr(difference(SPEC("32", "{lr: 1}", "checkpoint: {every_steps: 5}"), SPEC("32", "{lr: 1}", "")),
             "checkpoint"));
  assert_string_equal(difference(SPEC("32", "{lr: 1}", "workers: {min: 2}"), SPEC("32", "{lr: 1}", "")),
                      "workers.min is 2 and was 1");
}

static void a_run_file_reads_back(void **state) {
  char folder[] = "/tmp/weir-run-XXXXXX", path[64];
  struct run_file file = {.run = (char *)"a-123456", .model_sha256 = (char *)"abc"}, read;
  struct err err = ERR_NONE;
  FILE *out;
  (void)state;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/run", folder);
  assert_int_equal(run_file_read(folder, &read, &err), ERR_NOT_FOUND);
  for (int with_store = 0; with_store < 2; with_store++) {
    err = ERR_NONE;
    file.store = with_store ? (char *)"redis://h:1/2?prefix=\"x" : NULL;
    assert_int_equal(run_file_write(folder, &file, &err), ERR_OK);
    assert_int_equal(run_file_read(folder, &read, &err), ERR_OK);
    assert_string_equal(read.run, file.run);
    assert_string_equal(read.model_sha256, file.model_sha256);
    if (with_store)
      assert_string_equal(read.store, file.store);
    else
      assert_null(read.store);
    run_file_fini(&read);
  }
  out = fopen(path, "w");
  fputs("{\"run\": 3}", out);
  fclose(out);
  assert_int_equal(run_file_read(folder, &read, &err), ERR_INVALID);
  run_file_fini(&read);
  remove(path);
  rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(specs_that_ask_for_the_same_are_the_same),
      cmocka_unit_test(the_first_difference_is_named_with_both_values),
      cmocka_unit_test(a_run_file_reads_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
