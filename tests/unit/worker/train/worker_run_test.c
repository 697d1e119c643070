/* A worker's part in a run, against a coordinator and a server that fail in every way that a network or a
   stranger may bring about. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/worker/worker_fixture.h"

/* Loads the run and gives its only worker all microbatches. */
static void begin(struct worker_fixture *f, struct faults faults, uint64_t plan_samples) {
  f->faults = faults;
  fixture_load(f, backend_find("ref"), 2);
  fixture_view(f,
               (struct view_of){.number = 1,
                                .incarnation = 1,
                                .n_servers = 1,
                                .microbatches = MICROBATCHES,
                                .plan_samples = plan_samples},
               fixture_give_view);
}

static bool is_trained_or_refused(const struct worker_fixture *f) {
  return is_trained(f) || f->is_refused;
}

static void expect_trained(struct worker_fixture *f, struct faults faults) {
  begin(f, faults, SAMPLES);
  fixture_wait(f, is_trained_or_refused);
  if (f->is_refused)
    fail_msg("refused: %s", f->refusal);
  assert_true(f->n_loaded == 1);
}

static void expect_refused(struct worker_fixture *f, struct faults faults, const char *why) {
  begin(f, faults, SAMPLES);
  fixture_wait(f, is_trained_or_refused);
  assert_true(f->is_refused);
  if (!strstr(f->refusal, why))
    fail_msg("'%s' is not in '%s'", why, f->refusal);
  assert_false(f->is_bad_input);
}

static void every_block_is_pushed_once_a_step(void **state) {
  struct worker_fixture *f = *state;
  expect_trained(f, (struct faults){0});
  assert_int_equal(f->n_waits, STEPS * f->model->n_blocks);
}

static void what_fails_for_a_while_is_tried_again(void **state) {
  struct worker_fixture *f = *state;
  expect_trained(f, (struct faults){.models_cut = 2,
                                    .versions_unavailable = 2,
                                    .pulls_unavailable = 3,
                                    .pushes_unavailable = 5,
                                    .pushes_busy = 4});
  assert_int_equal(f->n_waits, STEPS * f->model->n_blocks);
}

static void a_worker_that_is_behind_asks_where_the_servers_are(void **state) {
  expect_trained(*state, (struct faults){.pushes_dropped = 1});
}

static void a_worker_is_outrun_as_often_as_it_takes(void **state) {
  expect_trained(*state, (struct faults){.outrun = 25});
}

static void a_worker_goes_on_asking_servers_that_do_not_know_the_run(void **state) {
  expect_trained(*state, (struct faults){.versions_unknown = 2});
}

/* Its certificate has another name, perhaps: a view brings a ticket for that. */
static void a_worker_whose_ticket_is_refused_begins_again(void **state) {
  expect_trained(*state, (struct faults){.pushes_denied = 2});
}

static void another_model_than_announced_is_refused(void **state) {
  expect_refused(*state, (struct faults){.model_is_another = true}, "the model came with sha256");
}

static void a_block_of_the_wrong_size_is_refused(void **state) {
  expect_refused(*state, (struct faults){.blocks_short = 1}, "answered block");
}

static void a_block_of_the_wrong_version_is_refused(void **state) {
  expect_refused(*state, (struct faults){.blocks_old = 1}, "expected 1 in");
}

static int n_taken_of_step_1(const struct worker_fixture *f) {
  int n = 0;
  for (int i = 0; i < f->n_pushes; i++)
    n += f->pushes[i].step == 1 && !f->pushes[i].is_evaluation;
  return n;
}

static bool is_step_1_pushed(const struct worker_fixture *f) {
  return n_taken_of_step_1(f) >= (int)f->model->n_blocks + 1; /* two rows of statistics */
}

/* The first server answers nothing of step 1: a call waits, and the other parts are taken without waiting. */
static void few_calls_wait_however_many_blocks_there_are(void **state) {
  struct worker_fixture *f = *state;
  f->parked_max = 1;
  f->servers[0].held_step = 1;
  f->servers[0].held_block = UINT32_MAX;
  begin(f, (struct faults){0}, SAMPLES);
  fixture_wait(f, is_step_1_pushed);
  fixture_linger(50); /* for calls too many */
  pthread_mutex_lock(&f->lock);
  assert_int_equal(f->servers[0].n_parked, 1);
  pthread_mutex_unlock(&f->lock);
  fake_server_release(&f->servers[0], ERR_OK);
  fixture_wait(f, is_trained_or_refused);
  if (f->is_refused)
    fail_msg("refused: %s", f->refusal);
  assert_in_range(f->n_waits, 1, STEPS * f->model->n_blocks - 1);
  assert_true(f->n_pulls >= (int)(2 * f->model->n_blocks - 1)); /* of version 0, and of version 2 but one */
}

