/* A worker whose executions hang: what its heartbeats say of it, and what it can still do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/common/patience.h"
#include "tests/support/worker/fake_device.h"
#include "tests/support/worker/worker_fixture.h"
#include "worker/train/beat.h"

enum { SAMPLE_MS = 10, SAMPLES_IN_A_ROW = 20 };

/* Executions of one kind end when the gate opens; the probe always does. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool is_open, is_reached, is_for_chunks;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false, false};

static void wait_at_gate(const struct backend_run *run) {
  bool is_chunk = !run->place;
  if (!run->before_weight) /* the probe waits for none */
    return;
  pthread_mutex_lock(&gate.lock);
  while (is_chunk == gate.is_for_chunks && !gate.is_open) {
    gate.is_reached = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_cond_wait(&gate.changed, &gate.lock);
  }
  pthread_mutex_unlock(&gate.lock);
}

static void gate_wait(void) {
  pthread_mutex_lock(&gate.lock);
  while (!gate.is_reached)
    pthread_cond_wait(&gate.changed, &gate.lock);
  pthread_mutex_unlock(&gate.lock);
}

static void gate_open(void) {
  pthread_mutex_lock(&gate.lock);
  gate.is_open = true;
  pthread_cond_broadcast(&gate.changed);
  pthread_mutex_unlock(&gate.lock);
}

static struct backend_def backend;

static void load(struct worker_fixture *f, int threads, int end_ms) {
  Weir__LoadRun order = fixture_order(f, 1);
  fake_devices_init();
  backend = fake_backend();
  backend.memory = NULL;
  fake_devices.on_end = wait_at_gate;
  gate.is_open = gate.is_reached = false;
  gate.is_for_chunks = f->spec->data->eval != NULL;
  f->run = run_start(&(struct run_options){.client = f->client,
                                           .coordinator = f->channel,
                                           .backend = &backend,
                                           .data_root = {.path = "/"},
                                           .threads = threads,
                                           .question_ms = WEEK_MS,
                                           .end_ms = end_ms,
                                           .send = fixture_on_told,
                                           .user = f},
                     &order);
}

static void show(struct worker_fixture *f, uint64_t number, uint32_t microbatches, bool follows) {
  fixture_view(f,
               (struct view_of){.number = number,
                                .incarnation = 1,
                                .n_servers = 1,
                                .microbatches = microbatches,
                                .chunks = !follows,
                                .follows = follows},
               fixture_give_view);
}

static Weir__RunCounters beat(struct worker_fixture *f) {
  Weir__RunCounters counters;
  struct arena arena;
  arena_init(&arena);
  counters = *run_beat(f->run, &arena);
  assert_string_equal(counters.run, fixture_run_id());
  counters.run = NULL;
  arena_fini(&arena);
  return counters;
}

/* Looks until busy time grows, or stays, so often in a row: nobody tells. Executions that do not hang are
   over sooner; where a machine is so slow that they are not, less is seen. */
static void wait_busy(struct worker_fixture *f, bool grows) {
  double before = beat(f).busy_seconds, busy;
  int n = 0;
  for (int ms = 0; ms < patience_ms() && n < SAMPLES_IN_A_ROW; ms += SAMPLE_MS) {
    fixture_linger(SAMPLE_MS);
    busy = beat(f).busy_seconds;
    n = (busy > before) == grows ? n + 1 : 0;
    before = busy;
  }
  assert_int_equal(n, SAMPLES_IN_A_ROW);
}

static bool is_held(const struct worker_fixture *f) {
  return f->servers[0].n_parked > 0;
}

static void an_execution_that_hangs_is_busy_and_computes_nothing(void **state) {
  struct worker_fixture *f = *state;
  load(f, 1, WEEK_MS);
  show(f, 1, 1, false);
  gate_wait();
  assert_int_equal(beat(f).computed, 0);
  assert_int_equal(beat(f).incarnation, 1);
  wait_busy(f, true);
  assert_int_equal(beat(f).computed, 0);
  gate_open();
  fixture_wait(f, is_trained);
  assert_true(beat(f).computed >= 2); /* the last push leaves before its microbatch has ended */
}

static bool is_1_pushed(const struct worker_fixture *f) {
  return f->servers[0].n_parked == (int)f->model->n_blocks;
}

/* Microbatch 0 of step 1 is begun ahead, and waits for its weights. */
static void who_waits_for_weights_is_not_busy(void **state) {
  struct worker_fixture *f = *state;
  f->servers[0].held_step = 0;
  load(f, 1, WEEK_MS);
  gate_open();
  show(f, 1, 1, false);
  fixture_wait(f, is_1_pushed);
  wait_busy(f, false);
  assert_int_equal(beat(f).computed, 1);
  assert_true(beat(f).busy_seconds > 0);
}

static void weights_that_come_are_counted(void **state) {
  struct worker_fixture *f = *state;
  uint64_t version_bytes = (f->model->param_elems + f->model->row_elems) * sizeof(float);
  load(f, 1, WEEK_MS);
  gate_open();
  show(f, 1, MICROBATCHES, false);
  fixture_wait(f, is_trained);
  for (int ms = 0; ms < patience_ms() && beat(f).received_bytes < (STEPS + 1) * version_bytes; ms += 10)
    fixture_linger(10);
  assert_int_equal(beat(f).received_bytes, (STEPS + 1) * version_bytes);
}

