/* The worker's process in a thread: what becomes of its run when the link to the coordinator breaks. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/common/fake_coordinator.h"
#include "tests/support/common/patience.h"
#include "tests/support/worker/worker_fixture.h"
#include "worker/worker.h"

struct process {
  struct worker_fixture *f;
  struct fake_coordinator coordinator;
  struct worker_options options;
  pthread_t thread;
  bool is_over;
};

static void *serve(void *argument) {
  struct process *process = argument;
  struct err err = ERR_NONE;
  worker_block_signals();
  worker_serve(&process->options, &err);
  return NULL;
}

static int start(void **state) {
  struct process *process = mem_new(sizeof *process);
  process->f = fixture_new(false);
  fake_coordinator_init(&process->coordinator);
  process->coordinator.id = "worker-1";
  process->coordinator.model = process->f->onnx;
  process->coordinator.model_bytes = process->f->onnx_bytes;
  process->options = (struct worker_options){.coordinator = process->coordinator.target,
                                             .data_root = {.path = "/"},
                                             .device = {.backend = backend_find("ref"), .name = "cpu"},
                                             .threads = 2,
                                             .leave_ms = WEEK_MS};
  assert_int_equal(pthread_create(&process->thread, NULL, serve, process), 0);
  *state = process;
  return 0;
}

/* Its end must come at once: of itself the worker waits a week. */
static void wait_end(struct process *process) {
  patience_begin();
  pthread_join(process->thread, NULL);
  patience_end();
  process->is_over = true;
}

static void end(struct process *process) {
  assert_int_equal(kill(getpid(), SIGTERM), 0);
  wait_end(process);
}

static int stop(void **state) {
  struct process *process = *state;
  if (process->coordinator.server)
    fake_coordinator_stop_listening(&process->coordinator); /* nobody to hand the run over to */
  if (!process->is_over)
    end(process);
  fake_coordinator_fini(&process->coordinator);
  fixture_free(process->f);
  free(process);
  return 0;
}

static void order_load(struct process *process, const char *run, uint64_t incarnation) {
  Weir__LoadRun load = fixture_order(process->f, incarnation);
  Weir__Order order = WEIR__ORDER__INIT;
  load.run = (char *)run;
  order.term = process->coordinator.term;
  order.body_case = WEIR__ORDER__BODY_LOAD;
  order.load = &load;
  fake_coordinator_order(&process->coordinator, &order);
}

static void order_unload(struct process *process, const char *run, bool may_return) {
  Weir__UnloadRun unload = WEIR__UNLOAD_RUN__INIT;
  Weir__Order order = WEIR__ORDER__INIT;
  unload.run = (char *)run;
  unload.reason = (char *)"the run has gone on without it";
  unload.may_return = may_return;
  order.term = process->coordinator.term;
  order.body_case = WEIR__ORDER__BODY_UNLOAD;
  order.unload = &unload;
  fake_coordinator_order(&process->coordinator, &order);
}

static struct fake_coordinator *told; /* by order_view: fixture_view's callback has no argument for it */

static void order_view(struct worker_fixture *f, const Weir__View *view, const char *worker) {
  Weir__Order order = WEIR__ORDER__INIT;
  (void)f, (void)worker;
  order.term = told->term;
  order.body_case = WEIR__ORDER__BODY_VIEW;
  order.view = (Weir__View *)view;
  fake_coordinator_order(told, &order);
}

static void show(struct process *process, uint64_t number, const char *worker) {
  told = &process->coordinator;
  fixture_view(
      process->f,
      (struct view_of){
          .number = number, .incarnation = 1, .n_servers = 1, .microbatches = MICROBATCHES, .worker = worker},
      order_view);
}

static const Weir__MemberMessage *wait_message(struct process *process, Weir__MemberMessage__BodyCase body,
                                               int n) {
  return fake_coordinator_wait_message(&process->coordinator, body, n);
}

static bool is_held(const struct worker_fixture *f) {
  return f->servers[0].n_parked == (int)f->model->n_blocks;
}

static bool is_given_up(const struct worker_fixture *f) {
  return f->servers[0].n_gone == (int)f->model->n_blocks;
}

/* The run is at step 1, of which the server holds every answer back. */
static void run_to_step_1(struct process *process) {
  fake_coordinator_wait(&process->coordinator, &process->coordinator.n_joined, 1);
  process->f->servers[0].held_step = 1;
  order_load(process, fixture_run_id(), 1);
  wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  show(process, 1, "worker-1");
  fixture_wait(process->f, is_held);
}