/* A server without room for another call that waits answers when it has the part. */
static void a_version_that_a_server_puts_off_is_pulled(void **state) {
  struct worker_fixture *f = *state;
  expect_trained(f, (struct faults){.pushes_put_off = 5, .pulls_busy = 3});
  assert_int_equal(f->n_waits, STEPS * f->model->n_blocks);
  assert_int_equal(f->n_pulls, f->model->n_blocks + 5 + 3);
}

/* It would be no better the next time: the run must end, and say why. */
static void a_server_without_memory_ends_the_run_by_name(void **state) {
  expect_refused(*state, (struct faults){.pushes_without_memory = 1}, ": the push meets with NO_MEMORY");
}

static void a_plan_over_other_data_is_refused(void **state) {
  struct worker_fixture *f = *state;
  begin(f, (struct faults){0}, SAMPLES + 1);
  fixture_wait(f, is_trained_or_refused);
  assert_true(f->is_refused && !f->is_bad_input);
  assert_non_null(strstr(f->refusal, "this worker's data has 8 training"));
  assert_int_equal(f->n_waits, 0);
}

/* The memory of a device, for a run on it; and how often somebody was asked for more. */
struct room {
  uint64_t device_bytes;
  int n_asked, n_given; /* the second time there is none */
};

static struct room room;

static bool make_room(void *user, const struct run *run) {
  (void)user, (void)run;
  room.n_asked++;
  if (room.n_asked > room.n_given)
    return false;
  room.device_bytes = UINT64_C(1) << 40;
  return true;
}

static void load_without_room(struct worker_fixture *f) {
  static const int device = 0;
  Weir__LoadRun load = fixture_order(f, 1);
  f->run = run_start(&(struct run_options){.client = f->client,
                                           .coordinator = f->channel,
                                           .backend = backend_find("ref"),
                                           .data_root = {.path = "/"},
                                           .threads = 1,
                                           .devices = &device,
                                           .n_devices = 1,
                                           .device_bytes = &room.device_bytes,
                                           .send = fixture_on_told,
                                           .make_room = make_room,
                                           .user = f},
                     &load);
}

static bool is_loaded_or_refused(const struct worker_fixture *f) {
  return f->n_loaded > 0 || f->is_refused;
}

static void a_run_without_memory_loads_once_there_is_room(void **state) {
  struct worker_fixture *f = *state;
  room = (struct room){.device_bytes = 1, .n_given = 1};
  load_without_room(f);
  fixture_wait(f, is_loaded_or_refused);
  assert_string_equal(f->refusal, "");
  assert_int_equal(room.n_asked, 1);
}

static void a_run_without_memory_is_refused_where_no_room_can_be_made(void **state) {
  struct worker_fixture *f = *state;
  room = (struct room){.device_bytes = 1};
  load_without_room(f);
  fixture_wait(f, is_loaded_or_refused);
  assert_non_null(strstr(f->refusal, "cuda:0"));
  assert_int_equal(room.n_asked, 1);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, worker_setup, worker_teardown)
  const struct CMUnitTest tests[] = {
      TEST(every_block_is_pushed_once_a_step),
      TEST(what_fails_for_a_while_is_tried_again),
      TEST(a_worker_that_is_behind_asks_where_the_servers_are),
      TEST(a_worker_is_outrun_as_often_as_it_takes),
      TEST(a_worker_goes_on_asking_servers_that_do_not_know_the_run),
      TEST(a_worker_whose_ticket_is_refused_begins_again),
      TEST(another_model_than_announced_is_refused),
      TEST(a_block_of_the_wrong_size_is_refused),
      TEST(a_block_of_the_wrong_version_is_refused),
      TEST(few_calls_wait_however_many_blocks_there_are),
      TEST(a_version_that_a_server_puts_off_is_pulled),
      TEST(a_server_without_memory_ends_the_run_by_name),
      TEST(a_plan_over_other_data_is_refused),
      TEST(a_run_without_memory_loads_once_there_is_room),
      TEST(a_run_without_memory_is_refused_where_no_room_can_be_made),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
