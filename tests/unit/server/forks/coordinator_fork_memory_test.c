/* The coordinator's core with forks whose parents stand in the memory of servers: who is told so, and which
   servers the fork gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "tests/support/coordinator/core_run.h"
#include "tests/support/coordinator/core_succession.h"

#define PARENT "mlp-bbbbbb"
enum { BASE = 4, SLOTS = 2, S3 = 11, AGAIN = 20 };

static void parent_begins(struct core_fixture *f) {
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
  weir__checkpoint_spec__init(&f->every);
  f->every.has_every_steps = true;
  f->every.every_steps = BASE;
  f->checkpoint = &f->every;
  user_submits(f, PARENT, 1, 1);
  worker_loads(f, W1, PARENT);
  server_loads(f, S1, PARENT);
  server_loads(f, S2, PARENT);
  assert_state(f, PARENT, WEIR__RUN_STATE__RUNNING);
}

static void parent_checkpoints(struct core_fixture *f) {
  reports_steps(f, S1, PARENT, 0, BASE);
  member_writes(f, S1, PARENT);
  member_writes(f, S2, PARENT);
  store_commits(f, PARENT, NULL);
}

/* It has made version BASE, which is its newest, and its checkpoint. */
static void parent_stands(struct core_fixture *f) {
  server_joins(f, S1);
  server_joins(f, S2);
  parent_begins(f);
  parent_checkpoints(f);
}

/* RUN, of what an incarnation of the parent made, and its worker has loaded it: servers are told to. */
static void user_forks(struct core_fixture *f, uint64_t incarnation) {
  user_forks_at(f, RUN, &(struct run_origin){PARENT, BASE, SLOTS, incarnation, false}, 1, 1);
  f->incarnation = 0;
  worker_loads(f, W2, RUN);
}

static void assert_from(struct core_fixture *f, uint64_t server, const char *parent, uint64_t incarnation) {
  assert_string_equal(f->told[server].load, RUN);
  assert_int_equal(f->told[server].load_step, BASE);
  assert_string_equal(f->told[server].from, parent);
  assert_int_equal(f->told[server].from_incarnation, incarnation);
  assert_int_equal(f->told[server].from_step, *parent ? BASE : 0);
}

static void servers_are_told_of_a_parent_that_stands_at_the_base(void **state) {
  struct core_fixture *f = *state;
  parent_stands(f);
  user_forks(f, 0);
  assert_from(f, S1, PARENT, 0);
  assert_from(f, S2, PARENT, 0);
  assert_string_equal(f->told[W2].from, "");
}

static void the_version_before_the_newest_may_be_there_and_none_before_it(void **state) {
  struct core_fixture *f = *state;
  parent_stands(f);
  reports_step(f, S1, PARENT, BASE);
  user_forks(f, 0);
  assert_from(f, S1, PARENT, 0);
  user_cancels(f, RUN);
}

static void servers_are_not_told_of_a_parent_that_has_gone_on(void **state) {
  struct core_fixture *f = *state;
  parent_stands(f);
  reports_steps(f, S1, PARENT, BASE, BASE + 2);
  user_forks(f, 0);
  assert_from(f, S1, "", 0);
  assert_from(f, S2, "", 0);
}

static void a_parent_that_is_over_or_paused_has_no_servers(void **state) {
  struct core_fixture *f = *state;
  parent_stands(f);
  user_cancels(f, PARENT);
  user_forks(f, 0);
  assert_from(f, S1, "", 0);
}

static void server_dies(struct core_fixture *f) {
  member_leaves(f, S2);
  server_replaces(f, S2, AGAIN, "host", "build-1");
  time_passes(f, 200);
  assert_int_equal(f->told[S1].load_incarnation, 1);
}

static void parent_rolls_back(struct core_fixture *f) {
  server_dies(f);
  assert_int_equal(f->told[S1].load_step, BASE);
}

static void a_parent_that_was_rolled_back_to_the_base_has_it(void **state) {
  struct core_fixture *f = *state;
  parent_stands(f);
  parent_rolls_back(f);
  user_forks(f, 0);
  assert_from(f, S1, PARENT, 1);
  assert_from(f, AGAIN, PARENT, 1);
}

/* Not to the bit, where the run is not deterministic. */
static void what_another_incarnation_made_is_not_what_is_in_memory(void **state) {
  struct core_fixture *f = *state;
  parent_stands(f);
  user_forks(f, 1);
  assert_from(f, S1, "", 0);
  user_cancels(f, RUN);
}

