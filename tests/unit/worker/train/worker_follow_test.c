/* A worker that the view gives nothing, but that it is to follow: it holds each version as it comes, says
   when it has caught up, and begins where it is when it is given work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/worker/worker_fixture.h"

static int setup(void **state) {
  struct worker_fixture *f;
  worker_setup(state);
  f = *state;
  f->servers[0].parks_pulls = true;
  return 0;
}

static void show(struct worker_fixture *f, uint64_t number, uint32_t microbatches, bool follows) {
  fixture_view(f,
               (struct view_of){.number = number,
                                .incarnation = 1,
                                .n_servers = 1,
                                .microbatches = microbatches,
                                .follows = follows},
               fixture_give_view);
}

static void follow(struct worker_fixture *f) {
  fixture_load(f, backend_find("ref"), 2);
  show(f, 1, 0, true);
}

static bool is_ready(const struct worker_fixture *f) {
  return f->n_ready == 1;
}

static bool is_ready_again(const struct worker_fixture *f) {
  return f->n_ready == 2;
}

/* The next version is asked for, and not there yet. */
static bool is_waiting(const struct worker_fixture *f) {
  return f->servers[0].n_parked == (int)f->model->n_blocks;
}

static bool has_pushed(const struct worker_fixture *f) {
  return f->n_pushes > 0;
}

static void reach(struct worker_fixture *f, uint64_t version) {
  fixture_wait(f, is_waiting);
  fake_server_reach(&f->servers[0], version);
}

static void a_worker_that_follows_says_once_that_it_is_ready_and_pushes_nothing(void **state) {
  struct worker_fixture *f = *state;
  follow(f);
  fixture_wait(f, is_ready);
  assert_int_equal(f->ready_version, 0);
  for (uint64_t version = 1; version < STEPS; version++)
    reach(f, version);
  fixture_wait(f, is_waiting);
  assert_int_equal(f->n_ready, 1);
  assert_int_equal(f->n_pushes, 0);
  assert_int_equal(f->servers[0].n_questions, 2); /* where to join; whether it has caught up */
  assert_false(f->is_refused);
}

static void who_follows_begins_where_it_is_when_it_is_given_work(void **state) {
  struct worker_fixture *f = *state;
  follow(f);
  fixture_wait(f, is_ready);
  reach(f, 1);
  fixture_wait(f, is_waiting);
  show(f, 2, MICROBATCHES, false);
  fixture_wait(f, has_pushed); /* it knows of its work */
  pthread_mutex_lock(&f->lock);
  f->servers[0].parks_pulls = false;
  pthread_mutex_unlock(&f->lock);
  fake_server_reach(&f->servers[0], 2); /* others pushed for it, too */
  fixture_wait(f, is_trained);
  assert_int_equal(count_pushes(f, 0, 1, 0), 0);
  assert_true(count_pushes(f, 0, 1, 2) > 0);
  assert_int_equal(f->servers[0].n_questions, 2);
  assert_int_equal(f->n_ready, 1);
}

/* The version that it joins at is here, but the servers have gone on meanwhile. */
static void who_is_far_behind_is_not_ready_yet(void **state) {
  struct worker_fixture *f = *state;
  f->servers[0].leap = 2;
  follow(f);
  fixture_wait(f, is_ready);
  assert_in_range(f->ready_version, 1, 2);
}

static void who_falls_behind_says_it_again_when_it_has_caught_up(void **state) {
  struct worker_fixture *f = *state;
  follow(f);
  fixture_wait(f, is_ready);
  fixture_wait(f, is_waiting);
  fake_server_release(&f->servers[0], ERR_DROPPED);
  fixture_wait(f, is_ready_again);
  assert_false(f->is_refused);
}

/* Its coordinator did not hear it, perhaps. */
static void a_view_that_still_has_it_follow_is_answered(void **state) {
  struct worker_fixture *f = *state;
  follow(f);
  fixture_wait(f, is_ready);
  show(f, 2, 0, true);
  fixture_wait(f, is_ready_again);
}

static bool has_given_up(const struct worker_fixture *f) {
  return f->servers[0].n_gone == (int)f->model->n_blocks;
}

static void who_has_no_work_and_does_not_follow_leaves_the_run(void **state) {
  struct worker_fixture *f = *state;
  follow(f);
  fixture_wait(f, is_ready);
  fixture_wait(f, is_waiting);
  show(f, 2, 0, false);
  fixture_wait(f, has_given_up);
}

/* Work counts: what else the view says is nonsense. */
static void who_has_work_does_not_follow(void **state) {
  struct worker_fixture *f = *state;
  fixture_load(f, backend_find("ref"), 2);
  show(f, 1, MICROBATCHES, true);
  fixture_wait(f, is_trained);
  assert_int_equal(f->n_ready, 0);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, worker_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_worker_that_follows_says_once_that_it_is_ready_and_pushes_nothing),
      TEST(who_follows_begins_where_it_is_when_it_is_given_work),
      TEST(who_is_far_behind_is_not_ready_yet),
      TEST(who_falls_behind_says_it_again_when_it_has_caught_up),
      TEST(a_view_that_still_has_it_follow_is_answered),
      TEST(who_has_no_work_and_does_not_follow_leaves_the_run),
      TEST(who_has_work_does_not_follow),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
