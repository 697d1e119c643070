/* Two workers in a group whose collective carries from device to device, on devices that are none: each reads
   a version on its device once it has the whole group's bytes there, and in host memory where there is no
   such group. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/common/patience.h"
#include "tests/support/worker/fake_device.h"
#include "tests/support/worker/worker_fixture.h"
#include "worker/backend/plugin.h"

enum { GROUP = 5 };

/* What was seen; atomic. */
static struct {
  int broadcasts, wrong_places; /* of weights; wrong: from or to the wrong kind of memory */
  int reads[2], wrong_reads; /* of a parameter by an execution, from host memory and from a device; wrong: */
                             /* its bytes were not there */
} seen;

static void count(int *n) {
  __atomic_add_fetch(n, 1, __ATOMIC_RELAXED);
}

static bool is_on_device(const float *memory) {
  return fake_device_of(memory) >= 0;
}

static int start(struct collective *collective, const struct collective_call *call,
                 struct collective_work **work, struct err *err) {
  struct collective_call reached = *call;
  if (call->kind == COLLECTIVE_BROADCAST) {
    count(&seen.broadcasts);
    if (!is_on_device(call->out) || (call->in && is_on_device(call->in)))
      count(&seen.wrong_places);
  }
  reached.in = fake_reach(call->in);
  reached.out = fake_reach(call->out);
  return collective_find("shm")->start(collective, &reached, work, err);
}

/* What carries, in the place of weir-cuda.so. */
const struct plugin *plugin_load(struct err *err) {
  static struct collective_def carrier;
  static struct plugin plugin = {.collective = &carrier};
  carrier = *collective_find("shm");
  (void)err;
  carrier.name = "nccl";
  carrier.is_on_device = true;
  carrier.start = start;
  return &plugin;
}

/* Of the test that runs; the first worker's run is the fixture's. */
static struct worker_fixture *fixture;
static struct run *second_run;

/* An execution, and where its weights can be touched. */
struct reading {
  const struct backend_run *run;
  const float **weights;
};

/* The servers give the initial weights as any version. */
static void before_weight(void *user, int value) {
  const struct reading *reading = user;
  const struct backend_run *run = reading->run;
  const struct value *weight = &fixture->model->train->values[value];
  run->before_weight(run->user, value);
  count(&seen.reads[is_on_device(run->weights[value])]);
  /* Asked last: an execution may be dropped, and its weights with it, while they are compared. */
  if (memcmp(reading->weights[value], weight->data, (size_t)shape_elems(&weight->shape) * sizeof(float)) !=
          0 &&
      !run->is_cancelled(run->user))
    count(&seen.wrong_reads);
}

static bool is_cancelled(void *user) {
  const struct backend_run *run = ((struct reading *)user)->run;
  return run->is_cancelled(run->user);
}

static void on_value(void *user, int watch, const float *data) {
  const struct backend_run *run = ((struct reading *)user)->run;
  run->on_value(run->user, watch, data);
}

static void placed(void *user, int watch, bool is_finite) {
  const struct backend_run *run = ((struct reading *)user)->run;
  run->placed(run->user, watch, is_finite);
}

static int place(void *user, int watch, struct backend_piece *pieces, int max) {
  const struct backend_run *run = ((struct reading *)user)->run;
  return run->place ? run->place(run->user, watch, pieces, max) : 0;
}

static void after_values(void *user) {
  const struct backend_run *run = ((struct reading *)user)->run;
  if (run->after_values)
    run->after_values(run->user);
}

/* Weights are looked at before they are read, but for those of the probe, which nobody sends. */
static int backend_run(struct backend_program *program, const struct backend_run *run, struct err *err) {
  int n = fixture->model->train->n_values;
  struct reading reading = {run, mem_new((size_t)n * sizeof(float *))};
  struct backend_run looked_at = *run;
  bool is_sent = run->weights && run->before_weight;
  for (int v = 0; v < n && is_sent; v++)
    reading.weights[v] = fake_reach(run->weights[v]);
  if (is_sent) {
    looked_at.weights = reading.weights;
    looked_at.before_weight = before_weight;
    looked_at.is_cancelled = is_cancelled;
    looked_at.on_value = on_value;
    looked_at.place = place;
    looked_at.placed = placed;
    looked_at.after_values = after_values;
    looked_at.user = &reading;
  }
  fake_run(program, &looked_at, err);
  free(reading.weights);
  return err->code;
}

static struct run *start_run(struct worker_fixture *f) {
  static struct backend_def backend;
  static const int devices[] = {1};
  static const uint64_t device_bytes[] = {UINT64_C(1) << 30};
  struct run_options options = {.client = f->client,
                                .coordinator = f->channel,
                                .backend = &backend,
                                .data_root = {.path = "/"},
                                .threads = 1,
                                .devices = devices,
                                .n_devices = 1,
                                .device_bytes = device_bytes,
                                .question_ms = WEEK_MS,
                                .silent_ms = WEEK_MS,
                                .meeting_ms = f->meeting_ms,
                                .send = fixture_on_told,
                                .user = f};
  Weir__LoadRun load = fixture_order(f, 1);
  backend = fake_backend();
  backend.run = backend_run;
  return run_start(&options, &load);
}

/* A view with one microbatch for each, or with all of them for the first. */
static void show(struct worker_fixture *f, struct run *const *runs, uint64_t number, uint32_t group,
                 size_t workers) {
  fixture_give_pair(f, (struct pair_view){.number = number,
                                          .group = group,
                                          .names = {"worker-1", "worker-2"},
                                          .runs = {runs[0], runs[1]},
                                          .alone = workers == 1 ? 0 : -1});
}

