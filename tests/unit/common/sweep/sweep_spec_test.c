/* Sweep specs: what is wrong in them is said by key and line, and damaged ones do no harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "common/sweep/sweep_spec.h"
#include "tests/support/common/sweep_specs.h"

static void assert_refused(const char *setting, const char *expected) {
  struct err err;
  Weir__SweepSpec *spec = sweep_spec_of(sweep_asha_text, &setting, 1, &err);
  if (spec || !strstr(err.text, expected))
    fail_msg("%s: '%s' lacks '%s'", setting, err.text, expected);
}

static void what_a_spec_says_wrongly_is_named_by_key(void **state) {
  (void)state;
  assert_refused("name=A", "name: 'A'");
  assert_refused("space=null", "space");
  assert_refused("space={train.optimizer.lr: {log: [0, 1]}}", "space.train.optimizer.lr: log:");
  assert_refused("space={train.optimizer.lr: {uniform: [1, 0]}}", "space.train.optimizer.lr: uniform:");
  assert_refused("space={train.optimizer.rate: [1, 2]}", "space.train.optimizer.rate: with ");
  assert_refused("space={train.batch: [64, 63]}", "space.train.batch: with train.batch=63: ");
  assert_refused("space={train.steps: [64, 63]}", "space.train.steps: a trial ends");
  assert_refused("space={train.optimizer.lr: {path: x}}", "path is given twice");
  assert_refused("space={train.hold: [1, 2]}", "space.train.hold: schedule.rungs");
  assert_refused("space={eval.at: [1, 2]}", "space.eval.at: schedule.rungs");
  assert_refused("space={train.hold_epochs: [1, 2]}", "space.train.hold_epochs: schedule.rungs");
  assert_refused("space={eval.at_epochs: [1, 2]}", "space.eval.at_epochs: schedule.rungs");
  assert_refused("space={model: [1, 2]}", "space.model: it is the same");
  assert_refused("search={name: ranom}", "search.name: ");
  assert_refused("schedule={name: ahsa}", "schedule.name: ");
  assert_refused("schedule={name: asha}", "schedule.rungs: ");
  assert_refused("schedule={name: asha, rungs: [3, 3]}", "schedule.rungs: 3 ");
  assert_refused("schedule={name: asha, rungs: [0, 3]}", "schedule.rungs: 0 ");
  assert_refused("schedule={name: asha, rungs: [3], eta: 1}", "schedule.eta: ");
  assert_refused("budget=null", "budget: ");
  assert_refused("budget={trials: 0}", "budget.trials: ");
  assert_refused("budget={steps: 9}", "budget.steps: 9 steps do not reach the first rung, at step 10");
  assert_refused("budget={seconds: -1}", "budget.seconds: ");
  assert_refused("concurrency=0", "concurrency: ");
  assert_refused("order=random", "order: ");
  assert_refused("objectives=[{metric: loss}]", "objective: it is not the first of objectives");
  assert_refused("constraint={max: 1}", "constraint.metric: ");
  assert_refused("constraint={metric: acuracy, max: 1}", "constraint.metric: 'acuracy'");
  assert_refused("constraint={metric: loss}", "constraint: ");
  assert_refused("constraint={metric: loss, max: .nan}", "constraint.max: ");
  assert_refused("constraint={metric: loss, min: 2, max: 1}", "constraint.min: ");
  assert_refused("objective={metric: acuracy}", "objective.metric: 'acuracy'");
  assert_refused("objective={goal: best}", "objective.goal: ");
  assert_refused("objective=[]", "objective: the list is empty");
  assert_refused("objectives=[]", "objectives: the list is empty");
  assert_refused("from=[search-012345]", "from: the searcher 'random' does not learn");
  assert_refused("repeats=0", "repeats: 0 is not from 1 to 100");
  assert_refused("repeats=101", "repeats: 101 is not from 1 to 100");
  assert_refused("repeats=65", "repeats: 65 times concurrency, 4, are more than 256 runs at a time");
  assert_refused("schedule.unit=hours", "schedule.unit: 'hours' is not known");
  assert_refused("schedule={name: asha, rungs: [1, 1000001], unit: epochs}",
                 "schedule.rungs: 1000001 epochs are more than the 1000000 of a run");
  assert_refused("schedule={name: asha, rungs: [0.5, 1], unit: epochs}",
                 "schedule.rungs: '0.5' is not a whole number");
  assert_refused("schedule={name: asha, rungs: [64, 127], unit: samples}",
                 "schedule.rungs: from 64 to 127 there are fewer samples than train.batch, 64");
  assert_refused("schedule={name: asha, rungs: [100, 200], unit: samples}",
                 "schedule.rungs: from 100 to 200 there are fewer samples than train.batch, 128");
  assert_refused("points=[{train.batch: 32}]", "points[0]");
  assert_refused("points=[{train.batch: 32, train.optimizer.lr: 7}]", "points[0]");
  assert_refused("points=[{a.b: 32}]", "points[0]: the space has no 'a.b'");
}

static void what_a_spec_says_wrongly_of_other_sweeps_is_named(void **state) {
  const char *settings[] = {"search={name: tpe}", NULL};
  static const char *const wrong[][2] = {{"from=['']", "from: a sweep is to be named"},
                                         {"from=[a, b, a]", "from: 'a' is there twice"},
                                         {"from=[a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q]", "from: 17 sweeps"}};
  struct err err;
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    settings[1] = wrong[i][0];
    assert_null(sweep_spec_of(sweep_asha_text, settings, 2, &err));
    assert_non_null(strstr(err.text, wrong[i][1]));
  }
}

static void a_trial_has_no_more_steps_than_a_run(void **state) {
  static const char *const settings[][2] = {
      {"schedule.rungs=[1, 18446744073709551615]", "schedule.unit=steps"},
      {"schedule.rungs=[1000, 18446744073709551615]", "schedule.unit=samples"},
      {"schedule.rungs=[1000, 32000000001]", "schedule.unit=samples"}, /* of the least batch, 32 */
      {"schedule.rungs=[1, 1000000001]", "schedule.unit=steps"}};
  struct err err;
  (void)state;
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    assert_null(sweep_spec_of(sweep_asha_text, settings[i], 2, &err));
    assert_non_null(strstr(err.text, "schedule.rungs: up to s"));
  }
}

