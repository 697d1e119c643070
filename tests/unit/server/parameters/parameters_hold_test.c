/* A run that is held: what comes for the next step is kept, and applied once when the hold is raised. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "server/parameters/round/marks.h"
#include "tests/support/common/fake_coordinator.h"
#include "tests/support/parameters/parameters_calls.h"
#include "tests/support/parameters/role_fixture.h"
#include "tests/support/parameters/snapshot_fixture.h"

enum { HOLD = 2 };

/* What the order may have besides a hold. */
struct held_order {
  uint64_t hold; /* 0: none */
  bool is_clipped;
};

static const Weir__LoadRun *order_of(struct held_order of) {
  const Weir__LoadRun *order = make_order(1, 1);
  Weir__TrainSpec *train = order->spec->train;
  train->has_hold = of.hold > 0;
  train->hold = of.hold;
  train->has_clip_norm = of.is_clipped;
  train->clip_norm = 0.5;
  return order;
}

static void wait_version(struct snapshot_fixture *f, uint64_t version) {
  for (uint32_t block = 0; block < BLOCKS; block++) {
    float element;
    pull_first_element(&f->server, block, version, &element);
  }
  wait_shards(f);
}

static void assert_versions(const struct snapshot_fixture *f, uint64_t version) {
  uint64_t lowest, highest;
  hosted_run_versions(f->run, &lowest, &highest);
  assert_int_equal(lowest, version);
  assert_int_equal(highest, version);
}

/* Blocks whose update takes sums over others come to the next version with the last of them. */
static void push_together(struct snapshot_fixture *f, uint64_t step) {
  for (uint32_t chunk = 0; step == EVAL_EVERY && chunk < CHUNKS; chunk++)
    push_eval(&f->server, step, chunk, step);
  for (uint32_t block = 0; block < BLOCKS; block++)
    for (uint32_t m = 0; m < MICROBATCHES; m++) {
      struct attempt attempt;
      start_part(&f->server, &attempt, block, step, m);
      attempt_finish(&attempt);
      assert_int_equal(attempt.err.code, 0);
      free(attempt.data);
    }
  wait_version(f, step + 1);
}

static void push_evaluation(struct snapshot_fixture *f) {
  for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
    push_eval(&f->server, HOLD, chunk, HOLD);
}

/* Of a held run: all parts of the next step, which complete nothing. */
static void push_kept_step(struct snapshot_fixture *f) {
  for (uint32_t block = 0; block < BLOCKS; block++)
    for (uint32_t m = 0; m < MICROBATCHES; m++)
      push_part(&f->server, block, HOLD, m, HOLD);
}

/* Weights and slots of all blocks at the last version, of a run that was never held. */
static void assert_as_undisturbed(struct snapshot_fixture *f, bool is_clipped) {
  struct snapshot_fixture never;
  snapshot_fixture_init_order(&never, order_of((struct held_order){.is_clipped = is_clipped}));
  for (uint64_t step = 0; step < STEPS; step++)
    push_together(&never, step);
  for (uint32_t block = 0; block < BLOCKS; block++) {
    size_t size_bytes, expected_bytes;
    void *content = read_content(f->run, block, &size_bytes);
    void *expected = read_content(never.run, block, &expected_bytes);
    assert_int_equal(size_bytes, expected_bytes);
    assert_memory_equal(content, expected, size_bytes);
    free(content);
    free(expected);
  }
  snapshot_fixture_fini(&never);
}

static void come_to_the_hold(struct snapshot_fixture *f, bool is_clipped) {
  snapshot_fixture_init_order(f, order_of((struct held_order){HOLD, is_clipped}));
  for (uint64_t step = 0; step < HOLD; step++)
    push_together(f, step);
}

static void parts_that_come_at_the_hold_are_applied_once_when_it_is_raised(void **state) {
  (void)state;
  for (int is_clipped = 0; is_clipped < 2; is_clipped++) { /* whose update takes sums over all blocks */
    struct snapshot_fixture f;
    struct attempt waiting;
    come_to_the_hold(&f, is_clipped);
    push_evaluation(&f);
    push_kept_step(&f);
    push_kept_step(&f);
    start_pull(&f.server, &waiting, 0, STEPS);
    wait_parked(&f.server, 0, 1);
    assert_versions(&f, HOLD);
    hosted_run_raise_hold(f.run, STEPS);
    finish_with_version(&waiting, STEPS);
    wait_version(&f, STEPS);
    assert_as_undisturbed(&f, is_clipped);
    push_part(&f.server, 0, HOLD, 0, STEPS); /* late, as any */
    snapshot_fixture_fini(&f);
  }
}

