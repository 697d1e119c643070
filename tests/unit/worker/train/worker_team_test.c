/* A worker that has the upper of two stages; the test is the worker below it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/rpc/wire.h"
#include "tests/support/worker/worker_fixture.h"

enum { TEAM = 7, MESSAGE_BYTES = BATCH / MICROBATCHES * HIDDEN * (int)sizeof(float) };

/* The view of a term's first coordinator. Nobody listens where the worker below is said to be. */
static void give_team(struct worker_fixture *f) {
  Weir__View view = WEIR__VIEW__INIT;
  Weir__Plan plan = WEIR__PLAN__INIT;
  Weir__Endpoint endpoint = WEIR__ENDPOINT__INIT, *servers[] = {&endpoint};
  Weir__Assignment lower = WEIR__ASSIGNMENT__INIT, upper = WEIR__ASSIGNMENT__INIT,
                   *members[] = {&lower, &upper};
  lower.worker = (char *)"worker-1";
  upper.worker = (char *)"worker-2";
  lower.microbatch_end = upper.microbatch_end = MICROBATCHES;
  lower.team = upper.team = TEAM;
  lower.address = upper.address = (char *)"127.0.0.1:1";
  endpoint.id = (char *)"server-1";
  endpoint.address = f->servers[0].target;
  plan.train_samples = SAMPLES;
  plan.steps = STEPS;
  view.run = (char *)fixture_run_id();
  view.number = 1;
  view.incarnation = 1;
  view.plan = &plan;
  view.servers = servers;
  view.n_servers = 1;
  view.workers = members;
  view.n_workers = 2;
  run_view(f->run, &view, upper.worker);
}

static bool is_loaded(const struct worker_fixture *f) {
  return f->n_loaded > 0;
}

static int setup(void **state) {
  struct worker_fixture *f;
  worker_setup(state);
  f = *state;
  f->spec->workers->has_stages = true;
  f->spec->workers->stages = 2;
  f->stage_begin = 1;
  f->stage_end = 2;
  f->servers[0].parks_pulls = true;
  fixture_load(f, backend_find("cpu"), 1);
  fixture_wait(f, is_loaded);
  give_team(f);
  return 0;
}

/* It asks for the blocks that the worker below makes the next version of. */
static bool waits(const struct worker_fixture *f) {
  return f->servers[0].n_parked > 0;
}

static bool waits_anew(const struct worker_fixture *f) {
  return f->servers[0].n_questions == 2 && waits(f);
}

static bool has_ended_its_team(const struct worker_fixture *f) {
  return f->n_groups_failed > 0;
}

/* Once the worker works in the team. */
static void send_microbatch(struct worker_fixture *f, uint64_t step, uint32_t index) {
  Weir__BoundaryPiece piece = WEIR__BOUNDARY_PIECE__INIT;
  struct rpc_bytes *bytes = rpc_bytes_new(1);
  struct err err;
  grpc_slice slice = grpc_slice_malloc(MESSAGE_BYTES);
  memset(GRPC_SLICE_START_PTR(slice), 0, MESSAGE_BYTES);
  rpc_bytes_append(bytes, slice);
  piece.run = (char *)fixture_run_id();
  piece.incarnation = 1;
  piece.team = TEAM;
  piece.step = step;
  piece.index = index;
  piece.message_bytes = MESSAGE_BYTES;
  do {
    err = (struct err)ERR_NONE;
    fixture_linger(1);
  } while (run_take_boundary(f->run, &piece, bytes, &err) == ERR_BUSY);
  rpc_bytes_free(bytes);
  if (err.code)
    fail_msg("%s", err.text);
}

/* Others have made the version; the worker is refused what it waits for. */
static void go_on_without_it(struct worker_fixture *f, uint64_t version) {
  fixture_wait(f, waits);
  pthread_mutex_lock(&f->lock);
  for (uint32_t b = 0; b < f->model->n_blocks; b++)
    f->servers[0].version[b] = version;
  pthread_mutex_unlock(&f->lock);
  fake_server_release(&f->servers[0], ERR_DROPPED);
}

static void a_member_of_a_team_goes_on_at_the_servers_version_while_nothing_has_crossed(void **state) {
  struct worker_fixture *f = *state;
  go_on_without_it(f, 1);
  fixture_wait(f, waits_anew);
  assert_int_equal(f->n_groups_failed, 0);
  assert_false(f->is_refused);
}

/* The worker below may wait for the gradient of the microbatch that it has sent. */
static void once_anything_has_crossed_a_member_that_has_to_begin_anew_ends_its_team(void **state) {
  struct worker_fixture *f = *state;
  send_microbatch(f, 0, 0);
  go_on_without_it(f, 1);
  fixture_wait(f, has_ended_its_team);
  assert_int_equal(f->failed_group, TEAM);
  assert_false(f->is_refused);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, worker_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_member_of_a_team_goes_on_at_the_servers_version_while_nothing_has_crossed),
      TEST(once_anything_has_crossed_a_member_that_has_to_begin_anew_ends_its_team),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
