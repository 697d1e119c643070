/* Which settings of a spec leave a run's programs as they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/agree/spec_program.h"

static const char text[] = "name: shared\n"
                           "model: {onnx: cnn.onnx}\n"
                           "data:\n"
                           "  train: {format: npy, columns: {x: x.npy, label: y.npy}}\n"
                           "  eval: {format: npy, columns: {x: x.npy, label: y.npy}}\n"
                           "train:\n"
                           "  steps: 10\n"
                           "  batch: 128\n"
                           "  microbatches: 8\n"
                           "  optimizer: {name: sgd, lr: 5e-2}\n"
                           "eval: {every_steps: 5}\n";

static Weir__RunSpec *read_with(const char *setting) {
  const struct spec_source source = {
      .file = "spec.yaml", .settings = &setting, .n_settings = setting != NULL};
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  if (spec_read_text(&source, text, strlen(text), &spec, &err) || spec_check(spec, &err))
    fail_msg("%s", err.text);
  return spec;
}

static bool have_same_program(const char *setting, const char *other) {
  Weir__RunSpec *a = read_with(setting), *b = read_with(other);
  bool is_same = spec_has_same_program(a, b) && spec_has_same_program(b, a);
  spec_free(a);
  spec_free(b);
  return is_same;
}

static bool leaves_the_program(const char *setting) {
  return have_same_program(NULL, setting);
}

static void what_servers_go_by_leaves_the_program(void **state) {
  static const char *const settings[] = {"name=other",
                                         "priority=3",
                                         "train.steps=20",
                                         "train.optimizer.lr=1",
                                         "train.optimizer.name=adam",
                                         "train.optimizer.momentum=0.5",
                                         "train.schedule={name: cosine}",
                                         "train.clip_norm=1",
                                         "train.clip_value=1",
                                         "checkpoint.every_steps=3",
                                         "train.hold=5",
                                         "train.hold_epochs=0.5",
                                         "train.early_stopping={patience: 2}",
                                         "eval.at=[3, 7]",
                                         "eval.at_epochs=[0.5, 1]",
                                         "eval.every_steps=2",
                                         "workers.min=2",
                                         "workers.max=3",
                                         "workers.weight=4",
                                         "workers.require={gpu: a}"};
  (void)state;
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    if (!leaves_the_program(settings[i]))
      fail_msg("%s asks for another program", settings[i]);
}

static void all_else_asks_for_another_program(void **state) {
  static const char *const settings[] = {"model.onnx=rnn.onnx",
                                         "model.loss=mse",
                                         "model.frozen=[a]",
                                         "data.root=/else",
                                         "data.transforms=[{scale: 2}]",
                                         "data.shuffle=false",
                                         "train.batch=64",
                                         "train.microbatches=4",
                                         "train.seed=1",
                                         "train.precision=bf16",
                                         "train.deterministic=false",
                                         "train.collective=shm",
                                         "train.average={decay: 0.9}",
                                         "train.optimizer.groups=[{params: [a], frozen: true}]",
                                         "eval.metrics=[top5]",
                                         "workers.recompute=full",
                                         "workers.stages=2"};
  (void)state;
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    if (leaves_the_program(settings[i]))
      fail_msg("%s leaves the program", settings[i]);
}

static void another_split_seed_asks_for_another_program(void **state) {
#define SPLIT "data={train: {format: npy, columns: {x: x.npy, label: y.npy}}, split: [0.5, 0.5]"
  (void)state;
  assert_true(have_same_program(SPLIT ", split_seed: 1}", SPLIT ", split_seed: 1}"));
  assert_false(have_same_program(SPLIT ", split_seed: 1}", SPLIT ", split_seed: 2}"));
  assert_false(have_same_program(SPLIT "}", SPLIT ", split_seed: 1}"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_servers_go_by_leaves_the_program),
      cmocka_unit_test(all_else_asks_for_another_program),
      cmocka_unit_test(another_split_seed_asks_for_another_program),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
