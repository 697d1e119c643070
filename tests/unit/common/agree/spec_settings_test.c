/* PATH=VALUE beside a spec's file: what it changes, what it leaves, and what is said about what it cannot be.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/agree/spec_live.h"
#include "common/base/memory.h"

enum { SETTINGS_MAX = 4 };

static const char text[] = "name: shared # a comment\n"
                           "model: {onnx: cnn.onnx}\n"
                           "data:\n"
                           "  train: &source {format: npy, columns: {x: x.npy, label: y.npy}}\n"
                           "  eval: *source\n"
                           "  transforms: [{scale: 0.5}, {scale: 0.25}]\n"
                           "train:\n"
                           "  steps: 10\n"
                           "  batch: 128\n"
                           "  microbatches: 8\n"
                           "  optimizer: {name: sgd, lr: 5e-2}\n";

/* A file of that text, and settings up to a NULL. */
struct given {
  char path[64];
  struct spec_source source;
};

static void given_init(struct given *given, const char *const settings[SETTINGS_MAX]) {
  int n = 0;
  int file;
  while (n < SETTINGS_MAX && settings[n])
    n++;
  snprintf(given->path, sizeof given->path, "/tmp/weir-settings-XXXXXX");
  file = mkstemp(given->path);
  assert_true(file >= 0);
  assert_int_equal(write(file, text, sizeof text - 1), sizeof text - 1);
  close(file);
  given->source = (struct spec_source){.file = given->path, .settings = settings, .n_settings = n};
}

static Weir__RunSpec *read_with(const char *const settings[SETTINGS_MAX]) {
  struct err err = ERR_NONE;
  struct given given;
  Weir__RunSpec *spec;
  given_init(&given, settings);
  if (spec_read_source(&given.source, &spec, &err))
    fail_msg("%s", err.text);
  unlink(given.path);
  return spec;
}

/* wanted: how the error begins, with FILE in place of the file's path. */
static void refuse(const char *setting, const char *wanted) {
  const char *settings[SETTINGS_MAX] = {"train.seed=1", setting};
  struct err err = ERR_NONE;
  struct given given;
  Weir__RunSpec *spec = NULL;
  char *begin;
  given_init(&given, settings);
  if (spec_read_source(&given.source, &spec, &err) == 0 && spec_check(spec, &err))
    spec_blame(&given.source, &err);
  begin = strncmp(wanted, "FILE", 4) == 0 ? mem_printf("%s%s", given.path, wanted + 4) : mem_strdup(wanted);
  assert_int_equal(err.code, ERR_INVALID);
  if (strncmp(err.text, begin, strlen(begin)) != 0)
    fail_msg("'%s' does not begin with '%s'", err.text, begin);
  free(begin);
  spec_free(spec);
  unlink(given.path);
}

static void a_setting_replaces_adds_and_takes_away(void **state) {
  Weir__RunSpec *spec;
  (void)state;
  spec = read_with((const char *const[SETTINGS_MAX]){"train.optimizer.lr=0.25", "train.steps=null",
                                                     "train.epochs=1.5", "eval.every_steps=7"});
  assert_true(spec->train->optimizer->lr == 0.25);
  assert_string_equal(spec->train->optimizer->name, "sgd");
  assert_false(spec->train->has_steps);
  assert_true(spec->train->epochs == 1.5);
  assert_int_equal(spec->eval->every_steps, 7);
  assert_string_equal(spec->name, "shared");
  spec_free(spec);
  spec = read_with((const char *const[SETTINGS_MAX]){
      "data.transforms[1].scale=2", "train.optimizer={name: adam, lr: 1e-3}", "name='a b'", "data.eval=~"});
  assert_true(spec->data->transforms[0]->scale == 0.5 && spec->data->transforms[1]->scale == 2);
  assert_string_equal(spec->train->optimizer->name, "adam");
  assert_string_equal(spec->name, "a b");
  assert_null(spec->data->eval);
  spec_free(spec);
}

