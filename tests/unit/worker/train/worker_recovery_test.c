/* What a worker does when a run is rolled back, servers go and come, and the coordinator is away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/support/common/patience.h"
#include "tests/support/worker/worker_fixture.h"

static struct fake_server *first(struct worker_fixture *f) {
  return &f->servers[0];
}

/* The view of the only worker, with one server. */
static void show(struct worker_fixture *f, uint64_t number, uint64_t incarnation, int server) {
  bool evaluates = f->spec->data->eval != NULL;
  fixture_view(f,
               (struct view_of){.number = number,
                                .incarnation = incarnation,
                                .first_server = server,
                                .n_servers = 1,
                                .microbatches = MICROBATCHES,
                                .chunks = evaluates},
               fixture_give_view);
}

static void hold(struct fake_server *server, uint64_t step, uint32_t block) {
  server->held_step = step;
  server->held_block = block;
}

static bool is_held(const struct worker_fixture *f) {
  return f->servers[0].n_parked == (int)f->model->n_blocks;
}

/* The run is at step 1, of which the first server holds every answer back. */
static void run_to_step_1(struct worker_fixture *f) {
  hold(first(f), 1, UINT32_MAX);
  fixture_load(f, backend_find("ref"), 2);
  show(f, 1, 1, 0);
  fixture_wait(f, is_held);
}

/* The server has the run in that incarnation, from that version on. */
static void roll_back(struct worker_fixture *f, int server, uint64_t incarnation, uint64_t version) {
  pthread_mutex_lock(&f->lock);
  f->servers[server].incarnation = incarnation;
  f->servers[server].has_no_run = false;
  for (uint32_t b = 0; b < f->model->n_blocks; b++)
    f->servers[server].version[b] = version;
  pthread_mutex_unlock(&f->lock);
}

static bool have_calls_been_given_up(const struct worker_fixture *f) {
  return f->servers[0].n_gone == (int)f->model->n_blocks;
}

static bool is_trained_in_2(const struct worker_fixture *f) {
  int server = f->servers[1].incarnation == 2;
  for (uint32_t b = 0; b < f->model->n_blocks; b++)
    if (f->servers[server].incarnation != 2 || f->servers[server].version[b] < STEPS)
      return false;
  return true;
}

static bool has_asked_again(const struct worker_fixture *f) {
  return f->servers[0].n_questions >= 2;
}

static bool has_asked_twice_more(const struct worker_fixture *f) {
  return f->servers[0].n_questions >= 3;
}

static void a_roll_back_is_followed_to_other_servers_though_the_old_are_frozen(void **state) {
  struct worker_fixture *f = *state;
  run_to_step_1(f);
  pthread_mutex_lock(&f->lock);
  first(f)->is_frozen = true;
  pthread_mutex_unlock(&f->lock);
  roll_back(f, 1, 2, 0);
  show(f, 2, 2, 1);
  fixture_wait(f, have_calls_been_given_up); /* a call of its own accord waits without end */
  fixture_wait(f, is_trained_in_2);
  for (uint64_t step = 0; step < STEPS; step++) {
    assert_int_equal(count_pushes(f, 1, 1, step), 0);
    assert_int_not_equal(count_pushes(f, 1, 2, step), 0);
  }
  assert_false(f->is_refused);
}

static void a_roll_back_on_the_same_server_begins_again_at_its_version(void **state) {
  struct worker_fixture *f = *state;
  run_to_step_1(f);
  roll_back(f, 0, 2, 1);
  fake_server_release(first(f), ERR_CANCELLED);
  fixture_wait(f, has_asked_twice_more); /* and was told that the incarnation is another */
  assert_false(f->is_refused);
  show(f, 2, 2, 0);
  fixture_wait(f, is_trained_in_2);
  assert_int_equal(count_pushes(f, 0, 2, 0), 0);
  assert_int_not_equal(count_pushes(f, 0, 2, 1), 0);
  assert_false(f->is_refused);
}

static bool has_asked(const struct worker_fixture *f) {
  return f->servers[0].n_questions >= 1;
}

static bool has_asked_server_2(const struct worker_fixture *f) {
  return f->servers[1].n_questions >= 1;
}

