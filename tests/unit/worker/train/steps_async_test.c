/* A worker's steps in mode async: each microbatch is pushed by itself, and computed from the newest weights.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/worker/steps_doubles.h"
#include "tests/support/worker/steps_fixture.h"

enum { WINDOW = 2, LAST = 8 };

static int setup(void **state) {
  static Weir__TrainSpec train;
  static Weir__RunSpec spec;
  struct mode mode;
  weir__train_spec__init(&train);
  weir__run_spec__init(&spec);
  train.mode = (char *)"async";
  train.has_window = true;
  train.window = WINDOW;
  spec.train = &train;
  mode = mode_of(&spec);
  *state = steps_fixture_new(&mode, LAST);
  return 0;
}

static int teardown(void **state) {
  steps_fixture_free(*state);
  return 0;
}

static struct transfer_item last_push(const struct fixture *f) {
  for (int i = f->n_sent; i-- > 0;)
    if (f->sent[i].kind == TRANSFER_PUSH && f->sent[i].block == 0)
      return f->sent[i];
  fail_msg("nothing was pushed");
  return (struct transfer_item){0};
}

/* The next task: of that step and microbatch, computed from that version. Its part is pushed by itself. */
static void compute(struct fixture *f, uint64_t step, uint32_t microbatch, uint64_t version, bool waits) {
  struct work work = begin(f, step, microbatch);
  assert_int_equal(work.version, version);
  assert_false(work.is_for_device);
  deliver(f, &work);
  steps_end(&f->run, &work, true);
  assert_int_equal(sent_parts(f, step, microbatch, 0), 1);
  assert_int_equal(last_push(f).wait, waits);
}

static void parts_are_pushed_by_themselves_and_the_last_brings_the_next_weights(void **state) {
  struct fixture *f = *state;
  join(f, 0, (struct task_range){0, MICROBATCHES});
  arrive(f, 0);
  for (uint64_t step = 0; step < 3; step++) {
    for (uint32_t m = 0; m < MICROBATCHES; m++)
      compute(f, step, m, step, m == MICROBATCHES - 1);
    arrive(f, step + 1);
  }
}

/* As far back as the window goes: whatever was before is over, as this worker was given the version. */
static void microbatches_of_a_lost_worker_are_computed_from_the_newest_weights(void **state) {
  struct fixture *f = *state;
  join(f, 0, (struct task_range){0, 1});
  arrive(f, 0);
  for (uint64_t step = 0; step < 4; step++) {
    compute(f, step, 0, step, true);
    arrive(f, step + 1);
  }
  assign(f, 0, 2);
  compute(f, 4 - WINDOW, 1, 4, false);
  compute(f, 3, 1, 4, false);
  compute(f, 4, 0, 4, false);
  compute(f, 4, 1, 4, true);
  assert_int_equal(sent_parts(f, 1, 1, 0), 0);
}

static void a_task_of_a_step_that_leaves_the_window_is_not_wanted(void **state) {
  struct fixture *f = *state;
  struct work old;
  join(f, 0, (struct task_range){0, 1});
  arrive(f, 0);
  compute(f, 0, 0, 0, true);
  arrive(f, 1);
  assign(f, 0, 2);
  old = begin(f, 0, 1);
  assert_int_equal(old.version, 1);
  assert_true(steps_is_wanted(&f->run, &old));
  compute(f, 1, 0, 1, false);
  compute(f, 1, 1, 1, true);
  arrive(f, 2); /* which does not become the present one before the task ends */
  assert_true(steps_is_current(&f->run, &old));
  steps_end(&f->run, &old, false);
  for (uint64_t step = 2; step < 4; step++) {
    while (last_push(f).step != step || !last_push(f).wait) {
      struct work work;
      assert_true(steps_begin(&f->run, NULL, &work));
      deliver(f, &work);
      steps_end(&f->run, &work, true);
    }
    arrive(f, step + 1);
  }
  assert_false(steps_is_wanted(&f->run, &old));
}

/* Only the version itself is evaluated, and nobody waits for it once the one after it is here. */
static void a_version_is_evaluated_while_it_is_the_present_one(void **state) {
  struct fixture *f = *state;
  struct plan *plan = &f->run.loaded.plan;
  struct work work;
  steps_fini(&f->run);
  plan->eval_samples = plan->eval_chunks = 1;
  plan->eval_every_steps = 1;
  steps_init(&f->run, &f->run.mode);
  join(f, 0, (struct task_range){0, 1});
  arrive(f, 0);
  compute(f, 0, 0, 0, true);
  arrive(f, 1);
  f->run.share.chunks = (struct task_range){0, 1};
  steps_assign(&f->run);
  assert_true(steps_begin(&f->run, NULL, &work));
  assert_int_equal(work.kind, WORK_CHUNK);
  assert_int_equal(work.version, 1);
  steps_end(&f->run, &work, false); /* another's: it is over there */
  f->run.share.chunks = (struct task_range){0, 0};
  steps_assign(&f->run);
  compute(f, 1, 0, 1, true);
  arrive(f, 2);
  f->run.share.chunks = (struct task_range){0, 1};
  steps_assign(&f->run);
  assert_true(steps_begin(&f->run, NULL, &work));
  assert_int_equal(work.step, 2);
  steps_end(&f->run, &work, true);
  compute(f, 2, 0, 2, true);
  assert_false(steps_are_owed(&f->run)); /* not the chunk of version 1, which is gone */
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(parts_are_pushed_by_themselves_and_the_last_brings_the_next_weights),
      TEST(microbatches_of_a_lost_worker_are_computed_from_the_newest_weights),
      TEST(a_task_of_a_step_that_leaves_the_window_is_not_wanted),
      TEST(a_version_is_evaluated_while_it_is_the_present_one),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