static void the_last_setting_of_a_key_counts(void **state) {
  Weir__RunSpec *spec;
  (void)state;
  spec = read_with((const char *const[SETTINGS_MAX]){"train.optimizer={lr: 3}", "train.optimizer.lr=4",
                                                     "train.batch=64", "train.batch=32"});
  assert_true(spec->train->optimizer->lr == 4);
  assert_int_equal(spec->train->batch, 32);
  spec_free(spec);
}

static void what_an_alias_names_elsewhere_stays(void **state) {
  Weir__RunSpec *spec;
  (void)state;
  spec = read_with((const char *const[SETTINGS_MAX]){"data.eval.columns.x=other.npy"});
  assert_string_equal(spec->data->train->columns[0]->value, "x.npy");
  assert_string_equal(spec->data->eval->columns[0]->value, "other.npy");
  assert_string_equal(spec->data->eval->columns[1]->value, "y.npy");
  spec_free(spec);
}

static void what_is_wrong_in_a_setting_is_named_by_the_setting(void **state) {
  (void)state;
  refuse("train.optimiser.lr=1",
         "train.optimiser.lr=1: unknown key 'optimiser' in train: did you mean 'optimizer'?");
  refuse("train.optimizer.lr=fast", "train.optimizer.lr=fast: train.optimizer.lr: 'fast' is not a number");
  refuse("train.optimizer.lr=", "train.optimizer.lr=: a value is wanted behind '='");
  refuse("train.optimizer.lr=[1", "train.optimizer.lr=[1: not valid YAML: ");
  refuse("train.optimizer.lr.x=1", "train.optimizer.lr.x=1: 'x' is looked for in a single value");
  refuse("train.optimizer[0]=1", "train.optimizer[0]=1: [0] is looked for in what is no list");
  refuse("data.transforms[2].scale=1",
         "data.transforms[2].scale=1: there is no [2]: the list has 2 entries, from [0] on");
  refuse("data.transforms[0]=null", "data.transforms[0]=null: an entry of a list cannot be taken away");
  refuse("train.epochs=null", "train.epochs=null: the spec has no such key that could be taken away");
  refuse("trian.steps=~", "trian.steps=~: the spec has no such key that could be taken away");
  refuse("data.transforms.scale=1",
         "data.transforms.scale=1: 'scale' is looked for in a list, whose entries are");
  for (int i = 0; i < 9; i++) {
    static const char *const none[] = {
        "", "=", "lr", ".train.lr=1", "[0]=1", "train..lr=1", "train.lr", "a b=1", "train.lr[=1"};
    char *wanted = mem_printf("'%s' is no PATH=VALUE, as train.optimizer.lr=0.1", none[i]);
    refuse(none[i], wanted);
    free(wanted);
  }
}

/* spec_check and spec_blame know nothing of where a key came from. */
static void what_makes_no_sense_is_blamed_on_the_setting_or_the_file(void **state) {
  (void)state;
  refuse("train.optimizer.lr=-1", "train.optimizer.lr=-1: train.optimizer.lr");
  refuse("train.microbatches=7",
         "train.microbatches=7: train.microbatches: 7 does not divide train.batch 128");
  refuse("train.batch=100", "FILE:10: train.microbatches: 8 does not divide train.batch 100");
}

static void what_is_written_reads_the_same(void **state) {
  const char *settings[SETTINGS_MAX] = {"name='yes: \"no\"'", "data.eval.columns.x=other.npy",
                                        "train.seed=7"};
  struct err err = ERR_NONE;
  struct given given;
  Weir__RunSpec *spec, *again;
  uint8_t packed[2][4096];
  size_t size;
  (void)state;
  given_init(&given, settings);
  assert_int_equal(spec_read_source(&given.source, &spec, &err), 0);
  assert_int_equal(spec_source_write(&given.source, given.path, &err), 0);
  assert_int_equal(spec_read_file(given.path, &again, &err), 0);
  size = weir__run_spec__pack(spec, packed[0]);
  assert_int_equal(weir__run_spec__pack(again, packed[1]), size);
  assert_memory_equal(packed[0], packed[1], size);
  assert_int_equal(spec_source_write(&given.source, "/nowhere/at/all", &err), ERR_IO);
  spec_free(spec);
  spec_free(again);
  unlink(given.path);
}

