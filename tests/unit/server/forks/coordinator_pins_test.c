/* The coordinator's core with forks of versions to come: they wait, and their parent makes that version and
   stands there until they have it. */
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
#include "tests/support/forks/fork_terms.h"

#define PARENT "mlp-bbbbbb"
#define SECOND "mlp-cccccc"
enum { EVERY = 4, PIN = 3, LATER = 6, AGAIN = 20 };

/* Of four steps each a checkpoint, with one worker; it has made the first. */
static void parent_begins(struct core_fixture *f) {
  server_joins(f, S1);
  server_joins(f, S2);
  worker_joins(f, W1, 1);
  weir__checkpoint_spec__init(&f->every);
  f->every.has_every_steps = f->every.has_keep = true;
  f->every.every_steps = EVERY;
  f->every.keep = 1;
  f->checkpoint = &f->every;
  user_submits(f, PARENT, 1, 1);
  worker_loads(f, W1, PARENT);
  server_loads(f, S1, PARENT);
  server_loads(f, S2, PARENT);
  assert_state(f, PARENT, WEIR__RUN_STATE__RUNNING);
  reports_step(f, S1, PARENT, 0);
}

static void user_forks(struct core_fixture *f, const char *id, uint64_t step) {
  struct run_origin origin = {
      .parent = PARENT, .step = step, .incarnation = INCARNATION_UNKNOWN, .is_to_come = true};
  user_forks_at(f, id, &origin, 1, 1);
}

static void parent_writes(struct core_fixture *f) {
  member_writes(f, S1, PARENT);
  member_writes(f, S2, PARENT);
}

/* The shell has taken it over; error: or could not. */
static void base_is_there(struct core_fixture *f, const char *id, uint64_t step, const char *error) {
  Weir__CheckpointInfo base = checkpoint_of_version(step);
  struct coordinator_event event = {
      .kind = EVENT_RUN_BASED,
      .based = {.run = id, .base = error ? NULL : &base, .slots_step = 1, .error = error}};
  core_step(f, &event);
}

static void parent_comes_to_the_pin(struct core_fixture *f) {
  reports_steps(f, S1, PARENT, 1, PIN);
  parent_writes(f);
  store_commits(f, PARENT, NULL);
}

static void assert_message(struct core_fixture *f, const char *run, const char *text) {
  const char *message = info_of_run(f, run).message;
  if (!strstr(message, text))
    fail_msg("\"%s\"", message);
}

static void a_fork_of_a_version_to_come_waits_and_has_nothing_of_the_cluster(void **state) {
  struct core_fixture *f = *state;
  parent_begins(f);
  worker_joins(f, W2, 1);
  user_forks(f, RUN, LATER);
  time_passes(f, 200);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_message(f, RUN, "waiting for step 6 of " PARENT);
  assert_true(info_of_run(f, RUN).base_to_come);
  assert_string_equal(f->told[W2].load, "");
  assert_string_equal(f->told[S1].load, PARENT);
  user_cancels(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__CANCELLED);
}

static void its_parent_checkpoints_that_version_and_stands_there(void **state) {
  struct core_fixture *f = *state;
  parent_begins(f);
  assert_int_equal(f->told[S1].write_step, EVERY);
  user_forks(f, RUN, PIN);
  assert_int_equal(f->told[S1].write_step, PIN); /* before the one that was on its way */
  assert_int_equal(f->told[W1].hold, PIN);
  reports_steps(f, S1, PARENT, 1, PIN);
  time_passes(f, 200);
  assert_message(f, PARENT, "stands at step 3");
  assert_int_equal(f->bases, 0);
  parent_writes(f);
  assert_int_equal(f->commit_step, PIN);
  store_commits(f, PARENT, NULL);
  time_passes(f, 200);
  assert_int_equal(f->bases, 1);
  assert_int_equal(f->told[W1].hold, PIN);
  assert_int_equal(f->told[S1].write_step, PIN); /* nothing later meanwhile */
  base_is_there(f, RUN, PIN, NULL);
  server_loads(f, S1, RUN);
  assert_int_equal(f->told[W1].hold, PIN);
  server_loads(f, S2, RUN);
  assert_int_equal(f->told[W1].hold, 0);
  assert_int_equal(f->told[S1].write_step, 2 * EVERY); /* the first may be too near */
  assert_message(f, PARENT, "");
}

