/* A worker's runs beside each other: each of them has servers of its own, and what one of them does is
   nothing to the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "common/base/log.h"
#include "tests/support/common/patience.h"
#include "tests/support/worker/fake_device.h"
#include "tests/support/worker/worker_fixture.h"
#include "worker/hosting.h"

enum { FIXTURES = HOSTED_MAX + 1 };

/* Executions that begin while the gate is closed wait there, the probe never does; and programs that are
   prepared while it is shut. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool is_closed, is_shut;
  int n_preparing;
  int n_running, most; /* executions; `most` at a time */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct backend_def gated; /* computes as `ref` does */

/* Each fixture is a run. */
struct runs {
  struct worker_fixture *f[FIXTURES];
  uint64_t view[FIXTURES]; /* the newest */
  struct device_choice device;
  struct hosting *hosting;
};

static int gated_run(struct backend_program *program, const struct backend_run *run, struct err *err) {
  bool is_probe = !run->before_weight;
  int code;
  pthread_mutex_lock(&gate.lock);
  gate.n_running += !is_probe;
  gate.most = gate.n_running > gate.most ? gate.n_running : gate.most;
  pthread_cond_broadcast(&gate.changed);
  while (gate.is_closed && !is_probe)
    pthread_cond_wait(&gate.changed, &gate.lock);
  pthread_mutex_unlock(&gate.lock);
  code = backend_find("ref")->run(program, run, err);
  pthread_mutex_lock(&gate.lock);
  gate.n_running -= !is_probe;
  pthread_cond_broadcast(&gate.changed);
  pthread_mutex_unlock(&gate.lock);
  return code;
}

static int gated_prepare(const struct backend_request *request, struct backend_program **out,
                         struct err *err) {
  pthread_mutex_lock(&gate.lock);
  gate.n_preparing++;
  pthread_cond_broadcast(&gate.changed);
  while (gate.is_shut)
    pthread_cond_wait(&gate.changed, &gate.lock);
  gate.n_preparing--;
  pthread_mutex_unlock(&gate.lock);
  return backend_find("ref")->prepare(request, out, err);
}

/* which: is_closed or is_shut. */
static void gate_close(bool *which) {
  pthread_mutex_lock(&gate.lock);
  *which = true;
  gate.most = 0;
  pthread_mutex_unlock(&gate.lock);
}

static void gate_open(void) {
  pthread_mutex_lock(&gate.lock);
  gate.is_closed = gate.is_shut = false;
  pthread_cond_broadcast(&gate.changed);
  pthread_mutex_unlock(&gate.lock);
}

static int gate_most(void) {
  int most;
  pthread_mutex_lock(&gate.lock);
  most = gate.most;
  pthread_mutex_unlock(&gate.lock);
  return most;
}

static void gate_wait(int n_running, int n_preparing) {
  patience_begin();
  pthread_mutex_lock(&gate.lock);
  while (gate.n_running < n_running || gate.n_preparing < n_preparing)
    pthread_cond_wait(&gate.changed, &gate.lock);
  pthread_mutex_unlock(&gate.lock);
  patience_end();
}

/* Until none has been running; `most` counts anew. */
static void gate_wait_empty(void) {
  patience_begin();
  pthread_mutex_lock(&gate.lock);
  while (gate.n_running > 0)
    pthread_cond_wait(&gate.changed, &gate.lock);
  gate.most = 0;
  pthread_mutex_unlock(&gate.lock);
  patience_end();
}

static char *name_of(int i) { /* fixture i's: its number is the last character */
  static char *const names[] = {"run-0", "run-1", "run-2", "run-3", "run-4"};
  return names[i];
}

static void on_send(void *user, const Weir__MemberMessage *message) {
  struct runs *r = user;
  const char *run = message->body_case == WEIR__MEMBER_MESSAGE__BODY_LOADED    ? message->loaded->run
                    : message->body_case == WEIR__MEMBER_MESSAGE__BODY_REFUSED ? message->refused->run
                                                                               : NULL;
  if (run)
    fixture_on_told(r->f[run[strlen(run) - 1] - '0'], message);
}

static void host(struct runs *r, const struct backend_def *backend, int executors, uint64_t memory_bytes) {
  r->device = (struct device_choice){.backend = backend, .name = "cpu"};
  r->hosting = hosting_new(&(struct hosting_options){.client = r->f[0]->client,
                                                     .device = &r->device,
                                                     .data_root = {.path = "/"},
                                                     .executors = executors,
                                                     .readers = 1,
                                                     .memory_bytes = memory_bytes,
                                                     .send = on_send,
                                                     .user = r});
}