/* A server that is asked where it is, and frozen, must not keep the worker from the view after that. Its
   answer is waited for no longer, though it may take a week. */
static void a_worker_that_joins_frozen_servers_follows_the_next_view_at_once(void **state) {
  struct worker_fixture *f = *state;
  first(f)->is_frozen = true;
  fixture_load(f, backend_find("ref"), 2);
  show(f, 1, 1, 0);
  fixture_wait(f, has_asked);
  roll_back(f, 1, 2, 0);
  show(f, 2, 2, 1);
  fixture_wait(f, has_asked_server_2);
  fixture_wait(f, is_trained_in_2);
}

static int count_evaluations(const struct worker_fixture *f, uint64_t incarnation, uint64_t version) {
  int n = 0;
  for (int i = 0; i < f->n_pushes; i++)
    n +=
        f->pushes[i].is_evaluation && f->pushes[i].incarnation == incarnation && f->pushes[i].step == version;
  return n;
}

static bool is_1_evaluated(const struct worker_fixture *f) {
  return count_evaluations(f, 1, 1) == 1;
}

static bool is_2_evaluated_in_2(const struct worker_fixture *f) {
  return count_evaluations(f, 2, 2) == 1;
}

static bool is_1_over_but_for_the_row(const struct worker_fixture *f) {
  const struct fake_server *server = &f->servers[1];
  for (uint32_t b = 0; b < f->model->n_param_blocks; b++)
    if (server->version[b] < 2)
      return false;
  return server->n_parked == 1 && count_evaluations(f, 2, 1) == 1;
}

static bool is_all_evaluated_in_2(const struct worker_fixture *f) {
  return count_evaluations(f, 2, 1) == 1 && count_evaluations(f, 2, 2) == 1 &&
         count_evaluations(f, 2, 3) == 1;
}

static void a_version_is_evaluated_again_when_the_run_was_rolled_back_to_it(void **state) {
  struct worker_fixture *f = *state;
  run_to_step_1(f);
  fixture_wait(f, is_1_evaluated);
  /* As a real server, this one goes on from versions 1 and 2 only once it has their evaluations. */
  hold(&f->servers[1], 1, f->model->n_param_blocks);
  roll_back(f, 1, 2, 1);
  show(f, 2, 2, 1);
  fixture_wait(f, is_1_over_but_for_the_row);
  pthread_mutex_lock(&f->lock);
  hold(&f->servers[1], 2, f->model->n_param_blocks);
  pthread_mutex_unlock(&f->lock);
  fake_server_reach(&f->servers[1], 2);
  fixture_wait(f, is_2_evaluated_in_2);
  fake_server_release(&f->servers[1], ERR_OK);
  fixture_wait(f, is_trained_in_2);
  fixture_wait(f, is_all_evaluated_in_2);
}

static bool has_asked_four_times_more(const struct worker_fixture *f) {
  return f->servers[0].n_questions >= 5;
}

/* The pauses before the four questions double, from 75 ms or more on: 1125 ms or more. */
static void a_server_that_lost_the_run_is_asked_with_pauses_until_a_view_comes(void **state) {
  struct worker_fixture *f = *state;
  uint64_t begun_ns;
  run_to_step_1(f);
  pthread_mutex_lock(&f->lock);
  first(f)->has_no_run = true;
  pthread_mutex_unlock(&f->lock);
  begun_ns = clock_now_ns();
  fake_server_release(first(f), ERR_CANCELLED);
  fixture_wait(f, has_asked_four_times_more);
  assert_true(clock_now_ns() - begun_ns >= 1125 * UINT64_C(1000000));
  assert_false(f->is_refused);
  roll_back(f, 0, 2, 0);
  show(f, 2, 2, 0);
  fixture_wait(f, is_trained_in_2);
  assert_false(f->is_refused);
}

static void a_server_whose_link_broke_gets_the_same_gradients_again(void **state) {
  struct worker_fixture *f = *state;
  run_to_step_1(f);
  fake_server_stop(first(f));
  hold(first(f), UINT64_MAX, UINT32_MAX);
  fake_server_listen(first(f));
  fixture_wait(f, is_trained);
  assert_false(f->is_refused);
  assert_int_equal(first(f)->n_questions, 1);
}

