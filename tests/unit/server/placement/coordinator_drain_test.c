/* Servers that drain: their runs go on without them, from a checkpoint that is made for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/recovery/recovery.h"
#include "tests/support/coordinator/core_run.h"
#include "tests/support/coordinator/core_succession.h"

enum { S3 = 5, S2_AGAIN = 12, DONE = 3, HOLD = 4 };

/* What ListServers says of it. */
static Weir__ServerInfo server_row(struct core_fixture *f, const char *id) {
  static struct arena arena;
  Weir__ListServersReply reply;
  Weir__ServerInfo row = WEIR__SERVER_INFO__INIT;
  arena_fini(&arena);
  coordinator_list_servers(f->coordinator, &viewer_of_all, f->now_ms, &arena, &reply);
  for (size_t i = 0; i < reply.n_servers; i++)
    if (strcmp(reply.servers[i]->id, id) == 0)
      row = *reply.servers[i];
  return row;
}

/* Its server S2 drains at version DONE. */
static void begin_to_drain(struct core_fixture *f) {
  core_run_begin(f, 1);
  reports_steps(f, S1, RUN, 0, DONE);
  user_drains(f, "server-2");
  assert_int_equal(f->told[S2].drains, 1);
  assert_true(server_row(f, "server-2").draining);
  assert_int_equal(server_row(f, "server-2").runs, 1);
}

static void assert_moved(struct core_fixture *f, uint64_t step) {
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_string_equal(f->told[S2].unload, RUN);
  assert_int_equal(server_row(f, "server-2").runs, 0);
  assert_int_equal(f->told[S1].load_servers, 1);
  assert_int_equal(f->told[S1].load_step, step);
  assert_int_equal(f->told[S1].load_incarnation, 1);
  assert_non_null(strstr(info_of_run(f, RUN).message, "server-2 (host:2) drains"));
  f->incarnation = 1;
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[W1].view_incarnation, 1);
  assert_int_equal(f->told[W1].hold, 0);
}

static void a_run_leaves_a_server_from_a_checkpoint_at_which_its_workers_stand(void **state) {
  struct core_fixture *f = *state;
  uint64_t step;
  begin_to_drain(f);
  step = f->told[S1].write_step;
  assert_true(step > DONE);
  assert_int_equal(f->told[S2].write_step, step);
  assert_int_equal(f->told[W1].hold, step);
  assert_int_equal(f->told[W2].hold, step);
  assert_int_equal(f->told[S1].holds, 0); /* servers are told of no hold: they cannot lose one again */
  assert_non_null(strstr(info_of_run(f, RUN).message, "its blocks leave server-2 (host:2) at step"));
  reports_steps(f, S1, RUN, DONE, step);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  core_run_checkpoint(f);
  assert_moved(f, step);
  assert_int_equal(info_of_run(f, RUN).step, step);
  core_ticks(f);
  assert_int_equal(info_of_run(f, RUN).incarnation, 1);
}

static void workers_go_on_when_the_checkpoint_fails(void **state) {
  struct core_fixture *f = *state;
  uint64_t step;
  begin_to_drain(f);
  step = f->told[S1].write_step;
  cannot_write(f, S1, RUN, "the store is away", false);
  assert_int_equal(f->told[W1].hold, 0);
  reports_steps(f, S1, RUN, DONE, step);
  time_passes(f, 1500);
  member_beats(f, S1);
  assert_true(f->told[S1].write_step > step);
  assert_int_equal(f->told[W1].hold, f->told[S1].write_step);
  core_run_checkpoint(f);
  assert_moved(f, f->told[S1].load_step);
}

static void one_that_comes_too_late_is_ordered_anew(void **state) {
  struct core_fixture *f = *state;
  uint64_t step;
  begin_to_drain(f);
  step = f->told[S1].write_step;
  cannot_write(f, S1, RUN, "block 0 is at a later version", true);
  assert_true(f->told[S1].write_step > step);
  assert_int_equal(f->told[W1].hold, f->told[S1].write_step);
}