static void a_step_that_is_half_there_goes_on_where_it_was(void **state) {
  struct snapshot_fixture f;
  (void)state;
  come_to_the_hold(&f, false);
  push_evaluation(&f);
  for (uint32_t block = 0; block < BLOCKS; block++)
    for (uint32_t m = 0; m < 4; m++)
      push_part(&f.server, block, HOLD, m, HOLD);
  hosted_run_raise_hold(f.run, UINT64_MAX);
  assert_versions(&f, HOLD);
  for (uint32_t block = 0; block < BLOCKS; block++)
    for (uint32_t m = 4; m < MICROBATCHES; m++)
      push_part(&f.server, block, HOLD, m, m + 1 < MICROBATCHES ? HOLD : STEPS);
  assert_as_undisturbed(&f, false);
  snapshot_fixture_fini(&f);
}

/* Also where parts of the next step wait already. */
static void a_run_that_rests_keeps_the_newest_version_alone_and_goes_on(void **state) {
  struct snapshot_fixture f;
  struct attempt old;
  (void)state;
  come_to_the_hold(&f, false);
  push_evaluation(&f);
  wait_shards(&f);
  assert_int_equal(f.run->blocks[0].older.n, 1);
  hosted_run_rest(f.run, HOLD - 1); /* of no hold of the run */
  wait_shards(&f);
  assert_int_equal(f.run->blocks[0].older.n, 1);
  for (uint32_t m = 0; m < 4; m++)
    push_part(&f.server, 0, HOLD, m, HOLD);
  hosted_run_rest(f.run, HOLD);
  wait_shards(&f);
  for (uint32_t block = 0; block < BLOCKS; block++) {
    const struct hosted_block *of = &f.run->blocks[block];
    assert_true(of->older.n == 0 && !of->spare && !of->next && !of->next_slots && of->current);
  }
  start_pull(&f.server, &old, 0, HOLD - 1);
  finish_with_error(&old, ERR_DROPPED, "was dropped");
  hosted_run_raise_hold(f.run, UINT64_MAX);
  hosted_run_rest(f.run, HOLD); /* of no hold of the run any more */
  for (uint32_t block = 0; block < BLOCKS; block++)
    for (uint32_t m = block == 0 ? 4 : 0; m < MICROBATCHES; m++)
      push_part(&f.server, block, HOLD, m, m + 1 < MICROBATCHES ? HOLD : STEPS);
  assert_as_undisturbed(&f, false);
  snapshot_fixture_fini(&f);
}

static void a_hold_is_never_lowered(void **state) {
  struct snapshot_fixture f;
  (void)state;
  snapshot_fixture_init_order(&f, order_of((struct held_order){HOLD, false}));
  hosted_run_raise_hold(f.run, 1);
  assert_int_equal(hosted_run_hold(f.run), HOLD);
  hosted_run_raise_hold(f.run, UINT64_MAX);
  hosted_run_raise_hold(f.run, HOLD);
  assert_true(hosted_run_hold(f.run) == UINT64_MAX);
  snapshot_fixture_fini(&f);
}

/* It is told behind its steps, and its evaluation while it is held. */
static void a_run_that_is_held_is_evaluated_and_lacks_nothing(void **state) {
  struct snapshot_fixture f;
  struct parameters_fixture *server = &f.server;
  uint64_t microbatches = 0, chunks = 0;
  (void)state;
  come_to_the_hold(&f, false);
  wait_told(server, HOLD + 1);
  assert_int_equal(server->told[HOLD], WEIR__MEMBER_MESSAGE__BODY_HELD);
  assert_int_equal(server->last_told[WEIR__MEMBER_MESSAGE__BODY_HELD]->held->step, HOLD);
  for (uint32_t b = 0; b < BLOCKS; b++)
    hosted_block_missing(&f.run->blocks[b], &microbatches, &chunks);
  assert_int_equal(microbatches, 0);
  assert_int_equal(chunks, (1 << CHUNKS) - 1);
  push_evaluation(&f);
  wait_told(server, HOLD + 2);
  assert_int_equal(server->told[HOLD + 1], WEIR__MEMBER_MESSAGE__BODY_EVAL);
  assert_int_equal(server->eval.step, HOLD);
  assert_versions(&f, HOLD);
  hosted_run_raise_hold(f.run, UINT64_MAX);
  wait_shards(&f);
  hosted_block_missing(&f.run->blocks[0], &microbatches, &chunks);
  assert_int_equal(microbatches, (1 << MICROBATCHES) - 1);
  snapshot_fixture_fini(&f);
}