static void servers_load_it_from_memory_before_it_has_a_worker(void **state) {
  struct core_fixture *f = *state;
  parent_begins(f);
  user_forks(f, RUN, PIN);
  parent_comes_to_the_pin(f);
  base_is_there(f, RUN, PIN, NULL);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  for (uint64_t server = S1; server <= S2; server++) {
    assert_string_equal(f->told[server].load, RUN);
    assert_string_equal(f->told[server].from, PARENT);
    assert_int_equal(f->told[server].from_step, PIN);
    assert_int_equal(f->told[server].load_slots_step, 1);
    server_loads(f, server, RUN);
  }
  reports_steps(f, S1, PARENT, PIN, PIN + 3);
  time_passes(f, GRACE_MS);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  worker_joins(f, W2, 1);
  worker_loads(f, W2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(info_of_run(f, RUN).step, PIN);
}

static void several_forks_wait_and_the_lowest_version_comes_first(void **state) {
  struct core_fixture *f = *state;
  parent_begins(f);
  user_forks(f, RUN, LATER);
  user_forks(f, SECOND, PIN);
  assert_int_equal(f->told[S1].write_step, PIN);
  assert_int_equal(f->told[W1].hold, PIN);
  parent_comes_to_the_pin(f);
  assert_int_equal(f->bases, 1);
  user_cancels(f, SECOND);
  assert_int_equal(f->told[W1].hold, LATER);
  assert_int_equal(f->told[S1].write_step, LATER);
}

static void a_checkpoint_that_failed_is_made_again_where_the_parent_stands(void **state) {
  struct core_fixture *f = *state;
  parent_begins(f);
  user_forks(f, RUN, PIN);
  reports_steps(f, S1, PARENT, 1, PIN);
  parent_writes(f);
  store_commits(f, PARENT, "connection refused");
  f->told[S1].writes = 0;
  time_passes(f, 2000);
  assert_int_equal(f->told[S1].writes, 1);
  assert_int_equal(f->told[S1].write_step, PIN);
  parent_writes(f);
  store_commits(f, PARENT, NULL);
  assert_int_equal(f->bases, 1);
}

static void a_base_that_could_not_be_read_is_asked_for_again_and_one_that_is_bad_fails_it(void **state) {
  struct core_fixture *f = *state;
  struct coordinator_event later = {.kind = EVENT_RUN_BASED, .based = {.run = RUN}};
  parent_begins(f);
  user_forks(f, RUN, PIN);
  parent_comes_to_the_pin(f);
  core_step(f, &later);
  assert_int_equal(f->bases, 1);
  assert_int_equal(f->told[W1].hold, PIN);
  time_passes(f, 2000);
  assert_int_equal(f->bases, 2);
  base_is_there(f, RUN, PIN, "its layout is unknown");
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_message(f, RUN, "its layout is unknown");
  time_passes(f, 200);
  assert_int_equal(f->told[W1].hold, 0);
}

static void a_parent_that_ends_before_fails_the_fork_by_name(void **state) {
  struct core_fixture *f = *state;
  parent_begins(f);
  user_forks(f, RUN, PIN);
  user_cancels(f, PARENT);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_message(f, RUN, "run '" PARENT "' is cancelled at step 1, and has not made step 3");
}

static void a_parent_that_ends_with_the_version_made_leaves_it_to_the_fork(void **state) {
  struct core_fixture *f = *state;
  parent_begins(f);
  user_forks(f, RUN, PIN);
  parent_comes_to_the_pin(f);
  user_cancels(f, PARENT);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_int_equal(f->n_dropped, 0);
  base_is_there(f, RUN, PIN, NULL);
  assert_false(info_of_run(f, RUN).base_to_come);
  worker_loads(f, W1, RUN);
  assert_string_equal(f->told[S1].load, RUN);
  assert_string_equal(f->told[S1].from, "");
}

static void a_fork_that_failed_waits_again_when_both_are_resumed(void **state) {
  struct core_fixture *f = *state;
  parent_begins(f);
  user_forks(f, RUN, PIN);
  user_cancels(f, PARENT);
  user_resumes(f, PARENT, 0);
  user_resumes(f, RUN, PIN);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  f->incarnation = 1;
  worker_loads(f, W1, PARENT);
  server_loads(f, S1, PARENT);
  server_loads(f, S2, PARENT);
  assert_state(f, PARENT, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[W1].hold, PIN);
}

static void a_parent_that_had_passed_the_version_fails_the_fork_and_goes_on(void **state) {
  struct core_fixture *f = *state;
  parent_begins(f);
  user_forks(f, RUN, PIN);
  cannot_write(f, S1, PARENT, "gone", true);
  reports_steps(f, S1, PARENT, 1, PIN + 1);
  time_passes(f, 200);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_message(f, RUN, "had passed step 3");
  assert_int_equal(f->told[W1].hold, 0);
}

static void a_parent_that_is_rolled_back_makes_the_version_again(void **state) {
  struct core_fixture *f = *state;
  parent_begins(f);
  user_forks(f, RUN, PIN);
  reports_steps(f, S1, PARENT, 1, PIN);
  member_leaves(f, S2);
  server_replaces(f, S2, AGAIN, "host", "build-1");
  time_passes(f, 200);
  assert_int_equal(f->told[S1].load_incarnation, 1);
  f->incarnation = 1;
  server_loads(f, S1, PARENT);
  server_loads(f, AGAIN, PARENT);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_int_equal(f->told[W1].hold, PIN);
  assert_int_equal(f->told[S1].write_step, PIN);
  reports_steps(f, S1, PARENT, 0, PIN);
  member_writes(f, S1, PARENT);
  member_writes(f, AGAIN, PARENT);
  store_commits(f, PARENT, NULL);
  assert_int_equal(f->bases, 1);
}

static void a_parent_that_pauses_does_so_where_the_fork_is_to_begin_or_before(void **state) {
  struct core_fixture *f = *state;
  parent_begins(f);
  user_forks(f, RUN, PIN);
  user_pauses(f, PARENT);
  assert_true(f->told[S1].write_step <= PIN);
  reports_steps(f, S1, PARENT, 1, PIN);
  parent_writes(f);
  store_commits(f, PARENT, NULL);
  assert_state(f, PARENT, WEIR__RUN_STATE__PAUSED);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_int_equal(f->bases, 1);
}

static void without_room_it_reads_the_store_in_its_turn_and_the_parent_goes_on(void **state) {
  struct core_fixture *f = *state;
  static const uint32_t elems[BLOCKS] = {65536, 65536, 65536, 65536, 65536};
  f->block_elems = elems;
  f->memory_bytes = (uint64_t)(4 * 44 * 65536);
  parent_begins(f);
  user_forks(f, RUN, PIN);
  reports_steps(f, S1, PARENT, 1, PIN);
  for (uint64_t server = S1; server <= S2; server++) {
    bool owns[BLOCKS] = {0};
    for (uint32_t b = 0; b < BLOCKS; b++) /* of one size they go round */
      owns[b] = b % 2 == server - S1;
    writes_blocks(f, server, PARENT, owns, true);
  }
  store_commits(f, PARENT, NULL);
  base_is_there(f, RUN, PIN, NULL);
  time_passes(f, 200);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_message(f, RUN, "waiting for memory");
  assert_int_equal(f->told[W1].hold, 0);
}

static void one_that_stands_in_memory_gives_it_up_to_a_run_that_needs_it(void **state) {
  struct core_fixture *f = *state;
  static const uint32_t elems[BLOCKS] = {65536, 65536, 65536, 65536, 65536};
  f->block_elems = elems;
  f->memory_bytes = (uint64_t)(8 * 44 * 65536);
  parent_begins(f);
  user_forks(f, RUN, PIN);
  reports_steps(f, S1, PARENT, 1, PIN);
  for (uint64_t server = S1; server <= S2; server++) {
    bool owns[BLOCKS] = {0};
    for (uint32_t b = 0; b < BLOCKS; b++)
      owns[b] = b % 2 == server - S1;
    writes_blocks(f, server, PARENT, owns, true);
  }
  store_commits(f, PARENT, NULL);
  base_is_there(f, RUN, PIN, NULL);
  server_loads(f, S1, RUN);
  server_loads(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  f->priority = 1;
  user_submits(f, SECOND, 1, 1);
  time_passes(f, 200);
  assert_string_equal(f->told[S1].unload, RUN);
  assert_string_equal(f->told[S2].unload, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_false(info_of_run(f, RUN).base_to_come);
}

static void a_successor_knows_what_waits(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord *parent, *fork;
  parent_begins(f);
  user_forks(f, RUN, PIN);
  parent = record_of_run(f, PARENT);
  fork = record_of_run(f, RUN);
  assert_true(fork->base_to_come);
  coordinator_is_succeeded(f, PARENT, parent);
  core_step(f, &(struct coordinator_event){.kind = EVENT_RUN_RESTORED, .restored = {.record = fork}});
  message_free(fork);
  server_joins_again(f, S1, S1 + AGAIN, PARENT, 1);
  server_joins_again(f, S2, S2 + AGAIN, PARENT, 1);
  worker_joins_again(f, W1, W1 + AGAIN, PARENT);
  worker_loads(f, W1 + AGAIN, PARENT);
  time_passes(f, 200);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_int_equal(f->told[W1 + AGAIN].hold, PIN);
  assert_int_equal(f->told[S1 + AGAIN].write_step, PIN);
}

static void a_fork_whose_parent_is_gone_fails_once_all_runs_are_restored(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord *fork;
  parent_begins(f);
  user_forks(f, RUN, PIN);
  fork = record_of_run(f, RUN);
  coordinator_is_succeeded(f, RUN, fork);
  time_passes(f, 200);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_message(f, RUN, "run '" PARENT "' was deleted");
}

static void a_store_that_was_emptied_takes_nothing_from_a_fork_that_waits(void **state) {
  struct core_fixture *f = *state;
  parent_begins(f);
  user_forks(f, RUN, PIN);
  message_free(record_of(f));
  time_passes(f, 200);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_int_equal(f->told[W1].hold, PIN);
}

static void a_paused_fork_holds_nobody(void **state) {
  struct core_fixture *f = *state;
  parent_begins(f);
  user_forks(f, RUN, PIN);
  user_pauses(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  time_passes(f, 200);
  assert_int_equal(f->told[W1].hold, 0);
  user_resumes(f, RUN, PIN);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_int_equal(f->told[W1].hold, PIN);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_fork_of_a_version_to_come_waits_and_has_nothing_of_the_cluster),
      TEST(its_parent_checkpoints_that_version_and_stands_there),
      TEST(servers_load_it_from_memory_before_it_has_a_worker),
      TEST(several_forks_wait_and_the_lowest_version_comes_first),
      TEST(a_checkpoint_that_failed_is_made_again_where_the_parent_stands),
      TEST(a_base_that_could_not_be_read_is_asked_for_again_and_one_that_is_bad_fails_it),
      TEST(a_parent_that_ends_before_fails_the_fork_by_name),
      TEST(a_parent_that_ends_with_the_version_made_leaves_it_to_the_fork),
      TEST(a_fork_that_failed_waits_again_when_both_are_resumed),
      TEST(a_parent_that_had_passed_the_version_fails_the_fork_and_goes_on),
      TEST(a_parent_that_is_rolled_back_makes_the_version_again),
      TEST(a_parent_that_pauses_does_so_where_the_fork_is_to_begin_or_before),
      TEST(without_room_it_reads_the_store_in_its_turn_and_the_parent_goes_on),
      TEST(one_that_stands_in_memory_gives_it_up_to_a_run_that_needs_it),
      TEST(a_successor_knows_what_waits),
      TEST(a_fork_whose_parent_is_gone_fails_once_all_runs_are_restored),
      TEST(a_store_that_was_emptied_takes_nothing_from_a_fork_that_waits),
      TEST(a_paused_fork_holds_nobody),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
