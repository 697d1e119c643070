/* A worker's gradients on devices: they are added there, leave from the host, with the same bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/common/patience.h"
#include "tests/support/worker/fake_device.h"
#include "tests/support/worker/worker_fixture.h"

static struct backend_def backend;

static int setup_devices(void **state) {
  fake_devices_init();
  backend = fake_backend();
  fake_devices.on_value = NULL;
  fake_devices.on_end = NULL;
  return worker_setup(state);
}

static void load_on(struct worker_fixture *f, const struct backend_def *def, int n_devices) {
  static const int devices[] = {0, 1};
  static const uint64_t device_bytes[] = {FAKE_BYTES, FAKE_BYTES};
  Weir__LoadRun load = fixture_order(f, 1);
  f->run = run_start(&(struct run_options){.client = f->client,
                                           .coordinator = f->channel,
                                           .backend = def,
                                           .data_root = {.path = "/"},
                                           .threads = n_devices,
                                           .question_ms = WEEK_MS,
                                           .silent_ms = WEEK_MS,
                                           .devices = def->memory ? devices : NULL,
                                           .n_devices = def->memory ? n_devices : 0,
                                           .device_bytes = def->memory ? device_bytes : NULL,
                                           .send = fixture_on_told,
                                           .user = f},
                     &load);
}

static void show(struct worker_fixture *f, uint64_t number, uint32_t microbatches) {
  fixture_view(
      f, (struct view_of){.number = number, .incarnation = 1, .n_servers = 1, .microbatches = microbatches},
      fixture_give_view);
}

/* What was pushed of the block at the step as the sum of all: its digest. */
static uint64_t sum_of(const struct worker_fixture *f, uint64_t step, uint32_t block) {
  for (int i = 0; i < f->n_pushes; i++)
    if (f->pushes[i].step == step && f->pushes[i].block == block && f->pushes[i].level == 1)
      return f->pushes[i].digest;
  fail_msg("nothing was pushed of block %u at step %d", block, (int)step);
  return 0;
}

/* Trains on n devices, and on ref, and compares what was pushed. */
static void compare_with_host(struct worker_fixture *f, int n_devices) {
  void *other;
  struct worker_fixture *host;
  worker_setup(&other);
  host = other;
  load_on(host, backend_find("ref"), 1);
  show(host, 1, MICROBATCHES);
  load_on(f, &backend, n_devices);
  show(f, 1, MICROBATCHES);
  fixture_wait(host, is_trained);
  fixture_wait(f, is_trained);
  assert_int_equal(f->n_pushes, host->n_pushes);
  for (uint64_t step = 0; step < STEPS; step++)
    for (uint32_t b = 0; b < f->model->n_param_blocks; b++)
      assert_int_equal(sum_of(f, step, b), sum_of(host, step, b));
  fixture_free(host);
}

static void gradients_of_one_device_are_added_there(void **state) {
  struct worker_fixture *f = *state;
  compare_with_host(f, 1);
  assert_int_equal(fake_devices.n_sums, STEPS * f->model->n_param_blocks);
  assert_true(fake_devices.n_waits < STEPS * MICROBATCHES * 3 * (int)f->model->n_param_blocks);
}

static void gradients_of_two_devices_are_added_on_one_of_them(void **state) {
  struct worker_fixture *f = *state;
  compare_with_host(f, 2);
  assert_int_equal(fake_devices.n_sums, STEPS * f->model->n_param_blocks);
}

static void gradients_of_a_full_device_are_added_on_the_host(void **state) {
  struct worker_fixture *f = *state;
  fake_devices.limit[0] = 0;
  compare_with_host(f, 1);
  assert_int_equal(fake_devices.n_sums + fake_devices.n_looks, 0);
}

static void one_of_two_devices_may_be_full(void **state) {
  fake_devices.limit[1] = 0;
  compare_with_host(*state, 2);
}

/* A microbatch whose sibling is another worker's goes to the host at once. */
static void what_is_added_nowhere_here_is_not_kept_on_the_device(void **state) {
  struct worker_fixture *f = *state;
  load_on(f, &backend, 1);
  show(f, 1, 1);
  fixture_wait(f, is_trained);
  assert_int_equal(fake_devices.used[0], 0);
}

/* The first execution ends when the gate opens. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool is_open, is_reached;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false};

static void wait_at_gate(const struct backend_run *run) {
  if (!run->before_weight)
    return; /* the probe */
  pthread_mutex_lock(&gate.lock);
  gate.is_reached = true;
  pthread_cond_broadcast(&gate.changed);
  while (!gate.is_open)
    pthread_cond_wait(&gate.changed, &gate.lock);
  pthread_mutex_unlock(&gate.lock);
}

/* All of them parts of microbatch 0. */
static bool are_parts_sent(const struct worker_fixture *f) {
  int n = 0;
  for (int i = 0; i < f->n_pushes; i++)
    n += f->pushes[i].step == 0 && f->pushes[i].level == 0 && f->pushes[i].first == 0;
  return n == (int)f->model->n_blocks;
}

static void parts_whose_sibling_went_to_another_worker_leave_the_device(void **state) {
  struct worker_fixture *f = *state;
  gate.is_open = gate.is_reached = false;
  fake_devices.on_end = wait_at_gate;
  load_on(f, &backend, 1);
  show(f, 1, MICROBATCHES);
  pthread_mutex_lock(&gate.lock);
  while (!gate.is_reached)
    pthread_cond_wait(&gate.changed, &gate.lock);
  pthread_mutex_unlock(&gate.lock);
  assert_int_equal(f->n_pushes, 0);
  show(f, 2, 1);
  fixture_linger(50); /* the view is applied before or after the gate: both must do */
  pthread_mutex_lock(&gate.lock);
  gate.is_open = true;
  pthread_cond_broadcast(&gate.changed);
  pthread_mutex_unlock(&gate.lock);
  fixture_wait(f, are_parts_sent);
  fixture_wait(f, is_trained);
}