/* Another of a higher term will come in its place. */
static void lose_coordinator(struct process *process) {
  fake_coordinator_stop_listening(&process->coordinator);
  process->coordinator.term = 2;
}

static const Weir__Hello *regain_coordinator(struct process *process) {
  fake_coordinator_listen(&process->coordinator);
  fake_coordinator_wait(&process->coordinator, &process->coordinator.n_joined, 2);
  return process->coordinator.messages[WEIR__MEMBER_MESSAGE__BODY_HELLO]->hello;
}

/* From the beginning to the end, everything was computed once, by one joining of the servers. A server that
   answers nothing for long is asked whether it is there. */
static void expect_undisturbed(struct worker_fixture *f) {
  fixture_wait(f, is_all_pushed);
  assert_int_equal(f->n_pulls, f->model->n_blocks);
  for (uint64_t step = 0; step < STEPS; step++)
    assert_int_equal(count_pushes(f, 0, 1, step), pushes_of_step(f));
}

static void steps_complete_while_there_is_no_coordinator(void **state) {
  struct process *process = *state;
  const Weir__Hello *hello;
  run_to_step_1(process);
  lose_coordinator(process);
  fake_server_release(&process->f->servers[0], ERR_OK);
  expect_undisturbed(process->f);
  hello = regain_coordinator(process);
  assert_string_equal(hello->id, "worker-1");
  assert_int_equal(hello->term, 1);
  assert_int_equal(hello->n_runs, 1);
  assert_string_equal(hello->runs[0]->run, fixture_run_id());
  assert_int_equal(hello->runs[0]->incarnation, 1);
}

static void a_run_that_is_ordered_again_is_not_loaded_again(void **state) {
  struct process *process = *state;
  const Weir__RunLoaded *loaded;
  char probe[SHA256_HEX_SIZE];
  run_to_step_1(process);
  loaded = process->coordinator.messages[WEIR__MEMBER_MESSAGE__BODY_LOADED]->loaded;
  snprintf(probe, sizeof probe, "%s", loaded->probe_sha256);
  lose_coordinator(process);
  regain_coordinator(process);
  order_load(process, fixture_run_id(), 4);
  loaded = wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2)->loaded;
  assert_int_equal(loaded->incarnation, 4);
  assert_int_equal(loaded->train_samples, SAMPLES);
  assert_string_equal(loaded->probe_sha256, probe);
  assert_int_equal(process->coordinator.n_fetched, 1);
  fake_server_release(&process->f->servers[0], ERR_OK);
  expect_undisturbed(process->f);
}

static void a_worker_of_another_id_goes_on_where_it_was(void **state) {
  struct process *process = *state;
  run_to_step_1(process);
  lose_coordinator(process);
  process->coordinator.id = "worker-9";
  process->coordinator.renames = true;
  regain_coordinator(process);
  order_load(process, fixture_run_id(), 1);
  wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  show(process, (UINT64_C(2) << 32) + 1, "worker-9");
  order_load(process, fixture_run_id(),
             1); /* its answer shows that the view, which was ordered before, has come */
  wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, 3);
  fake_server_release(&process->f->servers[0], ERR_OK);
  expect_undisturbed(process->f);
}

static void a_worker_that_gets_no_order_goes_on(void **state) {
  struct process *process = *state;
  run_to_step_1(process);
  lose_coordinator(process);
  regain_coordinator(process);
  fake_server_release(&process->f->servers[0], ERR_OK);
  expect_undisturbed(process->f);
  assert_int_equal(process->coordinator.n_messages[WEIR__MEMBER_MESSAGE__BODY_LOADED], 1);
}

static void a_run_that_went_on_without_the_worker_is_let_go(void **state) {
  struct process *process = *state;
  run_to_step_1(process);
  lose_coordinator(process);
  regain_coordinator(process);
  order_unload(process, "another", false);
  order_load(process, fixture_run_id(), 1); /* its answer shows that the order before it was obeyed */
  wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  assert_int_equal(process->coordinator.n_fetched, 1);
  pthread_mutex_lock(&process->f->lock);
  assert_int_equal(process->f->servers[0].n_gone, 0);
  pthread_mutex_unlock(&process->f->lock);
  order_unload(process, fixture_run_id(), false);
  fixture_wait(process->f, is_given_up);
}