/* Every prefix of a setting, and every byte of it changed. */
static void hostile_settings_never_crash_the_reader(void **state) {
  static const char good[] = "data.transforms[1]={scale: &a [1, *a, {b: \"c\"}], x: *a}";
  struct given given;
  (void)state;
  given_init(&given, (const char *const[SETTINGS_MAX]){NULL});
  for (size_t at = 0; at < sizeof good - 1; at++)
    for (int byte = 0; byte < 256; byte++) {
      char *setting = byte ? mem_strdup(good) : mem_printf("%.*s", (int)at, good);
      const char *const settings[] = {setting};
      struct err err = ERR_NONE;
      Weir__RunSpec *spec;
      if (byte)
        setting[at] = (char)byte;
      given.source.settings = settings;
      given.source.n_settings = 1;
      if (spec_read_source(&given.source, &spec, &err) == 0)
        spec_free(spec);
      free(setting);
    }
  unlink(given.path);
}

static Weir__RunSpec *checked_spec(void) {
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  assert_int_equal(spec_read("spec", text, strlen(text), &spec, &err), 0);
  spec->model->loss = strdup("cross_entropy");
  assert_int_equal(spec_check(spec, &err), 0);
  return spec;
}

static void a_live_spec_takes_some_keys(void **state) {
  static const char *const settings[] = {"priority=-7", "workers.max=9", "workers.weight=0.1",
                                         "workers.min=2"};
  static const char *const again[] = {"workers.max=null", "workers.weight=null"};
  Weir__RunSpec *spec = checked_spec();
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(spec_set_live(spec, settings, 4, &err), 0);
  assert_true(spec->priority == -7 && spec->workers->weight == 0.1);
  assert_true(spec->workers->min == 2 && spec->workers->has_max && spec->workers->max == 9);
  assert_int_equal(spec_set_live(spec, again, 2, &err), 0);
  assert_int_equal(spec_set_live(spec, again, 1, &err), 0); /* which it has not */
  assert_true(spec->priority == -7 && spec->workers->weight == 1);
  assert_true(spec->workers->min == 2 && !spec->workers->has_max);
  assert_int_equal(spec->train->steps, 10);
  spec_free(spec);
}

static void a_live_spec_takes_labels(void **state) {
  static const char *const settings[] = {"workers.require={gpu: h200}", "workers.require.zone=a",
                                         "workers.min=2"};
  static const char *const again[] = {"workers.require.gpu=null", "workers.require.zone=b"};
  static const char *const none[] = {"workers.require=null"};
  Weir__RunSpec *spec = checked_spec();
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(spec_set_live(spec, settings, 3, &err), 0);
  assert_int_equal(spec->workers->n_require, 2);
  assert_string_equal(spec->workers->require[1]->key, "zone");
  assert_int_equal(spec_set_live(spec, again, 2, &err), 0);
  assert_int_equal(spec->workers->n_require, 1);
  assert_string_equal(spec->workers->require[0]->value, "b");
  assert_int_equal(spec_set_live(spec, none, 1, &err), 0);
  assert_int_equal(spec_set_live(spec, none, 1, &err), 0); /* which it has not */
  assert_int_equal(spec->workers->n_require, 0);
  assert_int_equal(spec->workers->min, 2);
  spec_free(spec);
}

static int set_hold(Weir__RunSpec *spec, const char *setting, struct err *err) {
  *err = ERR_NONE;
  return spec_set_live(spec, &setting, 1, err);
}