/* The parts had memory reserved for them; the snapshot has what they would have changed in place. */
static void the_held_version_is_written_beside_the_parts_that_wait(void **state) {
  struct snapshot_fixture f;
  void *held[BLOCKS], *content;
  size_t size_bytes, held_bytes[BLOCKS];
  (void)state;
  come_to_the_hold(&f, false);
  push_evaluation(&f);
  push_kept_step(&f);
  for (uint32_t block = 0; block < BLOCKS; block++)
    held[block] = read_content(f.run, block, &held_bytes[block]);
  double_hang(&f.store, true);
  order_snapshot(&f, HOLD);
  wait_shards(&f);
  hosted_run_raise_hold(f.run, UINT64_MAX);
  wait_version(&f, STEPS);
  double_hang(&f.store, false);
  const Weir__BlocksWritten *written = wait_written(&f, 1, HOLD);
  for (size_t i = 0; i < written->n_blocks; i++) {
    char key[SHA256_HEX_SIZE];
    uint32_t block = written->blocks[i]->block;
    sha256_hex(held[block], held_bytes[block], key);
    assert_string_equal(written->blocks[i]->sha256, key);
  }
  assert_as_undisturbed(&f, false);
  for (uint32_t block = 0; block < BLOCKS; block++) {
    content = read_content(f.run, block, &size_bytes);
    assert_true(size_bytes == held_bytes[block] && memcmp(content, held[block], size_bytes) != 0);
    free(content);
    free(held[block]);
  }
  snapshot_fixture_fini(&f);
}

static void order_hold(struct role_fixture *f, uint64_t incarnation, uint64_t step) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__Hold hold = WEIR__HOLD__INIT;
  hold.run = (char *)"unit-1";
  hold.incarnation = incarnation;
  hold.step = step;
  order.term = 1;
  order.body_case = WEIR__ORDER__BODY_HOLD;
  order.hold = &hold;
  fake_coordinator_order(&f->coordinator, &order);
}

/* Also of a run that is not here, or no longer. */
static void orders_raise_the_hold_and_a_hello_tells_it(void **state) {
  struct role_fixture f;
  Weir__LoadRun load = *order_of((struct held_order){HOLD, false});
  const Weir__MemberMessage *message;
  (void)state;
  role_init(&f);
  order_hold(&f, 1, 0);
  send_load(&f, &load);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  for (uint64_t step = 0; step < HOLD; step++)
    push_version(&f.workers, step);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HELD, 1);
  assert_int_equal(message->held->step, HOLD);
  for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
    push_eval(&f.workers, HOLD, chunk, HOLD);
  for (uint32_t block = 0; block < BLOCKS; block++)
    for (uint32_t m = 0; m < MICROBATCHES; m++)
      push_part(&f.workers, block, HOLD, m, HOLD);
  lose_coordinator(&f, NULL);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HELLO,
                                          f.coordinator.n_messages[WEIR__MEMBER_MESSAGE__BODY_HELLO]);
  assert_int_equal(message->hello->runs[0]->hold, HOLD);
  order_hold(&f, 2, 0); /* of another incarnation */
  order_hold(&f, 1, HOLD);
  order_hold(&f, 1, STEPS);
  for (uint32_t block = 0; block < BLOCKS; block++) {
    float element;
    pull_first_element(&f.workers, block, STEPS, &element);
  }
  role_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_that_come_at_the_hold_are_applied_once_when_it_is_raised),
      cmocka_unit_test(a_step_that_is_half_there_goes_on_where_it_was),
      cmocka_unit_test(a_run_that_rests_keeps_the_newest_version_alone_and_goes_on),
      cmocka_unit_test(a_hold_is_never_lowered),
      cmocka_unit_test(a_run_that_is_held_is_evaluated_and_lacks_nothing),
      cmocka_unit_test(the_held_version_is_written_beside_the_parts_that_wait),
      cmocka_unit_test(orders_raise_the_hold_and_a_hello_tells_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