static void after_a_roll_back_only_its_own_checkpoint_is(void **state) {
  struct core_fixture *f = *state;
  parent_stands(f);
  parent_rolls_back(f);
  user_forks(f, 7);
  assert_from(f, S1, "", 0);
}

static void a_fork_of_a_former_coordinators_time_reads_the_store(void **state) {
  struct core_fixture *f = *state;
  parent_stands(f);
  user_forks(f, INCARNATION_UNKNOWN);
  assert_from(f, S1, "", 0);
}

/* A fork waits for a worker, and the coordinator is succeeded; the record says which incarnation made its
   base, plus one. The parent's servers come back with that version, the second one only if it still has it.
 */
static void succeed_before_the_fork_is_loaded(struct core_fixture *f, uint64_t parent_incarnation,
                                              bool has_second) {
  Weir__RunRecord *parent, *fork;
  parent_stands(f);
  member_leaves(f, W2);
  user_forks(f, 0);
  parent = record_of_run(f, PARENT);
  fork = record_of_run(f, RUN);
  assert_int_equal(fork->parent_incarnation, 1);
  fork->parent_incarnation = parent_incarnation;
  coordinator_is_succeeded(f, PARENT, parent);
  core_step(f, &(struct coordinator_event){.kind = EVENT_RUN_RESTORED, .restored = {.record = fork}});
  message_free(fork);
  server_joins_again(f, S1, S1 + AGAIN, PARENT, BASE);
  if (has_second)
    server_joins_again(f, S2, S2 + AGAIN, PARENT, BASE);
  else
    server_joins(f, S2 + AGAIN);
  worker_joins_again(f, W1, W1 + AGAIN, PARENT);
  worker_joins(f, W2 + AGAIN, 1);
  f->incarnation = 1;
  worker_loads(f, W2 + AGAIN, RUN);
  f->incarnation = 0;
}

static void a_successor_knows_what_the_parents_servers_have(void **state) {
  struct core_fixture *f = *state;
  succeed_before_the_fork_is_loaded(f, 1, true);
  assert_from(f, S1 + AGAIN, PARENT, 0);
  assert_from(f, S2 + AGAIN, PARENT, 0);
}

static void a_successor_knows_when_another_incarnation_made_it(void **state) {
  struct core_fixture *f = *state;
  succeed_before_the_fork_is_loaded(f, 2, true);
  assert_from(f, S1 + AGAIN, "", 0);
}

static void a_fork_whose_record_is_old_reads_the_store(void **state) {
  struct core_fixture *f = *state;
  succeed_before_the_fork_is_loaded(f, 0, true);
  assert_from(f, S1 + AGAIN, "", 0);
}

static void a_server_that_lost_its_part_is_not_asked_for_it(void **state) {
  struct core_fixture *f = *state;
  succeed_before_the_fork_is_loaded(f, 1, false);
  assert_from(f, S1 + AGAIN, PARENT, 0);
  assert_from(f, S2 + AGAIN, "", 0);
}

static void a_fork_gets_its_parents_servers_and_not_one_that_has_come_since(void **state) {
  struct core_fixture *f = *state;
  parent_stands(f);
  server_joins(f, S3);
  user_forks(f, 0);
  assert_from(f, S1, PARENT, 0);
  assert_int_equal(f->told[S1].load_servers, 2);
  assert_string_equal(f->told[S3].load, "");
}

static void a_fork_of_a_parent_that_has_gone_on_gets_all_servers(void **state) {
  struct core_fixture *f = *state;
  parent_stands(f);
  reports_steps(f, S1, PARENT, BASE, BASE + 2);
  server_joins(f, S3);
  user_forks(f, 0);
  assert_int_equal(f->told[S1].load_servers, 3);
  assert_string_equal(f->told[S3].load, RUN);
}

/* A server that was away for a moment is the last in joining order, and still has the same blocks. */
static void each_block_is_where_the_parents_is(void **state) {
  struct core_fixture *f = *state;
  bool owned[BLOCKS];
  parent_stands(f);
  memcpy(owned, f->told[S1].owns, sizeof owned);
  member_leaves(f, S1);
  server_joins_again(f, S1, AGAIN, PARENT, BASE);
  user_forks(f, 0);
  assert_from(f, AGAIN, PARENT, 0);
  assert_memory_equal(f->told[AGAIN].owns, owned, sizeof owned);
}

static void a_server_of_the_parent_that_is_lost_makes_all_be_chosen(void **state) {
  struct core_fixture *f = *state;
  parent_stands(f);
  server_joins(f, S3);
  member_leaves(f, S1);
  user_forks(f, 0);
  assert_from(f, S2, PARENT, 0); /* what it has of the parent it may still have of the fork */
  assert_int_equal(f->told[S2].load_servers, 2);
  assert_from(f, S3, "", 0);
}