static int start(void **state) {
  struct runs *r = mem_new(sizeof *r);
  for (int i = 0; i < FIXTURES; i++)
    r->f[i] = fixture_new(false);
  gated = *backend_find("ref");
  gated.run = gated_run;
  gated.prepare = gated_prepare;
  gate.most = 0;
  host(r, &gated, 2, 0);
  *state = r;
  return 0;
}

static int stop(void **state) {
  struct runs *r = *state;
  gate_open();
  hosting_end(r->hosting);
  hosting_free(r->hosting);
  for (int i = 0; i < FIXTURES; i++)
    fixture_free(r->f[i]);
  free(r);
  return 0;
}

static bool is_answered(const struct worker_fixture *f) {
  return f->n_loaded > 0 || f->is_refused;
}

/* Orders run i, and waits for the answer. */
static void load(struct runs *r, int i) {
  struct worker_fixture *f = r->f[i];
  Weir__LoadRun order = fixture_order(f, 1);
  order.run = name_of(i);
  pthread_mutex_lock(&f->lock);
  f->n_loaded = 0;
  f->is_refused = false;
  pthread_mutex_unlock(&f->lock);
  hosting_load(r->hosting, &order, f->channel);
  fixture_wait(f, is_answered);
}

static void unload(struct runs *r, int i, bool may_return) {
  Weir__UnloadRun unload = WEIR__UNLOAD_RUN__INIT;
  unload.run = name_of(i);
  unload.reason = (char *)"the run goes on without it";
  unload.may_return = may_return;
  hosting_unload(r->hosting, &unload);
}

static struct hosting *shown; /* by give: fixture_view's callback has no argument for it */
static char *shown_run;

static void give(struct worker_fixture *f, const Weir__View *view, const char *worker) {
  Weir__View named = *view;
  (void)f;
  named.run = shown_run;
  hosting_view(shown, &named, worker);
}

/* Shows run i its next view, by which it computes all microbatches. */
static void show(struct runs *r, int i, uint32_t executors, uint64_t hold) {
  shown = r->hosting;
  shown_run = name_of(i);
  fixture_view(r->f[i],
               (struct view_of){.number = ++r->view[i],
                                .incarnation = 1,
                                .n_servers = 1,
                                .microbatches = MICROBATCHES,
                                .executors = executors,
                                .hold = hold},
               give);
}

static bool is_held(const struct worker_fixture *f) {
  return f->servers[0].n_parked == (int)f->model->n_blocks;
}

static bool is_given_up(const struct worker_fixture *f) {
  return f->servers[0].n_gone == (int)f->model->n_blocks;
}

/* The run is at step 1, of which its server holds every answer back. */
static void run_to_step_1(struct runs *r, int i) {
  r->f[i]->servers[0].held_step = 1;
  load(r, i);
  show(r, i, 0, 0);
  fixture_wait(r->f[i], is_held);
}

static void finish(struct runs *r, int i) {
  fake_server_release(&r->f[i]->servers[0], ERR_OK);
  fixture_wait(r->f[i], is_all_pushed);
  assert_int_equal(r->f[i]->n_pulls, r->f[i]->model->n_blocks); /* it joined once */
}

/* Which runs Hello names, in its order; those that rest in brackets. */
static const char *hello_of(struct runs *r) {
  static char text[256];
  Weir__Hello hello = WEIR__HELLO__INIT;
  struct arena arena;
  arena_init(&arena);
  hosting_hello(r->hosting, &hello, &arena);
  *text = 0;
  for (size_t i = 0; i < hello.n_runs; i++) {
    size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, hello.runs[i]->rests ? "[%s] " : "%s ", hello.runs[i]->run);
  }
  arena_fini(&arena);
  return text;
}

static void two_runs_are_computed_beside_each_other(void **state) {
  struct runs *r = *state;
  Weir__Heartbeat heartbeat = WEIR__HEARTBEAT__INIT;
  struct arena arena;
  run_to_step_1(r, 0);
  run_to_step_1(r, 1);
  assert_string_equal(hello_of(r), "run-0 run-1 ");
  arena_init(&arena);
  hosting_beat(r->hosting, &heartbeat, &arena);
  assert_int_equal(heartbeat.n_runs, 2);
  for (int i = 0; i < 2; i++) {
    assert_string_equal(heartbeat.runs[i]->run, name_of(i));
    assert_true(heartbeat.runs[i]->computed >= MICROBATCHES);
    assert_true(heartbeat.runs[i]->received_bytes > 0);
  }
  arena_fini(&arena);
  finish(r, 1);
  finish(r, 0);
}

