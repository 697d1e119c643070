/* Sweeps whose space has model files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/spec.h"
#include "common/base/message.h"
#include "common/sweep/sweep_spec.h"
#include "tests/support/common/sweep_play.h"
#include "tests/support/common/sweep_specs.h"

static const char text[] =
    "name: search\n"
    "spec: base.yaml\n"
    "objective: {metric: accuracy}\n"
    "search: {name: random, seed: 3}\n"
    "schedule: {name: asha, rungs: [10, 20, 40], eta: 2}\n"
    "budget: {trials: 12}\n"
    "concurrency: 3\n"
    "space:\n"
    "  train.optimizer.name: [sgd, adamw]\n"
    "  model.onnx: {files: [narrow.onnx, wide.onnx], when: {train.optimizer.name: sgd}}\n"
    "  train.clip_norm: {uniform: [1, 2], when: {model.onnx: wide.onnx}}\n"
    "points: [{train.optimizer.name: adamw}, {train.optimizer.name: sgd, model.onnx: narrow.onnx},\n"
    "         {train.optimizer.name: sgd, model.onnx: wide.onnx, train.clip_norm: 1.5}]\n";

static void set_models(struct sweep *sweep, const char *narrow, const char *wide) {
  sweep_set_models(sweep, (const struct sweep_model[]){{5, "base"}, {7, narrow}, {11, wide}});
}

static void a_trial_has_its_model_and_takes_time_by_its_multiply_adds(void **state) {
  static const char *const files[] = {"a.onnx", "narrow.onnx", "wide.onnx"};
  static const double multiply_adds[] = {5, 7, 11};
  struct sweep *sweep = sweep_of(text, NULL, 0);
  (void)state;
  set_models(sweep, "narrow", "wide");
  for (uint32_t i = 0; i < 3; i++) {
    Weir__RunSpec *spec;
    struct err err = ERR_NONE;
    sweep_take_next(sweep);
    assert_int_equal(sweep_trial_model(sweep, &sweep->trials[i]), i);
    assert_true(sweep->trials[i].end == 10 * 64 * multiply_adds[i]);
    assert_int_equal(sweep_trial_spec(sweep, &sweep->trials[i], &spec, &err), 0);
    assert_string_equal(spec->model->onnx, files[i]);
    spec_free(spec);
  }
  sweep_free(sweep);
}

static void a_file_is_checked_with_the_values_by_which_a_trial_has_it(void **state) {
  Weir__RunSpec *base = sweep_base_spec(), *spec;
  struct err err = ERR_NONE;
  Weir__SweepSpec *sweep = sweep_spec_of(text, NULL, 0, &err);
  (void)state;
  free(base->train->optimizer->name);
  base->train->optimizer->name = mem_strdup("adamw");
  assert_int_equal(sweep_file_spec(sweep, base, 1, &spec, &err), 0);
  assert_string_equal(spec->model->onnx, "wide.onnx");
  assert_string_equal(spec->train->optimizer->name, "sgd");
  assert_string_equal(spec->checkpoint->keep_best, "accuracy");
  spec_free(spec);
  message_free(sweep);
  spec_free(base);
}

static void the_log_does_not_depend_on_when_results_come_nor_on_deaths(void **state) {
  (void)state;
  sweep_check_log(text, sweep_draw_outcome, 9);
}

/* How many trials of a sweep one learns whose wide model has that hash. */
static size_t count_learned(const struct sweep *other, const char *wide) {
  static const char *const settings[] = {"search={name: tpe}"};
  struct sweep *sweep = sweep_of(text, settings, 1);
  Weir__SweepRecord *record;
  struct err err = ERR_NONE;
  size_t n;
  set_models(sweep, "narrow", wide);
  assert_int_equal(sweep_learn(sweep, &(struct sweep_other){"other", other}, 1, &record, &err), 0);
  n = record->earlier->n_trials;
  message_free(record);
  sweep_free(sweep);
  return n;
}

static void nothing_is_learned_of_another_model_of_the_same_name(void **state) {
  struct sweep_play play = {text, sweep_draw_outcome, 1, false};
  struct sweep *other = sweep_of(text, NULL, 0);
  struct kept kept = {0};
  size_t n_wide = 0;
  (void)state;
  set_models(other, "narrow", "wide");
  other = sweep_play_on(other, &play, &kept);
  for (int i = 0; i < other->n_trials; i++)
    n_wide += sweep_trial_model(other, &other->trials[i]) == 2;
  assert_true(n_wide > 0);
  assert_int_equal(count_learned(other, "wide"), other->n_trials);
  assert_int_equal(count_learned(other, "wider"), (size_t)other->n_trials - n_wide);
  sweep_free(other);
  kept_free(&kept);
}

static void assert_refused(const char *setting, const char *expected) {
  struct err err;
  if (sweep_spec_of(sweep_pbt_text, &setting, 1, &err) || !strstr(err.text, expected))
    fail_msg("%s: '%s' lacks '%s'", setting, err.text, expected);
}

static void what_a_spec_says_wrongly_of_files_is_named_by_key(void **state) {
  (void)state;
  assert_refused("space={model.onnx: {files: []}}", "space.model.onnx: wants one of choice");
  assert_refused("space={model.onnx: {files: [a.onnx, a.onnx]}}",
                 "space.model.onnx: files: 'a.onnx' is there twice");
  assert_refused("space={model.onnx: {files: [a.onnx], choice: [b.onnx]}}",
                 "space.model.onnx: wants one of choice");
  assert_refused("space={model.onnx: {files: [a.onnx, b.onnx], step: 1}}", "space.model.onnx: step: ");
  assert_refused("space={model.onnx: [a.onnx, b.onnx]}", "space.model.onnx: name the models' files");
  assert_refused("space={model.onnx: {files: ['']}}", "space.model.onnx: with model.onnx=: ");
  assert_refused("space={data.root: {files: [a, b]}}", "space.data.root: files: only model.onnx is a file");
  assert_refused("space={model.onnx: {files: [a.onnx, b.onnx]}}",
                 "space.model.onnx: trials of this schedule are forked: model.onnx is ");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_trial_has_its_model_and_takes_time_by_its_multiply_adds),
      cmocka_unit_test(a_file_is_checked_with_the_values_by_which_a_trial_has_it),
      cmocka_unit_test(the_log_does_not_depend_on_when_results_come_nor_on_deaths),
      cmocka_unit_test(nothing_is_learned_of_another_model_of_the_same_name),
      cmocka_unit_test(what_a_spec_says_wrongly_of_files_is_named_by_key),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