static void what_does_not_go_with_repeats_is_named(void **state) {
  const char *settings[] = {"repeats=3", NULL};
  static const char *const wrong[][2] = {
      {"budget={steps: 29}",
       "budget.steps: 29 steps do not reach the first rung, at step 10, in all repeats"},
      {"space={train.seed: [1, 2]}", "space.train.seed: it differs between the repeats"}};
  struct err err;
  Weir__SweepSpec *spec;
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    settings[1] = wrong[i][0];
    assert_null(sweep_spec_of(sweep_asha_text, settings, 2, &err));
    if (!strstr(err.text, wrong[i][1]))
      fail_msg("'%s' lacks '%s'", err.text, wrong[i][1]);
  }
  settings[1] = "budget={steps: 30}";
  spec = sweep_spec_of(sweep_asha_text, settings, 2, &err);
  assert_non_null(spec);
  message_free(spec);
}

static void assert_pbt_refused(const char *setting, const char *expected) {
  struct err err;
  Weir__SweepSpec *spec = sweep_spec_of(sweep_pbt_text, &setting, 1, &err);
  if (spec || !strstr(err.text, expected))
    fail_msg("%s: '%s' lacks '%s'", setting, err.text, expected);
}

static void what_a_fork_cannot_have_is_refused_in_a_population(void **state) {
  (void)state;
  assert_pbt_refused("space={train.batch: [32, 64]}",
                     "space.train.batch: trials of this schedule are forked: train.batch is");
  assert_pbt_refused("space={train.seed: {uniform: [1, 9], step: 1}}",
                     "space.train.seed: trials of this schedule are forked");
  assert_pbt_refused("space={train: ['{steps: 50, batch: 64, optimizer: {lr: 0.1}}', '{steps: 50, batch: 32, "
                     "optimizer: {lr: 0.1}}']}",
                     "space.train: trials of this schedule are forked");
  assert_pbt_refused("space={model.frozen: ['[a]', '[b]']}", "space.model.frozen: trials of this schedule");
  assert_pbt_refused(
      "space={train.early_stopping.patience: [2, 3]}",
      "space.train.early_stopping.patience: the run spec has train.early_stopping, and trials of "
      "this schedule are forked");
}