static bool misses_server_2(const struct worker_fixture *f) {
  return f->n_unreached == 1 && strcmp(f->unreached, "server-2") == 0;
}

static bool misses_server_2_still(const struct worker_fixture *f) {
  return misses_server_2(f) && f->n_unreached_told >= 3;
}

static bool reaches_all(const struct worker_fixture *f) {
  return f->n_unreached_told > 0 && f->n_unreached == 0;
}

static bool is_server_2_held(const struct worker_fixture *f) {
  return f->servers[1].n_parked > 0;
}

/* With both servers. */
static struct view_of view_of_both(uint64_t number, uint32_t microbatches) {
  return (struct view_of){.number = number, .incarnation = 1, .n_servers = 2, .microbatches = microbatches};
}

/* The run is at step 1, of which the second server's blocks are missing: it has gone. */
static void run_to_a_cut(struct worker_fixture *f) {
  hold(&f->servers[1], 1, UINT32_MAX);
  fixture_load(f, backend_find("ref"), 2);
  fixture_view(f, view_of_both(1, MICROBATCHES), fixture_give_view);
  fixture_wait(f, is_server_2_held);
  fake_server_stop(&f->servers[1]);
  hold(&f->servers[1], UINT64_MAX, UINT32_MAX);
  fixture_wait(f, misses_server_2);
}

static void a_server_that_is_not_reached_is_told_until_it_is(void **state) {
  struct worker_fixture *f = *state;
  run_to_a_cut(f);
  fixture_wait(f, misses_server_2_still);
  fake_server_listen(&f->servers[1]);
  fixture_wait(f, reaches_all);
  fixture_wait(f, is_trained);
  assert_false(f->is_refused);
}

static void a_worker_without_work_looks_for_the_servers_that_it_misses(void **state) {
  struct worker_fixture *f = *state;
  run_to_a_cut(f);
  fixture_view(f, view_of_both(2, 0), fixture_give_view);
  fixture_wait(f, has_asked_again);
  fake_server_listen(&f->servers[1]);
  fixture_wait(f, reaches_all);
  assert_false(is_trained(f));
  fixture_view(f, view_of_both(3, MICROBATCHES), fixture_give_view);
  fixture_wait(f, is_trained);
  assert_false(f->is_refused);
}

static bool is_refused(const struct worker_fixture *f) {
  return f->is_refused;
}

static void what_failed_is_taken_up_again_once_it_was_rolled_back(void **state) {
  struct worker_fixture *f = *state;
  f->faults.blocks_old = 1;
  fixture_load(f, backend_find("ref"), 2);
  show(f, 1, 1, 0);
  fixture_wait(f, is_refused);
  show(f, 2, 1, 0); /* changes nothing */
  fixture_linger(100);
  assert_false(is_trained(f));
  roll_back(f, 1, 2, 0);
  show(f, 3, 2, 1);
  fixture_wait(f, is_trained_in_2);
}

static void the_id_that_a_view_was_made_for_counts(void **state) {
  struct worker_fixture *f = *state;
  struct view_of view = {.number = UINT64_C(2) << 32,
                         .incarnation = 1,
                         .n_servers = 1,
                         .microbatches = MICROBATCHES,
                         .worker = "worker-7"};
  run_to_step_1(f);
  fixture_view(f, view, fixture_give_view);
  view.number = 2; /* of the term before, and late: it gives us nothing */
  view.microbatches = 0;
  fixture_view(f, view, fixture_give_view);
  fixture_linger(100);
  fake_server_release(first(f), ERR_OK);
  fixture_wait(f, is_all_pushed);
  assert_int_equal(first(f)->n_questions, 1);
  for (uint64_t step = 0; step < STEPS; step++) /* nothing was computed twice */
    assert_int_equal(count_pushes(f, 0, 1, step), pushes_of_step(f));
}

static bool has_asked_twice(const struct worker_fixture *f) {
  return f->servers[0].n_questions >= 2;
}

