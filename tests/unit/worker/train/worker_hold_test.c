/* A worker of a run that is held: it computes nothing from the version of the hold but its evaluation, and
   goes on where it is when a view raises the hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/worker/worker_fixture.h"

enum { LINGER_MS = 200 };

static void show(struct worker_fixture *f, uint64_t number, uint64_t hold) {
  fixture_view(f,
               (struct view_of){.number = number,
                                .incarnation = 1,
                                .n_servers = 1,
                                .microbatches = MICROBATCHES,
                                .chunks = 1,
                                .hold = hold},
               fixture_give_view);
}

static bool is_at(const struct worker_fixture *f, uint64_t version) {
  for (uint32_t b = 0; b < f->model->n_blocks; b++)
    if (f->servers[0].version[b] != version)
      return false;
  return true;
}

static bool is_at_1(const struct worker_fixture *f) {
  return is_at(f, 1);
}

static bool is_at_2(const struct worker_fixture *f) {
  return is_at(f, 2);
}

static int count_evaluations(const struct worker_fixture *f, uint64_t step) {
  int n = 0;
  for (int i = 0; i < f->n_pushes; i++)
    n += f->pushes[i].is_evaluation && f->pushes[i].step == step;
  return n;
}

static bool has_evaluated_1(const struct worker_fixture *f) {
  return count_evaluations(f, 1) > 0;
}

static void assert_nothing_is_pushed_of(struct worker_fixture *f, uint64_t step) {
  fixture_linger(LINGER_MS);
  pthread_mutex_lock(&f->lock);
  assert_int_equal(count_pushes(f, 0, 1, step), 0);
  pthread_mutex_unlock(&f->lock);
}

static void steps_end_at_the_hold_and_go_on_where_they_are_when_it_is_raised(void **state) {
  struct worker_fixture *f = *state;
  fixture_load(f, backend_find("ref"), 2);
  show(f, 1, 1);
  fixture_wait(f, is_at_1);
  assert_nothing_is_pushed_of(f, 1);
  show(f, 2, 2);
  fixture_wait(f, is_at_2);
  assert_nothing_is_pushed_of(f, 2);
  show(f, 3, 0);
  fixture_wait(f, is_trained);
  assert_int_equal(count_pushes(f, 0, 1, 1), pushes_of_step(f));
  assert_int_equal(f->servers[0].n_questions, 1);        /* it never joined again, */
  assert_int_equal(f->n_pulls, (int)f->model->n_blocks); /* nor pulled what it had */
  assert_false(f->is_refused);
}

static void a_hold_that_is_raised_before_the_run_comes_to_it_holds_nothing_up(void **state) {
  struct worker_fixture *f = *state;
  f->servers[0].held_step = 0;
  fixture_load(f, backend_find("ref"), 2);
  show(f, 1, 1);
  show(f, 2, STEPS);
  fake_server_release(&f->servers[0], ERR_OK);
  fixture_wait(f, is_trained);
  assert_false(f->is_refused);
}

static void who_joins_at_the_hold_computes_nothing_until_it_is_raised(void **state) {
  struct worker_fixture *f = *state;
  for (uint32_t b = 0; b < f->model->n_blocks; b++)
    f->servers[0].version[b] = 1;
  fixture_load(f, backend_find("ref"), 2);
  show(f, 1, 1);
  assert_nothing_is_pushed_of(f, 1);
  show(f, 2, 0);
  fixture_wait(f, is_trained);
  assert_int_equal(count_pushes(f, 0, 1, 0), 0);
  assert_int_equal(count_pushes(f, 0, 1, 1), pushes_of_step(f));
  assert_false(f->is_refused);
}

static void the_version_of_the_hold_is_evaluated(void **state) {
  struct worker_fixture *f = *state;
  fixture_load(f, backend_find("ref"), 2);
  show(f, 1, 1);
  fixture_wait(f, is_at_1);
  fixture_wait(f, has_evaluated_1);
  assert_nothing_is_pushed_of(f, 1);
  show(f, 2, 0);
  fixture_wait(f, is_trained);
  assert_int_equal(count_evaluations(f, 1), 1);
}

int main(void) {
  float_setting_apply();
  log_set_level(LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(steps_end_at_the_hold_and_go_on_where_they_are_when_it_is_raised,
                                      worker_setup, worker_teardown),
      cmocka_unit_test_setup_teardown(a_hold_that_is_raised_before_the_run_comes_to_it_holds_nothing_up,
                                      worker_setup, worker_teardown),
      cmocka_unit_test_setup_teardown(who_joins_at_the_hold_computes_nothing_until_it_is_raised, worker_setup,
                                      worker_teardown),
      cmocka_unit_test_setup_teardown(the_version_of_the_hold_is_evaluated, worker_setup_evaluating,
                                      worker_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