/* What it made itself is not what its parent has, whatever version that stands at. */
static void a_fork_with_a_checkpoint_of_its_own_reads_that(void **state) {
  struct core_fixture *f = *state;
  parent_stands(f);
  user_forks(f, 0);
  server_loads(f, S1, RUN);
  server_loads(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  reports_steps(f, S1, RUN, BASE, 2 * BASE);
  member_writes(f, S1, RUN);
  member_writes(f, S2, RUN);
  store_commits(f, RUN, NULL);
  server_dies(f);
  assert_string_equal(f->told[S1].load, RUN);
  assert_int_equal(f->told[S1].load_step, 2 * BASE);
  assert_string_equal(f->told[S1].from, "");
}

/* With both of them on the servers, they roll back together. */
static void a_fork_that_is_rolled_back_to_its_base_is_loaded_from_memory_again(void **state) {
  struct core_fixture *f = *state;
  parent_stands(f);
  user_forks(f, 0);
  server_loads(f, S1, RUN);
  server_loads(f, S2, RUN);
  server_dies(f);
  assert_from(f, S1, PARENT, 1);
  assert_from(f, AGAIN, PARENT, 1);
}

/* Five blocks of the largest size: on two servers the parent has three of them on one, and the fork may have
   three and a half on each. On three servers the fork has at most two and two thirds on each. */
static void parent_and_fork_share_bounded_servers(struct core_fixture *f, double blocks) {
  static const uint32_t elems[BLOCKS] = {65536, 65536, 65536, 65536, 65536};
  f->block_elems = elems;
  f->memory_bytes = (uint64_t)(blocks * 44 * 65536);
  server_joins(f, S1);
  server_joins(f, S2);
  parent_begins(f);
  server_joins(f, S3);
  reports_steps(f, S1, PARENT, 0, BASE);
  for (uint64_t server = S1; server <= S2; server++) {
    bool owns[BLOCKS] = {0};
    for (uint32_t b = 0; b < BLOCKS; b++) /* of one size they go round */
      owns[b] = b % 2 == server - S1;
    writes_blocks(f, server, PARENT, owns, true);
  }
  store_commits(f, PARENT, NULL);
  user_forks(f, 0);
  assert_from(f, S1, PARENT, 0);
}

static void a_parents_servers_without_room_are_not_the_forks_alone(void **state) {
  struct core_fixture *f = *state;
  parent_and_fork_share_bounded_servers(f, 6.2);
  assert_int_equal(f->told[S1].load_servers, 3);
  assert_from(f, S3, "", 0);
}

static void a_parents_servers_with_room_are(void **state) {
  struct core_fixture *f = *state;
  parent_and_fork_share_bounded_servers(f, 6.6);
  assert_int_equal(f->told[S1].load_servers, 2);
  assert_string_equal(f->told[S3].load, "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(servers_are_told_of_a_parent_that_stands_at_the_base),
      TEST(the_version_before_the_newest_may_be_there_and_none_before_it),
      TEST(servers_are_not_told_of_a_parent_that_has_gone_on),
      TEST(a_parent_that_is_over_or_paused_has_no_servers),
      TEST(a_parent_that_was_rolled_back_to_the_base_has_it),
      TEST(what_another_incarnation_made_is_not_what_is_in_memory),
      TEST(after_a_roll_back_only_its_own_checkpoint_is),
      TEST(a_fork_of_a_former_coordinators_time_reads_the_store),
      TEST(a_successor_knows_what_the_parents_servers_have),
      TEST(a_successor_knows_when_another_incarnation_made_it),
      TEST(a_fork_whose_record_is_old_reads_the_store),
      TEST(a_server_that_lost_its_part_is_not_asked_for_it),
      TEST(a_fork_gets_its_parents_servers_and_not_one_that_has_come_since),
      TEST(a_fork_of_a_parent_that_has_gone_on_gets_all_servers),
      TEST(each_block_is_where_the_parents_is),
      TEST(a_server_of_the_parent_that_is_lost_makes_all_be_chosen),
      TEST(a_fork_with_a_checkpoint_of_its_own_reads_that),
      TEST(a_fork_that_is_rolled_back_to_its_base_is_loaded_from_memory_again),
      TEST(a_parents_servers_without_room_are_not_the_forks_alone),
      TEST(a_parents_servers_with_room_are),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