/* Calls that wait are made anew. */
static void a_view_with_another_ticket_renews_it_for_all_calls(void **state) {
  struct worker_fixture *f = *state;
  struct view_of view = {.number = 2,
                         .incarnation = 1,
                         .n_servers = 1,
                         .microbatches = MICROBATCHES,
                         .worker = "worker-1",
                         .ticket = "mlp-aaaaaa/1/renewed"};
  run_to_step_1(f);
  assert_string_equal(first(f)->ticket, "");
  fixture_view(f, view, fixture_give_view);
  fixture_wait(f, has_asked_twice);
  fake_server_release(first(f), ERR_OK);
  fixture_wait(f, is_trained);
  assert_string_equal(first(f)->ticket, view.ticket);
}

static bool is_fetching(const struct worker_fixture *f) {
  return f->held_fetch != NULL;
}

static void a_run_whose_coordinator_is_gone_says_nothing_until_it_is_ordered_again(void **state) {
  struct worker_fixture *f = *state;
  Weir__LoadRun order = fixture_order(f, 3);
  uint64_t incarnation;
  f->is_fetch_held = true;
  fixture_load(f, backend_find("ref"), 2);
  fixture_wait(f, is_fetching);
  run_mute(f->run);
  show(f, 1, 1, 0);
  fixture_release_model(f);
  fixture_wait(f, is_trained);
  assert_int_equal(f->n_loaded, 0);
  assert_true(run_is_alive(f->run, &incarnation));
  assert_int_equal(incarnation, 1);
  assert_true(run_tell_again(f->run, &order, NULL));
  assert_int_equal(f->n_loaded, 1);
  assert_int_equal(f->loaded_incarnation, 3);
  assert_int_equal(f->n_fetched, 1);
}

static void a_run_that_loads_from_another_coordinator_is_to_be_started_anew(void **state) {
  struct worker_fixture *f = *state;
  Weir__LoadRun order = fixture_order(f, 1);
  f->is_fetch_held = true;
  fixture_load(f, backend_find("ref"), 2);
  fixture_wait(f, is_fetching);
  run_mute(f->run);
  assert_false(run_tell_again(f->run, &order, NULL));
  assert_true(run_tell_again(f->run, &order, f->channel));
  fixture_release_model(f);
  show(f, 1, 1, 0);
  fixture_wait(f, is_trained);
  assert_int_equal(f->n_loaded, 1);
}

/* What the executions of the train programs were given, and how they ended. */
enum { EXECUTIONS_MAX = 64, PROBES = 1 };

struct execution {
  const struct backend_program *program;
  uint64_t weights_version;
  bool is_dropped;
};

static pthread_mutex_t executions_lock = PTHREAD_MUTEX_INITIALIZER;
static struct execution executions[EXECUTIONS_MAX]; /* that have ended */
static int n_executions, n_begun;

static int watched_run(struct backend_program *program, const struct backend_run *run, struct err *err) {
  int code;
  __atomic_fetch_add(&n_begun, 1, __ATOMIC_SEQ_CST);
  code = backend_find("ref")->run(program, run, err);
  pthread_mutex_lock(&executions_lock);
  assert_in_range(n_executions, 0, EXECUTIONS_MAX - 1);
  executions[n_executions++] = (struct execution){program, run->weights_version, code != 0};
  pthread_mutex_unlock(&executions_lock);
  return code;
}

static int count_executions(bool are_dropped) {
  int n = 0;
  pthread_mutex_lock(&executions_lock);
  for (int i = 0; i < n_executions; i++)
    n += executions[i].is_dropped || !are_dropped;
  pthread_mutex_unlock(&executions_lock);
  return n;
}

/* Looks until so many executions have begun, or have ended: nobody tells. */
static void wait_executions(int begun, int ended) {
  uint64_t until_ns = clock_now_ns() + (uint64_t)patience_seconds() * 1000000000;
  while ((__atomic_load_n(&n_begun, __ATOMIC_SEQ_CST) < begun || count_executions(false) < ended) &&
         clock_now_ns() < until_ns)
    fixture_linger(1);
  assert_true(n_begun >= begun && count_executions(false) >= ended);
}

