/* The coordinator's core with forks: runs whose first version is a checkpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_run.h"
#include "tests/support/coordinator/core_succession.h"

#define PARENT "mlp-bbbbbb"
enum { BASE = 3, SLOTS = 2, AGAIN = 20 };
static const char base_name[] = "runs/mlp-aaaaaa/checkpoints/00000000000000000003";

/* RUN, forked from PARENT at BASE; a checkpoint every two steps, of which one is kept. */
static void user_forks(struct core_fixture *f) {
  weir__checkpoint_spec__init(&f->every);
  f->every.has_every_steps = f->every.has_keep = true;
  f->every.every_steps = 2;
  f->every.keep = 1;
  f->checkpoint = &f->every;
  user_forks_at(f, RUN, &(struct run_origin){PARENT, BASE, SLOTS, 0, false}, 2, 0);
}

static void members_join(struct core_fixture *f) {
  server_joins(f, S1);
  server_joins(f, S2);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
}

static void fork_starts(struct core_fixture *f) {
  members_join(f);
  user_forks(f);
  worker_loads(f, W1, RUN);
  worker_loads(f, W2, RUN);
  server_loads(f, S1, RUN);
  server_loads(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void assert_lost(struct core_fixture *f) {
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  if (!strstr(info_of_run(f, RUN).message,
              "the store has lost the checkpoint of step 3 at which this fork of " PARENT))
    fail_msg("%s", info_of_run(f, RUN).message);
  assert_false(info_of_run(f, RUN).bad_input);
}

static void a_fork_begins_at_its_base_once_that_is_in_the_store(void **state) {
  struct core_fixture *f = *state;
  f->is_store_away = true;
  members_join(f);
  user_forks(f);
  assert_int_equal(info_of_run(f, RUN).steps, STEPS); /* of the parent's data */
  assert_int_equal(info_of_run(f, RUN).step, BASE);
  assert_string_equal(info_of_run(f, RUN).parent, PARENT);
  assert_int_equal(info_of_run(f, RUN).parent_step, BASE);
  worker_loads(f, W1, RUN);
  worker_loads(f, W2, RUN);
  assert_string_equal(f->told[S1].load, "");
  store_saves(f, RUN, 0, WEIR__RUN_STATE__LOADING);
  for (int server = S1; server <= S2; server++) {
    assert_string_equal(f->told[server].load, RUN);
    assert_int_equal(f->told[server].load_step, BASE);
    assert_int_equal(f->told[server].load_slots_step, SLOTS);
    assert_string_equal(f->told[server].manifest, base_name);
  }
}

static void a_worker_with_other_data_than_the_parents_is_refused(void **state) {
  struct core_fixture *f = *state;
  members_join(f);
  user_forks(f);
  member_loads(f, W1, RUN, "other", SAMPLES);
  assert_non_null(
      strstr(worker_row(f, W1).message, "has a dataset of hash other, worker-9 (elsewhere) of data"));
  worker_loads(f, W2, RUN);
  assert_string_equal(worker_row(f, W2).message, "");
}

static void a_fork_without_a_checkpoint_of_its_own_rolls_back_to_its_base(void **state) {
  struct core_fixture *f = *state;
  fork_starts(f);
  reports_step(f, S1, RUN, BASE);
  member_leaves(f, S2);
  member_beats(f, S1), member_beats(f, W1), member_beats(f, W2);
  time_passes(f, GRACE_MS + 100);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_int_equal(info_of_run(f, RUN).step, BASE);
  assert_int_equal(f->told[S1].load_incarnation, 1);
  assert_int_equal(f->told[S1].load_step, BASE);
  assert_int_equal(f->told[S1].load_slots_step, SLOTS);
  assert_string_equal(f->told[S1].manifest, base_name);
}

static void the_base_is_kept_whatever_else_is_not(void **state) {
  struct core_fixture *f = *state;
  Weir__ListCheckpointsReply reply;
  struct arena arena;
  fork_starts(f);
  for (uint64_t step = 6; step <= 8; step += 2) {
    reports_steps(f, S1, RUN, info_of_run(f, RUN).step, step);
    assert_int_equal(f->told[S1].write_step, step);
    core_run_checkpoint(f);
  }
  assert_int_equal(f->n_dropped, 1);
  assert_int_equal(f->dropped[0], 6);
  arena_init(&arena);
  coordinator_list_checkpoints(f->coordinator, RUN, &arena, &reply);
  assert_int_equal(reply.n_checkpoints, 2);
  assert_int_equal(reply.checkpoints[0]->step, BASE);
  assert_int_equal(reply.checkpoints[1]->step, 8);
  arena_fini(&arena);
}

static void a_fork_whose_base_cannot_be_read_fails_and_says_so(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRefused refused = WEIR__RUN_REFUSED__INIT;
  members_join(f);
  user_forks(f);
  worker_loads(f, W1, RUN);
  worker_loads(f, W2, RUN);
  refused.run = (char *)RUN;
  refused.message = "store: no such record";
  refused.lost_checkpoint = true;
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_REFUSED, &refused);
  assert_lost(f);
  assert_non_null(strstr(info_of_run(f, RUN).message, "store: no such record"));
  assert_string_equal(f->told[S2].unload, RUN);
}

static void the_store_is_emptied(struct core_fixture *f) {
  core_step(f, &(struct coordinator_event){.kind = EVENT_STORE_EMPTIED});
}

static void a_fork_that_no_server_has_fails_where_the_store_is_emptied(void **state) {
  struct core_fixture *f = *state;
  user_forks(f);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  the_store_is_emptied(f);
  assert_lost(f);
}

static void a_paused_fork_fails_where_the_store_is_emptied(void **state) {
  struct core_fixture *f = *state;
  user_forks(f);
  user_pauses(f, RUN);
  assert_string_equal(info_of_run(f, RUN).message, "paused at step 3");
  the_store_is_emptied(f);
  assert_lost(f);
}

static void a_fork_that_servers_have_goes_on_where_the_store_is_emptied(void **state) {
  struct core_fixture *f = *state;
  fork_starts(f);
  reports_step(f, S1, RUN, BASE);
  the_store_is_emptied(f);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[S1].write_step, 6); /* at once, in place of what is gone */
  reports_steps(f, S1, RUN, BASE + 1, 6);
  core_run_checkpoint(f);
  member_leaves(f, S2);
  member_beats(f, S1), member_beats(f, W1), member_beats(f, W2);
  time_passes(f, GRACE_MS + 100);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_int_equal(f->told[S1].load_step, 6);
}

