/* What a worker says of servers that it reaches and of those that say nothing, over real connections. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/placement.h"
#include "common/base/log.h"
#include "tests/support/common/patience.h"
#include "tests/support/worker/worker_fixture.h"
#include "worker/train/beat.h"

enum { SOON_MS = 50, MODEL_BLOCKS_MAX = 64 };

static struct fake_server *second(struct worker_fixture *f) {
  return &f->servers[1];
}

static void hold_second(struct worker_fixture *f, uint64_t step) {
  pthread_mutex_lock(&f->lock);
  second(f)->held_step = step;
  second(f)->held_block = UINT32_MAX;
  pthread_mutex_unlock(&f->lock);
}

static void freeze_second(struct worker_fixture *f, bool is_frozen) {
  pthread_mutex_lock(&f->lock);
  second(f)->is_frozen = is_frozen;
  pthread_mutex_unlock(&f->lock);
}

static int blocks_of_second(const struct worker_fixture *f) {
  uint32_t elems[MODEL_BLOCKS_MAX], owners[MODEL_BLOCKS_MAX];
  int n = 0;
  assert_in_range(f->model->n_blocks, 1, MODEL_BLOCKS_MAX);
  for (uint32_t b = 0; b < f->model->n_blocks; b++)
    elems[b] = f->model->blocks[b].elems;
  placement_compute(elems, f->model->n_blocks, 2, owners);
  for (uint32_t b = 0; b < f->model->n_blocks; b++)
    n += owners[b] == 1;
  return n;
}

/* With a call for each of its blocks: none is on its way that a frozen server would not answer for good. */
static bool is_second_held(const struct worker_fixture *f) {
  return f->servers[1].n_parked == blocks_of_second(f);
}

/* The run is at step 1, of which the second server holds its answers back. */
static void run_to_step_1(struct worker_fixture *f) {
  hold_second(f, 1);
  fixture_load(f, backend_find("ref"), 2);
  fixture_view(f,
               (struct view_of){.number = 1, .incarnation = 1, .n_servers = 2, .microbatches = MICROBATCHES},
               fixture_give_view);
  fixture_wait(f, is_second_held);
}

static bool misses_second(const struct worker_fixture *f) {
  return f->n_unreached == 1 && strcmp(f->unreached, "server-2") == 0;
}

static bool reaches_all(const struct worker_fixture *f) {
  return f->n_unreached_told > 0 && f->n_unreached == 0;
}

/* Its connection is whole, and takes what is written. */
static void a_server_that_answers_nothing_any_more_is_told_until_it_does(void **state) {
  struct worker_fixture *f = *state;
  f->silent_ms = f->question_ms = f->unreached_ms = SOON_MS;
  run_to_step_1(f);
  freeze_second(f, true);
  fixture_wait(f, misses_second);
  freeze_second(f, false);
  fixture_wait(f, reaches_all);
  fake_server_release(second(f), ERR_OK);
  fixture_wait(f, is_trained);
  assert_false(f->is_refused);
}

static bool was_asked_often(const struct worker_fixture *f) {
  return f->servers[1].n_questions >= 5;
}

/* Others compute, perhaps: its answers to questions say that it is there. */
static void a_server_that_parks_calls_for_long_is_asked_and_never_told(void **state) {
  struct worker_fixture *f = *state;
  f->silent_ms = 1;
  f->unreached_ms = SOON_MS;
  run_to_step_1(f);
  fixture_wait(f, was_asked_often);
  assert_int_equal(f->n_unreached_told, 0);
  fake_server_release(second(f), ERR_OK);
  fixture_wait(f, is_trained);
}

/* As a heartbeat would name them. */
static bool are_reached(struct worker_fixture *f, bool is_first, bool is_second) {
  const Weir__RunCounters *counters;
  bool has_first = false, has_second = false;
  struct arena arena;
  arena_init(&arena);
  counters = run_beat(f->run, &arena);
  for (size_t i = 0; i < counters->n_reached; i++) {
    has_first |= strcmp(counters->reached[i], "server-1") == 0;
    has_second |= strcmp(counters->reached[i], "server-2") == 0;
  }
  arena_fini(&arena);
  return has_first == is_first && has_second == is_second;
}

static void wait_reached(struct worker_fixture *f, bool is_first, bool is_second) {
  bool is_so = false;
  for (int ms = 0; ms < patience_ms() && !is_so; ms += 10) {
    is_so = are_reached(f, is_first, is_second);
    fixture_linger(10);
  }
  assert_true(is_so);
}

static void heartbeats_name_the_servers_that_answer(void **state) {
  struct worker_fixture *f = *state;
  f->silent_ms = SOON_MS; /* so that what answers has done so within two seconds on any machine */
  run_to_step_1(f);
  wait_reached(f, true, true);
  freeze_second(f, true);
  wait_reached(f, true, false);
  freeze_second(f, false);
}

static void a_run_that_takes_no_part_names_no_server(void **state) {
  struct worker_fixture *f = *state;
  fixture_load(f, backend_find("ref"), 2);
  assert_true(are_reached(f, false, false));
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, worker_setup, worker_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_server_that_answers_nothing_any_more_is_told_until_it_does),
      TEST(a_server_that_parks_calls_for_long_is_asked_and_never_told),
      TEST(heartbeats_name_the_servers_that_answer),
      TEST(a_run_that_takes_no_part_names_no_server),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
