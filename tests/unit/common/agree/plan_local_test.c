/* The plan of mode local: where there are versions, what is evaluated, what may be named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/plan.h"

enum { STEPS = 20, SAMPLES = 40, BATCH = 8 }; /* an epoch is five steps */

struct fixture {
  Weir__RunSpec spec;
  Weir__TrainSpec train;
  Weir__LocalSpec local;
  Weir__DataSpec data;
  Weir__EvalSpec eval;
  struct plan plan;
};

static void fixture_init(struct fixture *f) {
  weir__run_spec__init(&f->spec);
  weir__train_spec__init(&f->train);
  weir__local_spec__init(&f->local);
  weir__data_spec__init(&f->data);
  weir__eval_spec__init(&f->eval);
  f->spec.train = &f->train;
  f->spec.data = &f->data;
  f->spec.eval = &f->eval;
  f->train.has_steps = true;
  f->train.steps = STEPS;
  f->train.batch = BATCH;
  f->train.microbatches = 4;
  f->train.local = &f->local;
  f->local.replicas = 2;
  f->local.inner_steps = 6;
}

static void plan_of(struct fixture *f) {
  struct err err;
  if (plan_init(&f->plan, &f->spec, SAMPLES, 10, &err))
    fail_msg("%s", err.text);
}

/* Of steps 5, 10, 15 and 20. */
static void what_falls_between_two_versions_is_evaluated_at_the_next(void **state) {
  static const uint64_t wanted[] = {6, 12, 18, 20};
  struct fixture f;
  uint64_t next = 0;
  (void)state;
  fixture_init(&f);
  plan_of(&f);
  for (uint64_t version = 0; version <= STEPS; version++) {
    assert_int_equal(plan_next_evaluated(&f.plan, version), wanted[next]);
    assert_int_equal(plan_evaluates(&f.plan, version), version == wanted[next]);
    next += version == wanted[next];
  }
}

static void a_version_is_evaluated_once_for_all_that_falls_before_it(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  f.local.inner_steps = 12;
  plan_of(&f);
  assert_int_equal(plan_next_evaluated(&f.plan, 0), 12);
  assert_int_equal(plan_next_evaluated(&f.plan, 13), 20);
}

static void workers_are_given_replicas_of_as_many_microbatches_each(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  plan_of(&f);
  assert_int_equal(plan_units(&f.plan), 2);
  assert_int_equal(plan_unit_microbatches(&f.plan), 2);
  f.train.local = NULL;
  plan_of(&f);
  assert_int_equal(plan_units(&f.plan), 4);
  assert_int_equal(plan_unit_microbatches(&f.plan), 1);
}

static void there_is_a_version_after_each_round_and_the_last(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  plan_of(&f);
  assert_int_equal(plan_boundary(&f.plan, 0), 0);
  assert_int_equal(plan_boundary(&f.plan, 1), 6);
  assert_int_equal(plan_boundary(&f.plan, 12), 12);
  assert_int_equal(plan_boundary(&f.plan, 19), 20);
  f.train.has_hold_epochs = true;
  f.train.hold_epochs = 2;
  plan_fix_hold(&f.plan, &f.train);
  assert_int_equal(f.train.hold, 12);
}

static void a_version_that_there_will_not_be_is_refused_with_those_around_it(void **state) {
  struct fixture f;
  struct err err;
  uint64_t at[] = {6, 13};
  (void)state;
  fixture_init(&f);
  f.eval.at = at;
  f.eval.n_at = 2;
  assert_int_equal(plan_init(&f.plan, &f.spec, SAMPLES, 10, &err), ERR_INVALID);
  assert_string_equal(err.text,
                      "eval.at: there will be no version 13, train.local.inner_steps is 6: name 12 or 18");
  f.eval.n_at = 1;
  plan_of(&f);
  assert_int_equal(plan_check_hold(&f.plan, 19, &err), ERR_INVALID);
  assert_string_equal(err.text,
                      "train.hold: there will be no version 19, train.local.inner_steps is 6: name 18 or 20");
  assert_int_equal(plan_check_hold(&f.plan, 20, &err), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_falls_between_two_versions_is_evaluated_at_the_next),
      cmocka_unit_test(a_version_is_evaluated_once_for_all_that_falls_before_it),
      cmocka_unit_test(workers_are_given_replicas_of_as_many_microbatches_each),
      cmocka_unit_test(there_is_a_version_after_each_round_and_the_last),
      cmocka_unit_test(a_version_that_there_will_not_be_is_refused_with_those_around_it),
  };
  return cmocka_run_group_tests_name("plan of local steps", tests, NULL, NULL);
}