static bool is_ahead_blocked(const struct worker_fixture *f) {
  return f->servers[0].n_parked == 1;
}

/* An execution that was begun ahead and dropped may have kept, in its backend's own layout, weights that had
   not come: what executes the same version afterwards must not take them for that version's. */
static void weights_that_a_dropped_execution_has_seen_are_not_trusted(void **state) {
  struct worker_fixture *f = *state;
  struct backend_def watched = *backend_find("ref");
  struct view_of view = {.number = 1, .incarnation = 1, .n_servers = 1, .microbatches = 1};
  watched.run = watched_run;
  n_executions = n_begun = 0;
  hold(first(f), 0, 0);
  fixture_load(f, &watched, 1);
  fixture_view(f, view, fixture_give_view);
  fixture_wait(f, is_ahead_blocked);
  wait_executions(PROBES + 2, PROBES + 1); /* microbatch 0 of step 1 is begun, and waits for the block */
  view.number = 2;
  view.microbatches = 2; /* step 0 owes another one now */
  fixture_view(f, view, fixture_give_view);
  for (int ms = 0; ms < patience_ms() && count_executions(true) == 0; ms += 10)
    fixture_linger(10);
  fake_server_release(first(f), ERR_OK);
  fixture_wait(f, is_trained);
  run_stop(f->run);
  f->run = NULL;
  assert_int_not_equal(count_executions(true), 0);
  for (int i = 0; i < n_executions; i++)
    for (int j = i + 1; executions[i].is_dropped && j < n_executions; j++)
      assert_false(executions[j].program == executions[i].program &&
                   executions[j].weights_version == executions[i].weights_version);
}

/* Nor must the weights be that a version had before a roll-back. The last step is held: no execution is under
   way, and so none dropped. */
static void weights_of_before_a_roll_back_are_not_trusted(void **state) {
  struct worker_fixture *f = *state;
  struct backend_def watched = *backend_find("ref");
  int before;
  watched.run = watched_run;
  n_executions = n_begun = 0;
  hold(first(f), STEPS - 1, UINT32_MAX);
  fixture_load(f, &watched, 1);
  show(f, 1, 1, 0);
  fixture_wait(f, is_held);
  before = PROBES + STEPS * MICROBATCHES;
  wait_executions(before, before);
  roll_back(f, 1, 2, STEPS - 1);
  show(f, 2, 2, 1);
  fixture_wait(f, is_trained_in_2);
  run_stop(f->run);
  f->run = NULL;
  assert_int_equal(n_executions, before + MICROBATCHES);
  for (int i = 0; i < before; i++)
    for (int j = before; j < n_executions; j++)
      assert_false(executions[j].program == executions[i].program &&
                   executions[j].weights_version == executions[i].weights_version);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, worker_setup, worker_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_roll_back_is_followed_to_other_servers_though_the_old_are_frozen),
      TEST(a_roll_back_on_the_same_server_begins_again_at_its_version),
      TEST(a_worker_that_joins_frozen_servers_follows_the_next_view_at_once),
      cmocka_unit_test_setup_teardown(a_version_is_evaluated_again_when_the_run_was_rolled_back_to_it,
                                      worker_setup_evaluating, worker_teardown),
      TEST(a_server_that_lost_the_run_is_asked_with_pauses_until_a_view_comes),
      TEST(a_server_whose_link_broke_gets_the_same_gradients_again),
      TEST(a_server_that_is_not_reached_is_told_until_it_is),
      TEST(a_worker_without_work_looks_for_the_servers_that_it_misses),
      TEST(what_failed_is_taken_up_again_once_it_was_rolled_back),
      TEST(the_id_that_a_view_was_made_for_counts),
      TEST(a_view_with_another_ticket_renews_it_for_all_calls),
      TEST(a_run_whose_coordinator_is_gone_says_nothing_until_it_is_ordered_again),
      TEST(a_run_that_loads_from_another_coordinator_is_to_be_started_anew),
      TEST(weights_that_a_dropped_execution_has_seen_are_not_trusted),
      TEST(weights_of_before_a_roll_back_are_not_trusted),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