/* Its last turn was over, say: nobody would come to a later version. */
static void a_run_without_workers_moves_from_where_it_stands(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 1);
  reports_steps(f, S1, RUN, 0, DONE);
  member_leaves(f, W1);
  member_leaves(f, W2);
  user_drains(f, "server-2");
  assert_int_equal(f->told[S1].write_step, DONE);
  cannot_write(f, S1, RUN, "block 0 is at a later version", true); /* the step had begun */
  assert_true(f->told[S1].write_step > DONE);
}

static void what_is_checkpointed_already_moves_at_once(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 1);
  user_drains(f, "server-2"); /* version 0 is the model */
  assert_int_equal(f->told[S1].writes, 0);
  assert_moved(f, 0);
}

static void a_held_run_moves_without_workers(void **state) {
  struct core_fixture *f = *state;
  f->hold = HOLD;
  core_run_begin(f, 1);
  reports_steps(f, S1, RUN, 0, HOLD);
  reports_held(f, S1, RUN, HOLD);
  reports_held(f, S2, RUN, HOLD);
  user_drains(f, "server-2");
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  core_run_checkpoint(f);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  f->incarnation = 1;
  server_loads(f, S1, RUN);
  reports_held(f, S1, RUN, HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  assert_int_equal(server_row(f, "server-2").runs, 0);
}

static void a_run_that_loads_is_loaded_elsewhere(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  server_joins(f, S2);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  assert_int_equal(f->told[S1].load_servers, 2);
  user_drains(f, "server-2");
  assert_moved(f, 0);
}

static void new_runs_are_not_placed_there(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  server_joins(f, S2);
  worker_joins(f, W1, 1);
  user_drains(f, "server-2");
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  assert_int_equal(f->told[S1].load_servers, 1);
  assert_int_equal(f->told[S2].loads, 0);
}

static void a_run_stays_while_the_others_have_no_room(void **state) {
  struct core_fixture *f = *state;
  static const uint32_t elems[BLOCKS] = {65536, 65536, 65536, 65536, 65536};
  f->block_elems = elems;
  f->memory_bytes = UINT64_C(44) * 65536 * 4; /* for half of the run and a block, not for all of it */
  begin_to_drain(f);
  assert_int_equal(f->told[S1].writes, 0);
  assert_int_equal(f->told[W1].hold, 0);
  assert_string_equal(
      info_of_run(f, RUN).message,
      "its blocks are to leave server-2 (host:2), but the other servers have no room for them");
  f->memory_bytes = 0;
  server_joins(f, S3);
  assert_true(f->told[S1].writes > 0);
}

/* The process says it of itself. */
static void a_successor_goes_on_draining(void **state) {
  struct core_fixture *f = *state;
  Weir__Hello hello = WEIR__HELLO__INIT;
  Weir__HostedRun hosted = WEIR__HOSTED_RUN__INIT, *runs[] = {&hosted};
  begin_to_drain(f);
  coordinator_is_succeeded(f, RUN, record_of(f));
  hosted.run = (char *)RUN;
  hosted.version = DONE;
  hello.runs = runs;
  hello.n_runs = 1;
  hello.role = WEIR__ROLE__SERVER;
  hello.host = (char *)"host";
  hello.fingerprint = (char *)"build-1";
  hello.draining = true;
  hello.id = (char *)"server-2";
  hello.address = (char *)"host:2";
  says_hello(f, S2_AGAIN, &hello);
  assert_true(server_row(f, "server-2").draining);
  server_joins_again(f, S1, S2_AGAIN + 1, RUN, DONE);
  worker_joins_again(f, W1, S2_AGAIN + 2, RUN);
  worker_loads(f, S2_AGAIN + 2, RUN);
  assert_int_equal(f->told[S2_AGAIN + 1].write_step, DONE); /* no worker had come back then */
  assert_int_equal(f->told[S2_AGAIN + 2].hold, DONE);
  writes_blocks(f, S2_AGAIN, RUN, f->told[S2].owns, true);
  writes_blocks(f, S2_AGAIN + 1, RUN, f->told[S1].owns, true);
  store_commits(f, RUN, NULL);
  assert_int_equal(f->told[S2_AGAIN + 1].load_servers, 1);
}

static void a_server_that_asks_to_leave_is_drained_and_told_so(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 1);
  reports_steps(f, S1, RUN, 0, DONE);
  member_drains(f, S2);
  assert_int_equal(f->told[S2].drains, 1);
  assert_true(server_row(f, "server-2").draining);
  assert_int_equal(f->told[S2].write_step, f->told[W1].hold);
  reports_steps(f, S1, RUN, DONE, f->told[S2].write_step);
  core_run_checkpoint(f);
  assert_moved(f, f->told[S2].write_step);
}