static void one_run_goes_on_while_another_rests_and_comes_back(void **state) {
  struct runs *r = *state;
  run_to_step_1(r, 0);
  run_to_step_1(r, 1);
  unload(r, 0, true);
  fixture_wait(r->f[0], is_given_up);
  assert_string_equal(hello_of(r), "run-1 [run-0] ");
  load(r, 0);
  assert_int_equal(r->f[0]->n_fetched, 1);
  assert_string_equal(hello_of(r), "run-1 run-0 ");
  finish(r, 1);
  fake_server_release(&r->f[0]->servers[0], ERR_OK);
  show(r, 0, 0, 0);
  fixture_wait(r->f[0], is_trained);
}

/* It ends when its programs are there, not before. */
static void a_run_that_ends_while_it_loads_keeps_no_other_from_its_orders(void **state) {
  struct runs *r = *state;
  Weir__LoadRun order = fixture_order(r->f[0], 1);
  r->f[1]->servers[0].held_step = 1;
  load(r, 1);
  show(r, 1, 0, 1);
  gate_close(&gate.is_shut);
  order.run = name_of(0);
  hosting_load(r->hosting, &order, r->f[0]->channel);
  gate_wait(0, 1);
  unload(r, 0, false);
  assert_string_equal(hello_of(r), "run-1 ");
  show(r, 1, 0, 0);
  fixture_wait(r->f[1], is_held);
  finish(r, 1);
  gate_open();
}

static void one_run_becomes_another_while_a_third_is_computed(void **state) {
  struct runs *r = *state;
  Weir__LoadRun order = fixture_order(r->f[0], 1);
  run_to_step_1(r, 1);
  load(r, 0);
  unload(r, 0, false);
  order.run = name_of(2);
  hosting_load(r->hosting, &order, r->f[0]->channel);
  fixture_wait(r->f[2], is_answered);
  assert_int_equal(r->f[0]->n_fetched + r->f[2]->n_fetched, 1);
  assert_string_equal(hello_of(r), "run-1 run-2 ");
  finish(r, 1);
}

static void one_run_too_many_is_refused(void **state) {
  struct runs *r = *state;
  for (int i = 0; i < HOSTED_MAX; i++) {
    load(r, i);
    assert_false(r->f[i]->is_refused);
  }
  load(r, HOSTED_MAX);
  assert_true(r->f[HOSTED_MAX]->is_refused);
  assert_string_equal(r->f[HOSTED_MAX]->refusal,
                      "this worker computes 4 runs already, and no more at a time");
  assert_false(r->f[HOSTED_MAX]->no_memory_beside || r->f[HOSTED_MAX]->is_bad_input);
  unload(r, 2, true);
  load(r, HOSTED_MAX);
  assert_false(r->f[HOSTED_MAX]->is_refused);
  assert_string_equal(hello_of(r), "run-0 run-1 run-3 run-4 [run-2] ");
}

static void a_worker_with_gpus_computes_one_run(void **state) {
  struct runs *r = *state;
  r->device.n = 2; /* as many as executors */
  r->device.memory_bytes[0] = r->device.memory_bytes[1] = UINT64_C(1) << 40;
  load(r, 0);
  load(r, 1);
  assert_true(r->f[1]->is_refused);
  assert_non_null(strstr(r->f[1]->refusal, "computes 1 run already on its GPUs"));
  unload(r, 0, true);
  load(r, 1);
  assert_false(r->f[1]->is_refused);
  assert_string_equal(hello_of(r), "run-1 "); /* none rests */
}

static void all_runs_are_muted_and_told_again(void **state) {
  struct runs *r = *state;
  run_to_step_1(r, 0);
  run_to_step_1(r, 1);
  hosting_mute(r->hosting);
  assert_string_equal(hello_of(r), "run-0 run-1 ");
  load(r, 1);
  load(r, 0);
  assert_int_equal(r->f[0]->n_fetched + r->f[1]->n_fetched, 2);
  finish(r, 0);
  finish(r, 1);
}

static bool is_failed(struct runs *r) {
  return strcmp(hello_of(r), "") == 0;
}

/* No order about them comes from anybody: they would take places for good. */
static void runs_that_failed_unheard_take_no_place(void **state) {
  struct runs *r = *state;
  for (int i = HOSTED_MAX - 1; i <= HOSTED_MAX; i++) {
    Weir__LoadRun order = fixture_order(r->f[i], 1);
    order.run = name_of(i);
    r->f[i]->is_fetch_held = r->f[i]->faults.model_is_another = true;
    hosting_load(r->hosting, &order, r->f[i]->channel);
  }
  hosting_mute(r->hosting);
  for (int i = HOSTED_MAX - 1; i <= HOSTED_MAX; i++)
    fixture_release_model(r->f[i]);
  for (int ms = 0; ms < patience_ms() && !is_failed(r); ms += 10)
    fixture_linger(10);
  assert_true(is_failed(r));
  assert_false(r->f[HOSTED_MAX - 1]->is_refused || r->f[HOSTED_MAX]->is_refused);
  pthread_mutex_lock(&r->f[HOSTED_MAX - 1]->lock);
  r->f[HOSTED_MAX - 1]->faults.model_is_another = false;
  pthread_mutex_unlock(&r->f[HOSTED_MAX - 1]->lock);
  for (int i = 0; i < HOSTED_MAX; i++) {
    load(r, i);
    assert_false(r->f[i]->is_refused);
  }
}

