/* What a worker computes beside its share, by an order: each part is pushed by itself. And what every push
   says of who sent it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/worker/worker_fixture.h"
#include "worker/train/participate.h"

static void show(struct worker_fixture *f, struct view_of of) {
  of.incarnation = of.n_servers = 1;
  fixture_view(f, of, fixture_give_view);
}

/* What a test orders of microbatches and of chunks: [begin, end). */
struct order_of {
  uint64_t incarnation, step;
  struct task_range microbatches, chunks;
};

static void order(struct worker_fixture *f, struct order_of of) {
  Weir__Reissue reissue = WEIR__REISSUE__INIT;
  Weir__Range ranges[] = {WEIR__RANGE__INIT, WEIR__RANGE__INIT}, *lists[] = {&ranges[0], &ranges[1]};
  ranges[0].begin = of.microbatches.begin;
  ranges[0].end = of.microbatches.end;
  ranges[1].begin = of.chunks.begin;
  ranges[1].end = of.chunks.end;
  reissue.run = (char *)fixture_run_id();
  reissue.incarnation = of.incarnation;
  reissue.step = of.step;
  reissue.microbatches = &lists[0];
  reissue.chunks = &lists[1];
  reissue.n_microbatches = reissue.n_chunks = 1;
  run_reissue(f->run, &reissue);
}

static bool is_held(const struct worker_fixture *f) {
  return f->servers[0].n_parked == (int)f->model->n_blocks;
}

/* Microbatch 0 of the step is ours; all of it is pushed, and not answered. */
static void run_to_step(struct worker_fixture *f, uint64_t step) {
  f->servers[0].held_step = step;
  fixture_load(f, backend_find("ref"), 2);
  show(f, (struct view_of){.number = 1, .microbatches = 1});
  fixture_wait(f, is_held);
}

/* Pushes of the microbatch alone, for which no reply is awaited. */
static int count_alone(const struct worker_fixture *f, uint64_t step, uint32_t microbatch) {
  int n = 0;
  for (int i = 0; i < f->n_pushes; i++) {
    const struct fake_push *push = &f->pushes[i];
    n += push->step == step && push->first == microbatch && push->level == 0 && !push->wait &&
         !push->is_evaluation;
  }
  return n;
}

static bool are_both_pushed_alone(const struct worker_fixture *f) {
  return count_alone(f, 1, 0) == (int)f->model->n_blocks && count_alone(f, 1, 1) == (int)f->model->n_blocks;
}

static void each_microbatch_that_is_ordered_is_pushed_by_itself(void **state) {
  struct worker_fixture *f = *state;
  run_to_step(f, 1);
  assert_int_equal(count_alone(f, 1, 0) + count_alone(f, 1, 1), 0);
  order(f, (struct order_of){.incarnation = 1, .step = 1, .microbatches = {0, UINT32_MAX}});
  fixture_wait(f, are_both_pushed_alone);
  fake_server_release(&f->servers[0], ERR_OK);
  fixture_wait(f, is_trained);
  assert_int_equal(count_alone(f, 1, 0) + count_alone(f, 1, 1), 2 * f->model->n_blocks);
  assert_int_equal(count_alone(f, 0, 1) + count_alone(f, 2, 1), 0);
}

/* The bits are those that the share has: the two differ in what carries them alone. */
static void an_extra_task_has_the_bits_of_the_share(void **state) {
  struct worker_fixture *f = *state;
  uint64_t digests[BLOCKS_MAX][2] = {{0}};
  run_to_step(f, 1);
  order(f, (struct order_of){.incarnation = 1, .step = 1, .microbatches = {0, 2}});
  fixture_wait(f, are_both_pushed_alone);
  for (int i = 0; i < f->n_pushes; i++)
    if (f->pushes[i].step == 1 && f->pushes[i].first == 0)
      digests[f->pushes[i].block][f->pushes[i].wait] = f->pushes[i].digest;
  for (uint32_t b = 0; b < f->model->n_blocks; b++)
    assert_true(digests[b][0] != 0 && digests[b][0] == digests[b][1]);
}

static bool is_1_pushed_alone(const struct worker_fixture *f) {
  return count_alone(f, 1, 1) == (int)f->model->n_blocks;
}

/* The last order is in order, and shows that those before it were taken in. */
static void an_order_that_makes_no_sense_changes_nothing(void **state) {
  static const struct order_of orders[] = {
      {.incarnation = 2, .step = 1, .microbatches = {0, 2}},
      {.incarnation = 0, .step = 1, .microbatches = {0, 2}},
      {.incarnation = 1, .step = 0, .microbatches = {0, 2}},
      {.incarnation = 1, .step = UINT64_MAX, .microbatches = {0, 2}, .chunks = {0, UINT32_MAX}},
      {.incarnation = 1, .step = 1, .microbatches = {2, UINT32_MAX}, .chunks = {0, UINT32_MAX}},
      {.incarnation = 1, .step = 1, .microbatches = {2, 1}, .chunks = {UINT32_MAX, 0}},
      {.incarnation = 1, .step = 1, .microbatches = {1, 2}}};
  struct worker_fixture *f = *state;
  int before;
  run_to_step(f, 1);
  before = f->n_pushes;
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    order(f, orders[i]);
    fixture_linger(30); /* each replaces the one before */
  }
  fixture_wait(f, is_1_pushed_alone);
  assert_int_equal(f->n_pushes, before + (int)f->model->n_blocks);
  assert_false(f->is_refused);
}