static void another_run_is_computed_beside_the_one_before(void **state) {
  struct process *process = *state;
  const Weir__Hello *hello;
  run_to_step_1(process);
  order_load(process, "t-2", 1);
  assert_string_equal(wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2)->loaded->run, "t-2");
  fake_server_release(&process->f->servers[0], ERR_OK);
  expect_undisturbed(process->f);
  lose_coordinator(process);
  hello = regain_coordinator(process);
  assert_int_equal(hello->n_runs, 2);
  assert_string_equal(hello->runs[0]->run, fixture_run_id());
  assert_string_equal(hello->runs[1]->run, "t-2");
  assert_true(!hello->runs[0]->rests && !hello->runs[1]->rests);
}

/* The run is loaded, and rests. */
static void load_and_rest(struct process *process, const char *run, int n_loaded) {
  order_load(process, run, 1);
  wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, n_loaded);
  order_unload(process, run, true);
}

static void a_run_that_rested_goes_on_without_being_loaded_again(void **state) {
  struct process *process = *state;
  run_to_step_1(process);
  order_unload(process, fixture_run_id(), true);
  fixture_wait(process->f, is_given_up);
  load_and_rest(process, "t-2", 2);
  order_load(process, fixture_run_id(), 1);
  assert_string_equal(wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, 3)->loaded->run,
                      fixture_run_id());
  assert_int_equal(process->coordinator.n_fetched, 2);
  fake_server_release(&process->f->servers[0], ERR_OK);
  show(process, 2, "worker-1");
  fixture_wait(process->f, is_trained);
}

/* One run is over, and the other is ordered. */
static void follow_with(struct process *process, const char *run, int n_loaded) {
  order_load(process, "t-1", 1);
  wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, n_loaded);
  order_unload(process, "t-1", false);
  order_load(process, run, 1);
  assert_string_equal(wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, n_loaded + 1)->loaded->run,
                      run);
}

static void another_run_of_the_same_program_is_not_loaded_again(void **state) {
  struct process *process = *state;
  run_to_step_1(process);
  order_unload(process, fixture_run_id(), false);
  process->f->spec->train->optimizer->lr *= 2;
  order_load(process, "t-2", 1);
  assert_string_equal(wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2)->loaded->run, "t-2");
  assert_int_equal(process->coordinator.n_fetched, 1);
  order_unload(process, "t-2", false);
  order_load(process, fixture_run_id(), 1); /* which the servers of this test know */
  wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, 3);
  fake_server_release(&process->f->servers[0], ERR_OK);
  show(process, 1, "worker-1"); /* a view as low as that of the run before */
  fixture_wait(process->f, is_trained);
  assert_int_equal(process->coordinator.n_fetched, 1);
}

static void another_run_of_another_program_or_other_data_is_loaded(void **state) {
  struct process *process = *state;
  Weir__TrainSpec *train = process->f->spec->train;
  char path[128];
  fake_coordinator_wait(&process->coordinator, &process->coordinator.n_joined, 1);
  order_load(process, "t-1", 1);
  wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  order_unload(process, "t-1", false);
  train->has_seed = true;
  train->seed++;
  follow_with(process, "t-2", 2);
  assert_int_equal(process->coordinator.n_fetched, 2); /* t-2 is as t-1 */
  order_unload(process, "t-2", false);
  snprintf(path, sizeof path, "%s/images", process->f->folder);
  assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[]){{1, 0}, {1, 0}}, 0), 0);
  follow_with(process, "t-3", 4);
  assert_int_equal(process->coordinator.n_fetched, 3);
}

static void of_many_runs_that_rest_the_oldest_is_forgotten(void **state) {
  struct process *process = *state;
  static const char *const runs[] = {"t-1", "t-2", "t-3", "t-4", "t-5"};
  fake_coordinator_wait(&process->coordinator, &process->coordinator.n_joined, 1);
  for (int i = 0; i < 5; i++)
    load_and_rest(process, runs[i], i + 1);
  load_and_rest(process, "t-2", 6);
  assert_int_equal(process->coordinator.n_fetched, 5);
  load_and_rest(process, "t-1", 7);
  assert_int_equal(process->coordinator.n_fetched, 6);
}

/* As if microbatch 1 were another's, who is late with it. */
static void order_reissue(struct process *process, const char *run) {
  Weir__Reissue reissue = WEIR__REISSUE__INIT;
  Weir__Range range = WEIR__RANGE__INIT, *ranges[] = {&range};
  Weir__Order order = WEIR__ORDER__INIT;
  range.begin = 1;
  range.end = 2;
  reissue.run = (char *)run;
  reissue.incarnation = reissue.step = 1;
  reissue.microbatches = ranges;
  reissue.n_microbatches = 1;
  order.term = process->coordinator.term;
  order.body_case = WEIR__ORDER__BODY_REISSUE;
  order.reissue = &reissue;
  fake_coordinator_order(&process->coordinator, &order);
}