static void a_hold_is_only_ever_raised(void **state) {
  Weir__RunSpec *spec = checked_spec(), *lower;
  struct err err;
  (void)state;
  assert_int_equal(set_hold(spec, "train.hold=null", &err), 0);
  assert_int_equal(set_hold(spec, "train.hold=5", &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "the run has no hold"));
  spec->train->has_hold = true;
  spec->train->hold = 5;
  lower = spec_copy(spec);
  assert_int_equal(set_hold(spec, "priority=3", &err), 0);
  assert_true(spec->train->has_hold && spec->train->hold == 5 && spec->priority == 3);
  assert_int_equal(set_hold(spec, "train.hold=4", &err), ERR_INVALID);
  assert_string_equal(err.text, "train.hold: 4 is below 5, which the run has: a hold is only ever raised");
  assert_int_equal(set_hold(spec, "train.hold=11", &err), ERR_INVALID);
  assert_int_equal(set_hold(spec, "train.hold=high", &err), ERR_INVALID);
  assert_int_equal(set_hold(spec, "train.hold=[6]", &err), ERR_INVALID);
  assert_int_equal(set_hold(spec, "train.hold=-1", &err), ERR_INVALID);
  assert_true(spec->train->hold == 5);
  assert_int_equal(set_hold(spec, "train.hold=10", &err), 0);
  assert_int_equal(spec->train->hold, 10);
  spec_take_live(spec, lower);
  assert_int_equal(spec->train->hold, 10);
  assert_int_equal(set_hold(spec, "train.hold=null", &err), 0);
  assert_false(spec->train->has_hold);
  spec_take_live(spec, lower);
  assert_false(spec->train->has_hold);
  spec_free(lower);
  spec_free(spec);
}

static void a_hold_by_epochs_is_set_once_it_is_a_version(void **state) {
  Weir__RunSpec *spec = checked_spec();
  struct err err;
  (void)state;
  spec->train->has_hold_epochs = true;
  spec->train->hold_epochs = 1;
  assert_int_equal(set_hold(spec, "train.hold=5", &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "train.hold: the hold of this run is told by train.hold_epochs"));
  assert_int_equal(set_hold(spec, "train.hold=null", &err), ERR_INVALID);
  assert_int_equal(set_hold(spec, "priority=3", &err), 0);
  assert_true(spec->train->has_hold_epochs && !spec->train->has_hold);
  spec_free(spec);
}

/* Also every byte of a good setting changed. */
static void a_live_spec_that_is_refused_settings_stays_as_it_is(void **state) {
  static const char *const bad[] = {"",
                                    "=",
                                    "priority",
                                    "priority=",
                                    "priority=high",
                                    "priority=1001",
                                    "workers={}",
                                    "workers.weight=-1",
                                    "workers.min=0",
                                    "name=x",
                                    "priority=[1]",
                                    "workers.weight=.nan",
                                    "train.steps=1",
                                    "workers.require",
                                    "workers.require.gpu",
                                    "workers.required=1",
                                    "workers.require=gpu",
                                    "workers.require.gpu=",
                                    "workers.require.gpu=a b",
                                    "workers.require={a: 1, a: 2}",
                                    "workers.max=1e99"};
  static const char good[] = "workers.require={gpu: h}";
  Weir__RunSpec *spec = checked_spec();
  struct err err;
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const char *settings[] = {"workers.min=5", bad[i]};
    err = ERR_NONE;
    if (spec_set_live(spec, settings, 2, &err) != ERR_INVALID)
      fail_msg("taken: %s", bad[i]);
    assert_int_equal(spec->workers->min, 1);
  }
  for (size_t at = 0; at < sizeof good - 1; at++)
    for (int byte = 1; byte < 256; byte++) {
      char *setting = mem_strdup(good);
      setting[at] = (char)byte;
      err = ERR_NONE;
      spec_set_live(spec, (const char *[]){setting}, 1, &err);
      free(setting);
    }
  spec_free(spec);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_live_spec_takes_some_keys),
      cmocka_unit_test(a_live_spec_takes_labels),
      cmocka_unit_test(a_hold_is_only_ever_raised),
      cmocka_unit_test(a_hold_by_epochs_is_set_once_it_is_a_version),
      cmocka_unit_test(a_live_spec_that_is_refused_settings_stays_as_it_is),
      cmocka_unit_test(a_setting_replaces_adds_and_takes_away),
      cmocka_unit_test(the_last_setting_of_a_key_counts),
      cmocka_unit_test(what_an_alias_names_elsewhere_stays),
      cmocka_unit_test(what_is_wrong_in_a_setting_is_named_by_the_setting),
      cmocka_unit_test(what_makes_no_sense_is_blamed_on_the_setting_or_the_file),
      cmocka_unit_test(what_is_written_reads_the_same),
      cmocka_unit_test(hostile_settings_never_crash_the_reader),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