static void what_a_population_says_wrongly_is_named_by_key(void **state) {
  (void)state;
  assert_pbt_refused("schedule.quantile=0.6", "schedule.quantile: 0.6");
  assert_pbt_refused("schedule.resample_probability=-1", "schedule.resample_probability: -1");
  assert_pbt_refused("schedule.perturb=[0.8, 0]", "schedule.perturb: 0 ");
  assert_pbt_refused("schedule.interval=10", "schedule.interval: schedule.rungs");
  assert_pbt_refused("schedule={name: pbt, interval: 0}", "schedule.interval: ");
  assert_pbt_refused("schedule={name: pbt, interval: 5}", "schedule.interval: the run spec has train.epochs");
  assert_pbt_refused("schedule={name: pbt}", "schedule.rungs: ");
  assert_pbt_refused("budget={trials: 1}", "budget.trials: ");
  assert_pbt_refused("budget={steps: 1000}", "budget.trials: ");
  assert_pbt_refused("budget={trials: 8, steps: 79}", "budget.steps: 79 ");
  assert_pbt_refused("search.name=grid", "search.name: ");
  assert_refused("schedule.quantile=0.2", "schedule.quantile: 'asha'");
  assert_refused("schedule.burn_in=2", "schedule.burn_in: 'asha'");
}

/* The base with a number of steps, and a sweep's interval. */
static Weir__SweepSpec *interval_spec(uint64_t steps, const char *interval, struct err *err) {
  Weir__RunSpec *base = sweep_base_spec();
  const char *settings[] = {"schedule={name: none}"};
  Weir__SweepSpec *spec = sweep_spec_of(sweep_asha_text, settings, 1, err);
  spec->schedule->has_interval = true;
  spec->schedule->interval = strtoull(interval, NULL, 10);
  base->train->has_epochs = false;
  base->train->has_steps = true;
  base->train->steps = steps;
  sweep_spec_check_base(spec, base, err);
  spec_free(base);
  return spec;
}

static void an_interval_has_a_rung_at_each_multiple_and_at_the_end(void **state) {
  struct err err;
  Weir__SweepSpec *spec = interval_spec(25, "10", &err);
  (void)state;
  assert_int_equal(err.code, 0);
  assert_false(spec->schedule->has_interval);
  assert_int_equal(spec->schedule->n_rungs, 3);
  assert_int_equal(spec->schedule->rungs[0], 10);
  assert_int_equal(spec->schedule->rungs[1], 20);
  assert_int_equal(spec->schedule->rungs[2], 25);
  message_free(spec);
  message_free(interval_spec(25, "26", &err));
  assert_non_null(strstr(err.text, "schedule.interval: a trial ends at step 25"));
  message_free(interval_spec(1000000, "10", &err));
  assert_non_null(strstr(err.text, "schedule.interval: 100000 rungs"));
}

static void what_the_run_spec_says_of_holds_is_refused(void **state) {
  struct err err;
  Weir__SweepSpec *spec = sweep_spec_of(sweep_asha_text, NULL, 0, &err);
  Weir__RunSpec *base = sweep_base_spec();
  (void)state;
  base->train->has_hold = true;
  base->train->hold = 3;
  assert_int_equal(sweep_spec_check_base(spec, base, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "train.hold"));
  base->train->has_hold = false;
  err = ERR_NONE;
  assert_int_equal(sweep_spec_check_base(spec, base, &err), 0);
  spec_free(base);
  message_free(spec);
}

static void rungs_between_versions_of_local_steps_are_refused(void **state) {
  struct err err;
  Weir__SweepSpec *spec = sweep_spec_of(sweep_asha_text, NULL, 0, &err);
  Weir__RunSpec *base = sweep_base_spec();
  Weir__LocalSpec local = WEIR__LOCAL_SPEC__INIT;
  (void)state;
  base->train->local = &local;
  local.inner_steps = 4;
  assert_int_equal(sweep_spec_check_base(spec, base, &err), ERR_INVALID);
  assert_string_equal(err.text,
                      "schedule.rungs: 10 is no multiple of the run spec's train.local.inner_steps, 4");
  base->train->local = NULL;
  spec_free(base);
  message_free(spec);
}