static void begin(struct worker_fixture *f, struct run **runs) {
  memset(&seen, 0, sizeof seen);
  fake_devices_init();
  f->run = runs[0] = start_run(f);
  second_run = runs[1] = start_run(f);
}

static void stop_second_run(void) {
  run_stop(second_run);
  second_run = NULL;
}

static int setup_nccl(void **state) {
  fixture = fixture_new(false);
  fixture->spec->train->collective = mem_strdup("nccl");
  *state = fixture;
  return 0;
}

static int teardown_devices(void **state) {
  stop_second_run(); /* where a test failed before it did */
  fixture_free(*state);
  assert_int_equal(fake_devices.n_held, 0);
  return 0;
}

/* One broadcast for each version and member, as all blocks adjoin and are one bucket; of 3 versions that are
   trained on the first came to host memory. */
static void a_group_reads_on_devices_what_it_spreads(void **state) {
  struct worker_fixture *f = *state;
  struct run *runs[2];
  begin(f, runs);
  show(f, runs, 1, GROUP, 2);
  fixture_wait(f, is_trained);
  assert_int_equal(f->n_groups_failed,
                   0); /* now: the first may still be giving the last version to the other */
  stop_second_run();
  assert_int_equal(seen.wrong_places, 0);
  assert_int_equal(seen.wrong_reads, 0);
  assert_in_range(seen.broadcasts, 2 * (STEPS - 1), 2 * STEPS);
  assert_int_equal(seen.reads[false], 2 * f->model->n_params);
  assert_int_equal(seen.reads[true], 2 * f->model->n_params * (STEPS - 1));
}

/* Pushes of the step have come, whose answers are not given. */
static bool is_step_held(const struct worker_fixture *f) {
  return f->servers[0].n_parked > 0;
}

static void a_worker_whose_group_is_no_more_reads_in_host_memory_again(void **state) {
  struct worker_fixture *f = *state;
  struct run *runs[2];
  int on_device;
  begin(f, runs);
  f->servers[0].held_step = 1;
  show(f, runs, 1, GROUP, 2);
  fixture_wait(f, is_step_held);
  stop_second_run();
  on_device = seen.reads[true];
  assert_true(on_device > 0);
  show(f, runs, 2, 0, 1);
  fake_server_release(&f->servers[0], ERR_OK);
  fixture_wait(f, is_trained);
  assert_int_equal(seen.wrong_places, 0);
  assert_int_equal(seen.wrong_reads, 0);
  assert_true(seen.reads[false] > 2 * f->model->n_params);
  assert_false(f->is_refused);
}

static bool has_group_failed(const struct worker_fixture *f) {
  return f->n_groups_failed > 0;
}

static void a_device_without_room_for_the_versions_ends_the_group_not_the_run(void **state) {
  struct worker_fixture *f = *state;
  struct run *runs[2];
  begin(f, runs);
  fake_devices.limit[1] = f->model->param_elems * sizeof(float);
  show(f, runs, 1, GROUP, 2);
  fixture_wait(f, has_group_failed);
  stop_second_run();
  show(f, runs, 2, 0, 1);
  fixture_wait(f, is_trained);
  assert_int_equal(seen.wrong_reads, 0);
  assert_int_equal(seen.reads[true], 0);
  assert_false(f->is_refused);
}

static int large_watch;

/* A gradient that is finite, in step 0; the sum of the two members' overflows. */
static void make_large(const struct backend_run *run, int watch, float *data) {
  if (run->weights && watch == large_watch && run->context.step == 0)
    data[0] = 3e38f;
}

/* Pushes of parameters' blocks in step 0, of microbatches alone or of both. */
static int count_level(const struct worker_fixture *f, uint32_t level) {
  int n = 0;
  for (int i = 0; i < f->n_pushes; i++)
    n += f->pushes[i].step == 0 && f->pushes[i].block < f->model->n_param_blocks &&
         f->pushes[i].level == level;
  return n;
}

static bool are_all_alone(const struct worker_fixture *f) {
  return count_level(f, 0) == MICROBATCHES * (int)f->model->n_param_blocks;
}

static void a_sum_that_overflows_on_a_device_is_pushed_by_microbatch(void **state) {
  struct worker_fixture *f = *state;
  const struct loss_values *loss = &f->model->train_loss;
  struct run *runs[2];
  large_watch = (loss->loss_sum >= 0) + (loss->correct >= 0) + (loss->scored >= 0) + (loss->denominator >= 0);
  f->servers[0].parks_pulls = true;
  begin(f, runs);
  fake_devices.on_value = make_large;
  show(f, runs, 1, GROUP, 2);
  fixture_wait(f, are_all_alone);
  fake_server_reach(&f->servers[0], 1); /* it has added them */
  fixture_wait(f, is_trained);
  fake_devices.on_value = NULL;
  assert_int_equal(count_level(f, 1), f->model->n_param_blocks - 1);
  assert_int_equal(f->n_groups_failed, 0);
  assert_false(f->is_refused);
  stop_second_run();
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_group_reads_on_devices_what_it_spreads, setup_nccl, teardown_devices),
      cmocka_unit_test_setup_teardown(a_worker_whose_group_is_no_more_reads_in_host_memory_again, setup_nccl,
                                      teardown_devices),
      cmocka_unit_test_setup_teardown(a_device_without_room_for_the_versions_ends_the_group_not_the_run,
                                      setup_nccl, teardown_devices),
      cmocka_unit_test_setup_teardown(a_sum_that_overflows_on_a_device_is_pushed_by_microbatch, setup_nccl,
                                      teardown_devices),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