static int spoiled_watch, spoiled_microbatch;
static float spoil_with;

static void spoil(const struct backend_run *run, int watch, float *data) {
  if (run->weights && watch == spoiled_watch && (int)run->context.microbatch == spoiled_microbatch)
    data[0] = spoil_with;
}

static bool is_refused_or_trained(const struct worker_fixture *f) {
  return f->is_refused || is_trained(f);
}

/* Every value that is watched, on the device and on the host: the refusal is the same. */
static void what_is_not_finite_is_refused_as_on_the_host(void **state) {
  int n_named = 0;
  (void)state;
  for (int i = 0; i < 16; i++) {
    char told[2][sizeof((struct worker_fixture *)0)->refusal] = {"", ""};
    for (int on_host = 0; on_host < 2; on_host++) {
      void *made;
      struct worker_fixture *f;
      setup_devices(&made);
      f = made;
      spoiled_watch = i / 2;
      spoiled_microbatch = i % 2;
      spoil_with = i / 2 % 3 ? INFINITY : NAN;
      fake_devices.on_value = spoil;
      backend.memory = on_host ? NULL : &fake_memory;
      f->servers[0].parks_pulls = true; /* a sum that is lost does not come by itself */
      load_on(f, &backend, 1);
      show(f, 1, MICROBATCHES);
      fixture_wait(f, is_refused_or_trained);
      snprintf(told[on_host], sizeof told[on_host], "%s", f->refusal);
      fixture_free(f);
    }
    assert_string_equal(told[0], told[1]);
    n_named += strstr(told[0], "is not finite: the training diverges") != NULL;
  }
  assert_int_equal(n_named, 16); /* four values of the loss, four gradients, of either microbatch */
}

/* A gradient that is finite, in step 0; the sum of two overflows. */
static void make_large(const struct backend_run *run, int watch, float *data) {
  if (run->weights && watch == spoiled_watch && run->context.step == 0)
    data[0] = 3e38f;
}

/* The first value that is a gradient; before it there are those of the loss. */
static int first_gradient(const struct worker_fixture *f) {
  const struct loss_values *loss = &f->model->train_loss;
  return (loss->loss_sum >= 0) + (loss->correct >= 0) + (loss->scored >= 0) + (loss->denominator >= 0);
}

/* What was pushed of the block at step 0, by level. */
static int count_level(const struct worker_fixture *f, uint32_t block, uint32_t level) {
  int n = 0;
  for (int i = 0; i < f->n_pushes; i++)
    n += f->pushes[i].step == 0 && f->pushes[i].block == block && f->pushes[i].level == level;
  return n;
}

/* Of the parameters' blocks each was pushed by both microbatches alone, for extra tasks push all of them. */
static bool are_all_alone(const struct worker_fixture *f) {
  for (uint32_t b = 0; b < f->model->n_param_blocks; b++)
    if (count_level(f, b, 0) < MICROBATCHES)
      return false;
  return true;
}

/* As backends do whose values are in host memory: nobody is asked where gradients are wanted. */
static int run_on_host(struct backend_program *program, const struct backend_run *run, struct err *err) {
  struct backend_run own = *run;
  own.place = NULL;
  own.after_values = NULL;
  return fake_run(program, &own, err);
}

/* On n devices, or on the host: 0, as one does that copies, -1, as one that does not. */
static void overflow_on(int n_devices) {
  void *made;
  struct worker_fixture *f;
  uint32_t n_lost = 0;
  setup_devices(&made);
  f = made;
  spoiled_watch = first_gradient(f);
  fake_devices.on_value = make_large;
  backend.memory = n_devices > 0 ? &fake_memory : NULL;
  if (n_devices < 0)
    backend.run = run_on_host;
  f->servers[0].parks_pulls = true;
  load_on(f, &backend, n_devices > 0 ? n_devices : 2);
  show(f, 1, MICROBATCHES);
  fixture_wait(f, are_all_alone);
  fake_server_reach(&f->servers[0], 1); /* it has added them */
  fixture_wait(f, is_refused_or_trained);
  assert_string_equal(f->refusal, "");
  for (uint32_t b = 0; b < f->model->n_param_blocks; b++) {
    assert_int_equal(count_level(f, b, 0), MICROBATCHES);
    n_lost += count_level(f, b, 1) == 0;
    assert_in_range(count_level(f, b, 1), 0, 1);
  }
  assert_int_equal(n_lost, 1);
  for (uint64_t step = 1; step < STEPS; step++)
    for (uint32_t b = 0; b < f->model->n_param_blocks; b++)
      sum_of(f, step, b);
  fixture_free(f);
}

/* Whether that of others overflows, too, is for the servers to say: they see whose part was wrong. */
static void a_sum_that_overflows_is_pushed_by_microbatch(void **state) {
  (void)state;
  for (int n_devices = -1; n_devices <= FAKE_DEVICES; n_devices++)
    overflow_on(n_devices);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_devices, worker_teardown)
  const struct CMUnitTest tests[] = {
      TEST(gradients_of_one_device_are_added_there),
      TEST(gradients_of_two_devices_are_added_on_one_of_them),
      TEST(gradients_of_a_full_device_are_added_on_the_host),
      TEST(one_of_two_devices_may_be_full),
      TEST(what_is_added_nowhere_here_is_not_kept_on_the_device),
      TEST(parts_whose_sibling_went_to_another_worker_leave_the_device),
      cmocka_unit_test(what_is_not_finite_is_refused_as_on_the_host),
      cmocka_unit_test(a_sum_that_overflows_is_pushed_by_microbatch),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