/* Each of 40 dimensions has all those before it as conditions: there are 2^39 ways from the last to the
 * first.
 */
static void conditions_upon_conditions_are_followed_once(void **state) {
  char *text = NULL, *when = mem_strdup("");
  size_t size;
  FILE *file = open_memstream(&text, &size);
  struct err err;
  (void)state;
  fprintf(file, "name: search\nbudget: {trials: 3}\nspace:\n");
  for (int i = 0; i < 40; i++) {
    char *more = mem_printf("%s%smodel.frozen_rows.t%d: '[0]'", when, i ? ", " : "", i);
    fprintf(file, "  model.frozen_rows.t%d: {choice: ['[0]', '[1]'], when: {%s}}\n", i, when);
    free(when);
    when = more;
  }
  fclose(file);
  message_free(sweep_spec_of(text, NULL, 0, &err));
  assert_string_equal(err.text, "");
  free(when);
  free(text);
}

/* As it may come from the network: bytes of a spec, some of them changed. */
static void damaged_specs_are_refused_or_taken_whole(void **state) {
  Weir__RunSpec *base = sweep_base_spec();
  struct err err;
  Weir__SweepSpec *spec = sweep_spec_of(sweep_asha_text, NULL, 0, &err);
  size_t size = weir__sweep_spec__get_packed_size(spec);
  uint8_t *packed = mem_new(size), *bytes = mem_new(size);
  int n_taken = 0;
  (void)state;
  weir__sweep_spec__pack(spec, packed);
  message_free(spec);
  for (uint64_t i = 0; i < 3000; i++) {
    struct sweep *sweep;
    memcpy(bytes, packed, size);
    for (uint64_t change = 0; change <= i % 4; change++)
      bytes[random_bits(21 + change, i) % size] = (uint8_t)random_bits(31 + change, i);
    spec = weir__sweep_spec__unpack(NULL, size - random_bits(41, i) % 3 * (i % 2), bytes);
    err = ERR_NONE;
    if (spec && sweep_spec_check(spec, &err) == 0 && sweep_spec_check_base(spec, base, &err) == 0 &&
        sweep_new(spec, base, &sweep, &err) == 0) {
      Weir__SweepRecord *record;
      for (int r = 0; r < 3 && sweep_next(sweep, &record) == SWEEP_DECIDED; r++) {
        assert_int_equal(sweep_apply(sweep, record, &err), 0);
        message_free(record);
      }
      sweep_free(sweep);
      n_taken++;
    }
    message_free(spec);
  }
  assert_true(n_taken > 0);
  free(packed);
  free(bytes);
  spec_free(base);
}

static void errors_name_the_line(void **state) {
  static const char text[] = "name: search\nspec: base.yaml\nbudget: {trials: 3}\nspace:\n"
                             "  train.batch: [64]\n  train.optimizer.lr: {log: [-1, 1]}\n";
  struct err err;
  (void)state;
  assert_null(sweep_spec_of(text, NULL, 0, &err));
  assert_non_null(strstr(err.text, ":6: space.train.optimizer.lr: log: "));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_a_spec_says_wrongly_is_named_by_key),
      cmocka_unit_test(what_a_spec_says_wrongly_of_other_sweeps_is_named),
      cmocka_unit_test(a_trial_has_no_more_steps_than_a_run),
      cmocka_unit_test(what_does_not_go_with_repeats_is_named),
      cmocka_unit_test(what_a_fork_cannot_have_is_refused_in_a_population),
      cmocka_unit_test(what_a_population_says_wrongly_is_named_by_key),
      cmocka_unit_test(an_interval_has_a_rung_at_each_multiple_and_at_the_end),
      cmocka_unit_test(what_the_run_spec_says_of_holds_is_refused),
      cmocka_unit_test(rungs_between_versions_of_local_steps_are_refused),
      cmocka_unit_test(conditions_upon_conditions_are_followed_once),
      cmocka_unit_test(damaged_specs_are_refused_or_taken_whole),
      cmocka_unit_test(errors_name_the_line),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