/* It knows by the silence that there is nobody to take its blocks. */
static void the_last_server_that_asks_to_leave_is_not_drained(void **state) {
  struct core_fixture *f = *state;
  core_run_begin(f, 1);
  member_drains(f, S2);
  member_drains(f, S1);
  assert_int_equal(f->told[S2].drains, 1);
  assert_int_equal(f->told[S1].drains, 0);
  assert_false(server_row(f, "server-1").draining);
}

static void bad_input_is_named(void **state) {
  struct core_fixture *f = *state;
  struct err err = ERR_NONE;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  assert_int_equal(
      coordinator_check_drain(f->coordinator, &viewer_of_all, WEIR__ROLE__SERVER, "server-1", &err),
      ERR_INVALID);
  assert_non_null(strstr(err.text, "server-1 is the last server"));
  server_joins(f, S2);
  err = (struct err)ERR_NONE;
  assert_int_equal(
      coordinator_check_drain(f->coordinator, &viewer_of_all, WEIR__ROLE__SERVER, "server-1", &err), 0);
  assert_int_equal(
      coordinator_check_drain(f->coordinator, &viewer_of_all, WEIR__ROLE__SERVER, "servr-1", &err),
      ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "no server 'servr-1' is here; did you mean 'server-1'?"));
  assert_int_equal(
      coordinator_check_drain(f->coordinator, &viewer_of_all, WEIR__ROLE__WORKER, "server-1", &err),
      ERR_NOT_FOUND);
  user_drains(f, "server-2");
  user_drains(f, "nobody");
  assert_int_equal(
      coordinator_check_drain(f->coordinator, &viewer_of_all, WEIR__ROLE__SERVER, "server-1", &err),
      ERR_INVALID);
  err = (struct err)ERR_NONE;
  assert_int_equal(
      coordinator_check_drain(f->coordinator, &viewer_of_all, WEIR__ROLE__SERVER, "server-2", &err), 0);
}

/* The servers' watcher cannot know that the workers are to stand. */
static void what_is_late_while_workers_stand_is_not_given_to_others(void **state) {
  struct core_fixture *f = *state;
  Weir__Range range = WEIR__RANGE__INIT, *ranges[] = {&range};
  Weir__Late late = WEIR__LATE__INIT;
  begin_to_drain(f);
  late.run = (char *)RUN;
  late.step = f->told[S1].write_step;
  late.waited_seconds = 60;
  range.end = MICROBATCHES;
  late.microbatches = ranges;
  late.n_microbatches = 1;
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_LATE, &late);
  assert_int_equal(f->told[W1].reissues + f->told[W2].reissues, 0);
}

static void a_run_that_pauses_meanwhile_pauses(void **state) {
  struct core_fixture *f = *state;
  begin_to_drain(f);
  user_pauses(f, RUN);
  core_run_checkpoint(f);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  assert_int_equal(server_row(f, "server-2").runs, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_run_leaves_a_server_from_a_checkpoint_at_which_its_workers_stand),
      TEST(workers_go_on_when_the_checkpoint_fails),
      TEST(one_that_comes_too_late_is_ordered_anew),
      TEST(a_run_without_workers_moves_from_where_it_stands),
      TEST(what_is_checkpointed_already_moves_at_once),
      TEST(a_held_run_moves_without_workers),
      TEST(a_run_that_loads_is_loaded_elsewhere),
      TEST(new_runs_are_not_placed_there),
      TEST(a_run_stays_while_the_others_have_no_room),
      TEST(a_successor_goes_on_draining),
      TEST(a_server_that_asks_to_leave_is_drained_and_told_so),
      TEST(the_last_server_that_asks_to_leave_is_not_drained),
      TEST(bad_input_is_named),
      TEST(what_is_late_while_workers_stand_is_not_given_to_others),
      TEST(a_run_that_pauses_meanwhile_pauses),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
