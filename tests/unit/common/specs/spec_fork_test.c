/* The spec of a fork: what may be otherwise than in its parent's, and what is said of the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/specs/spec_diff.h"
#include "common/specs/spec_fork.h"
#include "common/specs/spec_text.h"
#include "common/base/memory.h"

enum { SETTINGS_MAX = 4 };

static const char text[] =
    "name: parent\n"
    "model: {onnx: \"a \\\"b\\\" \\x01.onnx\", inputs: {image: x}, frozen: ['pos_*', \"\\xe9\"],\n"
    "        frozen_rows: {embed.weight: [0, -1]}, loss_options: {weight: [0.1, 1e-300]}}\n"
    "data:\n"
    "  train: {format: npy, columns: {x: x.npy, label: y.npy}}\n"
    "  split: [0.9, 0.1]\n"
    "  shuffle: false\n"
    "  transforms: [{scale: 0.00392156862745098}, {normalize: {mean: [0.1], std: [3]}}, {horizontal_flip: "
    "{}}]\n"
    "train:\n"
    "  epochs: 2.5\n"
    "  batch: 128\n"
    "  microbatches: 8\n"
    "  seed: 18446744073709551615\n"
    "  optimizer: {name: sgd, lr: 5e-2, momentum: 0.9, groups: [{params: ['*.bias'], lr: 0.1}, {params: [x], "
    "frozen: "
    "true}]}\n"
    "  schedule: {name: multistep, milestones: [3, 5], gamma: 0.5}\n"
    "eval: {every_steps: 7, metrics: [top5]}\n"
    "workers: {min: 2, stages: auto}\n"
    "priority: -3\n";

static Weir__RunSpec *parent_spec(void) {
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  if (spec_read("parent.yaml", text, sizeof text - 1, &spec, &err) || spec_check(spec, &err))
    fail_msg("%s", err.text);
  return spec;
}

static int fork_with(const char *const settings[SETTINGS_MAX], const char *name, Weir__RunSpec **out,
                     struct err *err) {
  struct spec_source source = {.file = "parent-1", .settings = settings};
  Weir__RunSpec *parent = parent_spec();
  int code;
  while (source.n_settings < SETTINGS_MAX && settings[source.n_settings])
    source.n_settings++;
  *err = ERR_NONE;
  code = spec_fork(parent, &source, name, out, err);
  spec_free(parent);
  return code;
}

static Weir__RunSpec *forked(const char *const settings[SETTINGS_MAX], const char *name) {
  Weir__RunSpec *spec;
  struct err err;
  if (fork_with(settings, name, &spec, &err))
    fail_msg("%s", err.text);
  return spec;
}

static void a_spec_reads_as_it_was_written(void **state) {
  Weir__RunSpec *spec = parent_spec(), *again;
  size_t size = weir__run_spec__get_packed_size(spec);
  char *written = spec_text(spec);
  uint8_t *was = mem_new(size), *is = mem_new(size);
  struct err err = ERR_NONE;
  (void)state;
  if (spec_read("written", written, strlen(written), &again, &err))
    fail_msg("%s: %s", err.text, written);
  assert_int_equal(weir__run_spec__get_packed_size(again), size);
  weir__run_spec__pack(spec, was);
  weir__run_spec__pack(again, is);
  assert_memory_equal(is, was, size);
  assert_null(strchr(written, '\n'));
  spec_free(spec);
  spec_free(again);
  free(written);
  free(was);
  free(is);
}

static void a_fork_without_settings_is_its_parent(void **state) {
  Weir__RunSpec *parent = parent_spec(), *spec = forked((const char *const[SETTINGS_MAX]){NULL}, NULL);
  char difference[600];
  (void)state;
  if (spec_differs(spec, parent, NULL, difference, sizeof difference))
    fail_msg("%s", difference);
  spec_free(spec);
  spec_free(parent);
}

static void what_servers_apply_and_who_computes_may_differ(void **state) {
  Weir__RunSpec *spec =
      forked((const char *const[SETTINGS_MAX]){"train.optimizer.lr=0.5", "train.schedule={name: cosine}",
                                               "train.optimizer.groups[0].lr=0.25", "train.clip_norm=2"},
             "child");
  (void)state;
  assert_string_equal(spec->name, "child");
  assert_true(spec->train->optimizer->lr == 0.5 && spec->train->optimizer->groups[0]->lr == 0.25);
  assert_string_equal(spec->train->schedule->name, "cosine");
  assert_true(spec->train->clip_norm == 2 && spec->train->optimizer->momentum == 0.9);
  spec_free(spec);
  spec = forked((const char *const[SETTINGS_MAX]){"workers={min: 3}", "train.collective=shm",
                                                  "checkpoint.keep=9", "priority=8"},
                "");
  assert_string_equal(spec->name, "parent");
  assert_int_equal(spec->workers->min, 3);
  assert_string_equal(spec->train->collective, "shm");
  spec_free(spec);
  spec = forked((const char *const[SETTINGS_MAX]){"train.average={decay: 0.5}",
                                                  "train.optimizer={name: adam, lr: 1, groups: "
                                                  "[{params: ['*.bias']}, {params: [x], frozen: true}]}",
                                                  "name=other", "train.batch=128"},
                NULL);
  assert_string_equal(spec->name, "other");
  assert_string_equal(spec->train->optimizer->name, "adam");
  spec_free(spec);
}

static void steps_take_the_place_of_epochs_and_the_other_way_round(void **state) {
  Weir__RunSpec *parent = forked((const char *const[SETTINGS_MAX]){"train.steps=70"}, NULL), *spec;
  struct spec_source source = {
      .file = "parent-1", .settings = (const char *const[]){"train.epochs=3"}, .n_settings = 1};
  struct err err = ERR_NONE;
  (void)state;
  assert_true(!parent->train->has_epochs && parent->train->steps == 70);
  assert_int_equal(spec_fork(parent, &source, NULL, &spec, &err), 0);
  assert_true(!spec->train->has_steps && spec->train->epochs == 3);
  spec_free(spec);
  spec_free(parent);
}

static void refuse(const char *setting, const char *begin, const char *end) {
  Weir__RunSpec *spec;
  struct err err;
  assert_int_equal(fork_with((const char *const[SETTINGS_MAX]){"priority=1", setting}, NULL, &spec, &err),
                   ERR_INVALID);
  assert_null(spec);
  if (strncmp(err.text, begin, strlen(begin)) != 0 || !strstr(err.text, end))
    fail_msg("'%s' does not begin with '%s', or lacks '%s'", err.text, begin, end);
}

static void a_fork_has_a_hold_of_its_own_or_none(void **state) {
  const char *const hold[] = {"train.hold=14"};
  struct spec_source settings = {.file = "parent-1", .settings = hold};
  Weir__RunSpec *parent = parent_spec(), *spec;
  struct err err = ERR_NONE;
  (void)state;
  parent->train->has_hold = true;
  parent->train->hold = 7;
  assert_int_equal(spec_fork(parent, &settings, NULL, &spec, &err), 0);
  assert_false(spec->train->has_hold);
  spec_free(spec);
  settings.n_settings = 1;
  assert_int_equal(spec_fork(parent, &settings, NULL, &spec, &err), 0);
  assert_true(spec->train->has_hold && spec->train->hold == 14);
  spec_free(spec);
  parent->train->has_hold = false; /* of data that is not known yet */
  parent->train->has_hold_epochs = true;
  parent->train->hold_epochs = 1;
  assert_int_equal(spec_fork(parent, &settings, NULL, &spec, &err), 0);
  assert_true(spec->train->has_hold && !spec->train->has_hold_epochs);
  spec_free(spec);
  spec_free(parent);
}