/* With as little memory as one run's program takes at least: there is not twice as much. */
static void host_for_one(struct runs *r, const struct backend_def *backend) {
  for (uint64_t bytes = 1024; r->f[0]->n_loaded == 0; bytes *= 2) {
    hosting_end(r->hosting);
    hosting_free(r->hosting);
    host(r, backend, 1, bytes);
    load(r, 0);
    assert_false(r->f[0]->no_memory_beside);
  }
}

/* Both runs' programs adapt to the memory that there is. */
static void expect_room_for_one(struct runs *r) {
  host_for_one(r, backend_find("cpu"));
  load(r, 1);
  assert_true(r->f[1]->is_refused && r->f[1]->no_memory_beside && !r->f[1]->is_bad_input);
  unload(r, 1, false);
  unload(r, 0, true);
  load(r, 1);
  assert_false(r->f[1]->is_refused);
  assert_string_equal(hello_of(r), "run-1 "); /* what rested was forgotten */
}

static void stages_that_find_no_memory_beside_another_run_are_refused_for_now(void **state) {
  struct runs *r = *state;
  for (int i = 0; i < 2; i++) {
    r->f[i]->spec->workers->has_stages = true;
    r->f[i]->spec->workers->stages = SPEC_STAGES_AUTO;
  }
  expect_room_for_one(r);
}

static void activations_that_find_no_memory_beside_another_run_are_refused_for_now(void **state) {
  struct runs *r = *state;
  char *before[] = {r->f[0]->spec->workers->recompute, r->f[1]->spec->workers->recompute};
  for (int i = 0; i < 2; i++)
    r->f[i]->spec->workers->recompute = (char *)"auto";
  expect_room_for_one(r);
  for (int i = 0; i < 2; i++)
    r->f[i]->spec->workers->recompute = before[i];
}

static bool is_at_version_1(const struct worker_fixture *f) {
  for (uint32_t b = 0; b < f->model->n_blocks; b++)
    if (f->servers[0].version[b] < 1)
      return false;
  return true;
}

/* As a run that all executors compute has pushed. */
static void expect_same_pushes(const struct worker_fixture *f, const struct worker_fixture *reference) {
  for (int i = 0; i < reference->n_pushes; i++) {
    const struct fake_push *a = &reference->pushes[i];
    bool is_found = false;
    for (int j = 0; j < f->n_pushes && !is_found; j++) {
      const struct fake_push *b = &f->pushes[j];
      is_found = a->step == b->step && a->block == b->block && a->first == b->first && a->level == b->level &&
                 a->digest == b->digest;
    }
    assert_true(is_found);
  }
}

static void no_bit_depends_on_how_many_executors_may_compute(void **state) {
  struct runs *r = *state;
  load(r, 0);
  show(r, 0, 0, 0);
  fixture_wait(r->f[0], is_all_pushed);
  load(r, 1);
  gate_close(&gate.is_closed);
  show(r, 1, 1, 1);
  gate_wait(1, 0);
  fixture_linger(50);
  assert_int_equal(gate_most(), 1);
  show(r, 1, 2, 1); /* in mid-step: the other one begins */
  gate_wait(2, 0);
  show(r, 1, 1, 1); /* again: it ends its task */
  gate_open();
  gate_wait_empty();
  fixture_wait(r->f[1], is_at_version_1);
  show(r, 1, 1, 0);
  fixture_wait(r->f[1], is_all_pushed);
  assert_int_equal(gate_most(), 1);
  expect_same_pushes(r->f[1], r->f[0]);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
  const struct CMUnitTest tests[] = {
      TEST(two_runs_are_computed_beside_each_other),
      TEST(one_run_goes_on_while_another_rests_and_comes_back),
      TEST(a_run_that_ends_while_it_loads_keeps_no_other_from_its_orders),
      TEST(one_run_becomes_another_while_a_third_is_computed),
      TEST(one_run_too_many_is_refused),
      TEST(a_worker_with_gpus_computes_one_run),
      TEST(all_runs_are_muted_and_told_again),
      TEST(runs_that_failed_unheard_take_no_place),
      TEST(stages_that_find_no_memory_beside_another_run_are_refused_for_now),
      TEST(activations_that_find_no_memory_beside_another_run_are_refused_for_now),
      TEST(no_bit_depends_on_how_many_executors_may_compute),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