/* Beside those of the share, whose last ones were awaited. */
static int count_alone(const struct worker_fixture *f) {
  int n = 0;
  for (int i = 0; i < f->n_pushes; i++)
    n += f->pushes[i].step == 1 && f->pushes[i].first == 1 && f->pushes[i].level == 0 &&
         f->pushes[i].block < f->model->n_param_blocks;
  return n;
}

static bool is_pushed_alone(const struct worker_fixture *f) {
  return count_alone(f) == (int)f->model->n_param_blocks;
}

static void an_order_to_compute_more_reaches_the_run_that_it_names(void **state) {
  struct process *process = *state;
  int n;
  run_to_step_1(process);
  order_reissue(process, "another");
  order_load(process, fixture_run_id(), 1); /* its answer shows that the order before it was obeyed */
  wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  fixture_linger(100);
  pthread_mutex_lock(&process->f->lock);
  n = count_alone(process->f);
  pthread_mutex_unlock(&process->f->lock);
  assert_int_equal(n, 0);
  order_reissue(process, fixture_run_id());
  fixture_wait(process->f, is_pushed_alone);
}

/* Of step 0 all was computed, and of step 1, which waits for its answers. */
static void heartbeats_say_how_much_was_computed(void **state) {
  struct process *process = *state;
  const Weir__Heartbeat *heartbeat;
  const Weir__RunCounters *counters;
  int n = 0;
  run_to_step_1(process);
  do {
    heartbeat = wait_message(process, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, ++n)->heartbeat;
    counters = heartbeat->n_runs == 1 ? heartbeat->runs[0] : NULL;
  } while (!(counters && counters->computed == 2 * MICROBATCHES) && n < patience_seconds());
  assert_non_null(counters);
  assert_string_equal(counters->run, fixture_run_id());
  assert_int_equal(counters->incarnation, 1);
  assert_int_equal(counters->computed, 2 * MICROBATCHES);
  assert_true(counters->busy_seconds > 0);
  assert_true(counters->received_bytes > 0);
}

static void a_worker_without_a_coordinator_ends_at_once(void **state) {
  struct process *process = *state;
  run_to_step_1(process);
  pthread_mutex_lock(&process->coordinator.lock);
  process->coordinator.refuses = true;
  pthread_mutex_unlock(&process->coordinator.lock);
  fake_coordinator_kick(&process->coordinator);
  wait_message(process, WEIR__MEMBER_MESSAGE__BODY_HELLO, 2); /* it knows that it is no member any more */
  end(process);
  fixture_wait(process->f, is_given_up);
}

static void a_worker_that_hands_its_work_back_does_not_wait_for_a_coordinator_that_dies(void **state) {
  struct process *process = *state;
  run_to_step_1(process);
  assert_int_equal(kill(getpid(), SIGTERM), 0);
  wait_message(process, WEIR__MEMBER_MESSAGE__BODY_LEAVING, 1);
  lose_coordinator(process);
  wait_end(process);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
  const struct CMUnitTest tests[] = {
      TEST(steps_complete_while_there_is_no_coordinator),
      TEST(a_run_that_is_ordered_again_is_not_loaded_again),
      TEST(a_worker_of_another_id_goes_on_where_it_was),
      TEST(a_worker_that_gets_no_order_goes_on),
      TEST(a_run_that_went_on_without_the_worker_is_let_go),
      TEST(another_run_is_computed_beside_the_one_before),
      TEST(a_run_that_rested_goes_on_without_being_loaded_again),
      TEST(another_run_of_the_same_program_is_not_loaded_again),
      TEST(another_run_of_another_program_or_other_data_is_loaded),
      TEST(of_many_runs_that_rest_the_oldest_is_forgotten),
      TEST(an_order_to_compute_more_reaches_the_run_that_it_names),
      TEST(heartbeats_say_how_much_was_computed),
      TEST(a_worker_without_a_coordinator_ends_at_once),
      TEST(a_worker_that_hands_its_work_back_does_not_wait_for_a_coordinator_that_dies),
  };
#undef TEST
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, NULL); /* in every thread, as the worker's own process does */
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