static void what_changes_a_step_is_refused_with_a_word_about_from(void **state) {
  static const char *const refused[][2] = {
      {"train.batch=64", "train.batch is 64 and was 128: "},
      {"train.microbatches=4", "train.microbatches is 4 and was 8: "},
      {"train.seed=1", "train.seed is 1 and was 18446744073709551615: "},
      {"train.precision=bf16", "train.precision is 'bf16' and was 'fp32': "},
      {"train.deterministic=false", "train.deterministic is false and was true: "},
      {"model.frozen=[]", "model.frozen has 0 entries and had 2: "},
      {"model.onnx=b.onnx", "model.onnx is 'b.onnx' and was "},
      {"model.frozen_rows=null", "model.frozen_rows has 0 entries and had 1: "},
      {"data.transforms[0].scale=1", "data.transforms[0].scale is 1 and was 0.00392"},
      {"data.split=[0.8, 0.2]", "data.split[0] is 0.8"},
      {"data.split_seed=3", "data.split_seed is 3"},
      {"train.optimizer.groups=[{params: ['*.bias'], lr: 0.1}]",
       "train.optimizer.groups has 1 entries and had 2: "},
      {"train.optimizer.groups[0].params=['*']",
       "train.optimizer.groups[0].params[0] is '*' and was '*.bias': "},
      {"train.optimizer.groups[1].frozen=false", "train.optimizer.groups[1].frozen is false and was true: "},
      {"train.optimizer={name: adam, lr: 1}", "train.optimizer.groups has 0 entries and had 2: "},
  };
  (void)state;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    refuse(refused[i][0], refused[i][1], "'weir submit SPEC --from RUN@STEP'");
  refuse("train.optimizer.lrr=1", "train.optimizer.lrr=1: unknown key 'lrr' in train.optimizer",
         "did you mean 'lr'?");
  refuse("trian.steps=1", "trian.steps=1: unknown key 'trian' in the spec", "did you mean 'train'?");
  refuse("train.epochs=null", "train: needs either epochs or steps", "");
  refuse("name=A b", "name", "");
}

static void hostile_settings_never_crash_a_fork(void **state) {
  static const char good[] = "train.optimizer.groups[0].lr={a: [1]}";
  (void)state;
  for (size_t at = 0; at < sizeof good - 1; at++)
    for (int byte = 1; byte < 256; byte += 3) {
      char *setting = mem_strdup(good);
      Weir__RunSpec *spec;
      struct err err;
      setting[at] = (char)byte;
      fork_with((const char *const[SETTINGS_MAX]){setting}, setting, &spec, &err);
      spec_free(spec);
      free(setting);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_spec_reads_as_it_was_written),
      cmocka_unit_test(a_fork_without_settings_is_its_parent),
      cmocka_unit_test(what_servers_apply_and_who_computes_may_differ),
      cmocka_unit_test(steps_take_the_place_of_epochs_and_the_other_way_round),
      cmocka_unit_test(a_fork_has_a_hold_of_its_own_or_none),
      cmocka_unit_test(what_changes_a_step_is_refused_with_a_word_about_from),
      cmocka_unit_test(hostile_settings_never_crash_a_fork),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