static void one_that_loses_a_server_before_its_next_checkpoint_fails(void **state) {
  struct core_fixture *f = *state;
  fork_starts(f);
  the_store_is_emptied(f);
  member_leaves(f, S2);
  member_beats(f, S1), member_beats(f, W1), member_beats(f, W2);
  time_passes(f, GRACE_MS + 100);
  assert_lost(f);
}

static void a_successor_knows_where_a_fork_began(void **state) {
  struct core_fixture *f = *state;
  Weir__CheckpointInfo base = WEIR__CHECKPOINT_INFO__INIT;
  Weir__RunRecord *record;
  fork_starts(f);
  record = record_of(f); /* of an emptied store: its checkpoints are put back */
  record->state = WEIR__RUN_STATE__LOADING;
  base.step = BASE;
  record->n_checkpoints = 1;
  record->checkpoints = mem_new(sizeof *record->checkpoints);
  record->checkpoints[0] = message_copy(&base);
  coordinator_is_succeeded(f, RUN, record);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_string_equal(info_of_run(f, RUN).parent, PARENT);
  assert_int_equal(info_of_run(f, RUN).step, BASE);
  server_joins(f, AGAIN);
  worker_joins(f, AGAIN + 1, 1);
  worker_loads(f, AGAIN + 1, RUN);
  assert_int_equal(f->told[AGAIN].load_step, BASE);
  assert_int_equal(f->told[AGAIN].load_slots_step, SLOTS);
}

static void a_successor_that_finds_no_base_fails_the_fork(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord *record;
  fork_starts(f);
  record = record_of(f);
  record->state = WEIR__RUN_STATE__QUEUED;
  coordinator_is_succeeded(f, RUN, record);
  assert_lost(f);
}

static void a_fork_is_not_resumed_before_its_base(void **state) {
  struct core_fixture *f = *state;
  user_forks(f);
  user_pauses(f, RUN);
  user_resumes(f, RUN, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  user_resumes(f, RUN, BASE);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_int_equal(info_of_run(f, RUN).step, BASE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_fork_begins_at_its_base_once_that_is_in_the_store),
      TEST(a_worker_with_other_data_than_the_parents_is_refused),
      TEST(a_fork_without_a_checkpoint_of_its_own_rolls_back_to_its_base),
      TEST(the_base_is_kept_whatever_else_is_not),
      TEST(a_fork_whose_base_cannot_be_read_fails_and_says_so),
      TEST(a_fork_that_no_server_has_fails_where_the_store_is_emptied),
      TEST(a_paused_fork_fails_where_the_store_is_emptied),
      TEST(a_fork_that_servers_have_goes_on_where_the_store_is_emptied),
      TEST(one_that_loses_a_server_before_its_next_checkpoint_fails),
      TEST(a_successor_knows_where_a_fork_began),
      TEST(a_successor_that_finds_no_base_fails_the_fork),
      TEST(a_fork_is_not_resumed_before_its_base),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