static bool is_fetching(const struct worker_fixture *f) {
  return f->held_fetch != NULL;
}

static bool is_0_of_0_pushed_alone(const struct worker_fixture *f) {
  return count_alone(f, 0, 1) == (int)f->model->n_blocks;
}

static void an_order_that_comes_before_the_run_is_loaded_is_kept(void **state) {
  struct worker_fixture *f = *state;
  f->is_fetch_held = true;
  f->servers[0].held_step = 0;
  fixture_load(f, backend_find("ref"), 1);
  fixture_wait(f, is_fetching);
  order(f, (struct order_of){.incarnation = 1, .step = 0, .microbatches = {1, 2}});
  fixture_release_model(f);
  show(f, (struct view_of){.number = 1, .microbatches = 1});
  fixture_wait(f, is_0_of_0_pushed_alone);
}

static int count_evaluations(const struct worker_fixture *f, uint64_t version) {
  int n = 0;
  for (int i = 0; i < f->n_pushes; i++)
    n += f->pushes[i].is_evaluation && f->pushes[i].step == version;
  return n;
}

static bool is_1_evaluated(const struct worker_fixture *f) {
  return count_evaluations(f, 1) == 1;
}

static void a_chunk_that_is_ordered_is_evaluated(void **state) {
  struct worker_fixture *f = *state;
  run_to_step(f, 1);
  assert_int_equal(count_evaluations(f, 1), 0);
  order(f, (struct order_of){.incarnation = 1, .step = 1, .chunks = {0, UINT32_MAX}});
  fixture_wait(f, is_1_evaluated);
  assert_int_equal(count_alone(f, 1, 0) + count_alone(f, 1, 1), 0);
}

static void a_version_that_the_plan_does_not_evaluate_is_not(void **state) {
  struct worker_fixture *f = *state;
  run_to_step(f, 0);
  order(f, (struct order_of){.incarnation = 1, .step = 0, .microbatches = {1, 2}, .chunks = {0, UINT32_MAX}});
  fixture_wait(f, is_0_of_0_pushed_alone);
  assert_int_equal(count_evaluations(f, 0), 0);
}

/* Of the pushes of a step, those that say this of their sender. */
static int count_sent_by(struct worker_fixture *f, uint64_t step, uint32_t worker, uint64_t view) {
  int n = 0;
  pthread_mutex_lock(&f->lock);
  for (int i = 0; i < f->n_pushes; i++)
    n += f->pushes[i].step == step && f->pushes[i].worker == worker && f->pushes[i].view == view;
  pthread_mutex_unlock(&f->lock);
  return n;
}

static bool is_1_of_1_pushed(const struct worker_fixture *f) {
  return count_alone(f, 1, 1) == (int)f->model->n_blocks;
}

static void a_push_says_who_sends_it_and_by_which_view(void **state) {
  struct worker_fixture *f = *state;
  run_to_step(f, 1);
  assert_int_equal(count_sent_by(f, 0, 1, 1), f->model->n_blocks);
  show(f, (struct view_of){.number = 7, .microbatches = 2, .worker = "worker-4294967295"});
  fixture_wait(f, is_1_of_1_pushed);
  assert_int_equal(count_sent_by(f, 1, 1, 1), f->model->n_blocks);
  assert_int_equal(count_sent_by(f, 1, UINT32_MAX, 7), f->model->n_blocks);
}

static void an_id_that_the_coordinator_does_not_give_has_no_number(void **state) {
  static const char *const others[] = {
      "",         "worker-",           "worker-x",  "worker-1x", "server-1",
      "worker-0", "worker-4294967296", "worker--1", "Worker-1",  "worker-99999999999999999999999"};
  (void)state;
  assert_int_equal(worker_number("worker-1"), 1);
  assert_int_equal(worker_number("worker-4294967295"), UINT32_MAX);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    assert_int_equal(worker_number(others[i]), 0);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, worker_setup, worker_teardown)
  const struct CMUnitTest tests[] = {
      TEST(each_microbatch_that_is_ordered_is_pushed_by_itself),
      TEST(an_extra_task_has_the_bits_of_the_share),
      TEST(an_order_that_makes_no_sense_changes_nothing),
      TEST(an_order_that_comes_before_the_run_is_loaded_is_kept),
      cmocka_unit_test_setup_teardown(a_chunk_that_is_ordered_is_evaluated, worker_setup_evaluating,
                                      worker_teardown),
      cmocka_unit_test_setup_teardown(a_version_that_the_plan_does_not_evaluate_is_not,
                                      worker_setup_evaluating, worker_teardown),
      TEST(a_push_says_who_sends_it_and_by_which_view),
      cmocka_unit_test(an_id_that_the_coordinator_does_not_give_has_no_number),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