/* Others have done what it owed: the servers go on, and it does not. */
static void who_hangs_in_a_chunk_of_a_version_that_is_over_counts_as_busy(void **state) {
  struct worker_fixture *f = *state;
  load(f, 2, WEEK_MS);
  show(f, 1, MICROBATCHES, false);
  gate_wait();
  wait_busy(f, true);
  gate_open();
  fixture_wait(f, is_trained);
}

/* The first execution of microbatch 1 hangs before it has delivered anything. */
static void hang_at_1(const struct backend_run *run, int watch, float *data) {
  bool is_first;
  (void)watch, (void)data;
  if (!run->weights || run->context.microbatch != 1)
    return;
  pthread_mutex_lock(&gate.lock);
  is_first = !gate.is_reached;
  gate.is_reached = true;
  pthread_cond_broadcast(&gate.changed);
  while (is_first && !gate.is_open)
    pthread_cond_wait(&gate.changed, &gate.lock);
  pthread_mutex_unlock(&gate.lock);
}

/* Blocks of parameters that were pushed of both microbatches alone, at step 0. */
static bool are_both_alone(const struct worker_fixture *f) {
  int n = 0;
  for (int i = 0; i < f->n_pushes; i++)
    n += f->pushes[i].step == 0 && f->pushes[i].level == 0 && f->pushes[i].block < f->model->n_param_blocks;
  return n == 2 * (int)f->model->n_param_blocks;
}

static bool is_row_0_pushed(const struct worker_fixture *f) {
  return f->n_pushes > 0;
}

/* As backends do that have values in host memory anyway. */
static int run_unplaced(struct backend_program *program, const struct backend_run *run, struct err *err) {
  struct backend_run own = *run;
  own.place = NULL;
  own.after_values = NULL;
  return fake_run(program, &own, err);
}

/* Microbatch 0 is done, and waits for its sibling, in vain: only what is pushed alone helps. */
static void push_what_is_held(struct worker_fixture *f, bool is_placed) {
  Weir__Reissue order = WEIR__REISSUE__INIT;
  Weir__Range range = WEIR__RANGE__INIT, *ranges[] = {&range};
  f->servers[0].parks_pulls = true;
  load(f, 2, WEEK_MS);
  if (!is_placed)
    backend.run = run_unplaced; /* before anything is executed but the probe */
  fake_devices.on_end = NULL;
  fake_devices.on_value = hang_at_1;
  show(f, 1, MICROBATCHES, false);
  gate_wait();
  fixture_wait(f, is_row_0_pushed);
  assert_int_equal(f->n_pushes, f->model->n_blocks - f->model->n_param_blocks);
  range.end = MICROBATCHES;
  order.run = (char *)fixture_run_id();
  order.incarnation = 1;
  order.microbatches = ranges;
  order.n_microbatches = 1;
  run_reissue(f->run, &order);
  fixture_wait(f, are_both_alone);
  fake_devices.on_value = NULL;
}

static void what_is_held_for_an_execution_that_hangs_is_pushed_by_extra_tasks(void **state) {
  push_what_is_held(*state, true);
}

static void so_is_what_is_held_of_values_in_host_memory(void **state) {
  push_what_is_held(*state, false);
}

static bool is_ready(const struct worker_fixture *f) {
  return f->n_ready == 1;
}

static void who_hangs_is_not_ready_before_it_comes_back(void **state) {
  struct worker_fixture *f = *state;
  f->servers[0].held_step = 0;
  load(f, 1, WEEK_MS);
  show(f, 1, 1, false);
  gate_wait();
  fixture_wait(f, is_held);
  show(f, 2, 0, true);
  fixture_linger(200);
  assert_int_equal(f->n_ready, 0);
  gate_open();
  fixture_wait(f, is_ready);
  fake_server_release(&f->servers[0], ERR_OK);
}

static void a_run_that_hangs_is_not_waited_for_without_end(void **state) {
  struct worker_fixture *f = *state;
  load(f, 1, 1);
  show(f, 1, 1, false);
  gate_wait();
  patience_begin();
  assert_false(run_stop(f->run));
  patience_end();
  gate_open();
  while (!run_stop(f->run)) /* its end takes longer than a millisecond, perhaps */
    fixture_linger(1);
  f->run = NULL;
}

/* Loading takes as long as it takes: nothing is executed. */
static void a_run_that_loads_is_waited_for(void **state) {
  struct worker_fixture *f = *state;
  load(f, 1, 1);
  assert_true(run_stop(f->run));
  f->run = NULL;
}

static int teardown(void **state) {
  gate_open();
  return worker_teardown(state);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, worker_setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(an_execution_that_hangs_is_busy_and_computes_nothing),
      TEST(who_waits_for_weights_is_not_busy),
      TEST(weights_that_come_are_counted),
      cmocka_unit_test_setup_teardown(who_hangs_in_a_chunk_of_a_version_that_is_over_counts_as_busy,
                                      worker_setup_evaluating, teardown),
      TEST(what_is_held_for_an_execution_that_hangs_is_pushed_by_extra_tasks),
      TEST(so_is_what_is_held_of_values_in_host_memory),
      TEST(who_hangs_is_not_ready_before_it_comes_back),
      TEST(a_run_that_hangs_is_not_waited_for_without_end),
      TEST(a_run_that_loads_is_waited_for),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
