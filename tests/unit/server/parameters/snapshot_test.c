/* Checkpoints are written beside training: each is one version, whole, and training is as without it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/memory.h"
#include "tests/support/parameters/parameters_calls.h"
#include "tests/support/parameters/snapshot_fixture.h"

/* What blocks hold at each version of a run that nobody disturbs. */
struct history {
  void *content[STEPS + 1][BLOCKS];
  size_t size_bytes[STEPS + 1][BLOCKS];
};

static struct history history;

static int make_history(void **state) {
  struct parameters_fixture f;
  struct err err;
  struct hosted_run *run;
  (void)state;
  parameters_fixture_init(&f, 1);
  run = run_table_find(&f.runs, "unit-1", 1, &err);
  for (uint64_t version = 0; version <= STEPS; version++) {
    for (uint32_t b = 0; b < BLOCKS; b++)
      history.content[version][b] = read_content(run, b, &history.size_bytes[version][b]);
    if (version < STEPS)
      push_version(&f, version);
  }
  hosted_run_put(run);
  parameters_fixture_fini(&f);
  return 0;
}

static int free_history(void **state) {
  (void)state;
  for (int version = 0; version <= STEPS; version++)
    for (int b = 0; b < BLOCKS; b++)
      free(history.content[version][b]);
  return 0;
}

static void assert_holds_version(struct snapshot_fixture *f, const Weir__BlocksWritten *written,
                                 uint64_t version) {
  for (uint32_t b = 0; b < BLOCKS; b++) {
    const struct double_item *item = double_find(&f->store, written->blocks[b]->sha256);
    assert_non_null(item);
    assert_int_equal(written->blocks[b]->block, b);
    assert_int_equal(written->blocks[b]->bytes, history.size_bytes[version][b]);
    assert_int_equal(item->size, history.size_bytes[version][b]);
    assert_memory_equal(item->data, history.content[version][b], item->size);
  }
}

static void assert_run_is_at(struct snapshot_fixture *f, uint64_t version) {
  for (uint32_t b = 0; b < BLOCKS; b++) {
    size_t size_bytes;
    void *content = read_content(f->run, b, &size_bytes);
    assert_int_equal(size_bytes, history.size_bytes[version][b]);
    assert_memory_equal(content, history.content[version][b], size_bytes);
    free(content);
  }
}

static void a_coming_version_is_written_while_the_run_goes_on(void **state) {
  struct snapshot_fixture f;
  (void)state;
  snapshot_fixture_init(&f);
  double_hang(&f.store, true);
  order_snapshot(&f, 1);
  for (uint64_t step = 0; step < STEPS; step++)
    push_version(&f.server, step);
  assert_int_equal(f.n_answers, 0);
  double_hang(&f.store, false);
  assert_holds_version(&f, wait_written(&f, 1, 1), 1);
  assert_run_is_at(&f, STEPS);
  snapshot_fixture_fini(&f);
}

static void a_version_that_is_there_is_written_at_once(void **state) {
  struct snapshot_fixture f;
  (void)state;
  snapshot_fixture_init(&f);
  order_snapshot(&f, 0);
  assert_holds_version(&f, wait_written(&f, 1, 0), 0);
  for (uint64_t step = 0; step < STEPS; step++)
    push_version(&f.server, step);
  order_snapshot(&f, STEPS); /* nothing steps any more */
  assert_holds_version(&f, wait_written(&f, 2, STEPS), STEPS);
  snapshot_fixture_fini(&f);
}

static void what_is_in_the_store_is_not_written_again(void **state) {
  struct snapshot_fixture f;
  const Weir__BlocksWritten *written;
  (void)state;
  snapshot_fixture_init(&f);
  order_snapshot(&f, 0);
  written = wait_written(&f, 1, 0);
  assert_int_equal(written->written_bytes, history.size_bytes[0][0] + history.size_bytes[0][1] +
                                               history.size_bytes[0][2] + history.size_bytes[0][3]);
  order_snapshot(&f, 0);
  written = wait_written(&f, 2, 0);
  assert_int_equal(written->written_bytes, 0);
  assert_holds_version(&f, written, 0);
  snapshot_fixture_fini(&f);
}

static void a_version_that_a_block_has_passed_is_too_late(void **state) {
  struct snapshot_fixture f;
  const Weir__BlocksWritten *written;
  (void)state;
  snapshot_fixture_init(&f);
  push_step(&f.server, 2, 0);
  order_snapshot(&f, 0);
  written = wait_answer(&f, 1);
  assert_string_equal(written->error, "run 'unit-1', version 0: block 2 is at version 1 already");
  assert_true(written->is_too_late && written->is_last);
  assert_int_equal(written->n_blocks, 0);
  for (uint32_t b = 0; b < BLOCKS; b++)
    if (b != 2)
      push_step(&f.server, b, 0);
  push_step(&f.server, 2, 1);
  order_snapshot(&f, 2); /* the others are behind */
  for (uint32_t b = 0; b < BLOCKS; b++)
    if (b != 2)
      push_step(&f.server, b, 1);
  assert_holds_version(&f, wait_written(&f, 2, 2), 2);
  snapshot_fixture_fini(&f);
}

static void a_newer_order_ends_an_older_one_while_the_store_hangs(void **state) {
  struct snapshot_fixture f;
  (void)state;
  snapshot_fixture_init(&f);
  double_hang(&f.store, true);
  order_snapshot(&f, 0);
  double_wait_hanging(&f.store);
  order_snapshot(&f, 1); /* does not wait for the store */
  for (uint64_t step = 0; step < STEPS; step++)
    push_version(&f.server, step);
  double_hang(&f.store, false);
  assert_holds_version(&f, wait_written(&f, 1, 1), 1);
  order_snapshot(&f, STEPS);
  wait_written(&f, 2, STEPS); /* and the first order was never answered */
  snapshot_fixture_fini(&f);
}

/* How many refer to the present weights and slots of a block, the block itself included. */
static uint32_t count_refs(struct snapshot_fixture *f, uint32_t index) {
  const struct hosted_block *block = &f->run->blocks[index];
  return __atomic_load_n(&block->current->refs, __ATOMIC_ACQUIRE) +
         (block->slots ? __atomic_load_n(&block->slots->refs, __ATOMIC_ACQUIRE) : 0);
}

static void assert_end_lets_go(void (*end)(struct snapshot_fixture *f)) {
  struct snapshot_fixture f;
  snapshot_fixture_init(&f);
  order_snapshot(&f, 1);
  push_step(&f.server, 0, 0);
  push_step(&f.server, 2, 0);
  assert_int_equal(count_refs(&f, 0), 4);
  assert_int_equal(count_refs(&f, 2), 4);
  end(&f);
  wait_shards(&f);
  assert_int_equal(count_refs(&f, 0), 2);
  assert_int_equal(count_refs(&f, 2), 2);
  assert_int_equal(f.store.n_puts, 0); /* never was there a batch */
  assert_int_equal(f.n_answers, 0);
  snapshot_fixture_fini(&f);
}

static void end_by_cancel(struct snapshot_fixture *f) {
  snapshot_writer_cancel(f->writer, "unit-2"); /* another's */
  assert_int_equal(count_refs(f, 0), 4);
  snapshot_writer_cancel(f->writer, "unit-1");
}

static void end_by_order(struct snapshot_fixture *f) {
  order_snapshot(f, 3);
}

static void load_newer_incarnation(struct snapshot_fixture *f) {
  struct err err;
  struct hosted_run *newer;
  assert_int_equal(load_order(&f->server, make_order(2, 1), &err), 0);
  newer = run_table_find(&f->server.runs, "unit-1", 2, &err); /* its jobs come behind the unloading */
  assert_non_null(newer);
  for (uint32_t b = 0; b < 2; b++) {
    struct parked_probe probe = {.job = {.run = parked_probe_run}, .block = &newer->blocks[b]};
    sem_init(&probe.done, 0, 0);
    shard_post(probe.block->queue, &probe.job);
    sem_wait(&probe.done);
    sem_destroy(&probe.done);
  }
  hosted_run_put(newer);
}

static void a_snapshot_that_ends_early_lets_go_of_all_that_it_pinned(void **state) {
  (void)state;
  assert_end_lets_go(end_by_cancel);
  assert_end_lets_go(end_by_order);
}

static void unloading_a_run_ends_its_snapshot(void **state) {
  struct snapshot_fixture f;
  (void)state;
  snapshot_fixture_init(&f);
  order_snapshot(&f, 1);
  push_step(&f.server, 0, 0);
  push_step(&f.server, 2, 0);
  assert_int_equal(count_refs(&f, 0), 4);
  load_newer_incarnation(&f);
  assert_int_equal(count_refs(&f, 0), 2);
  assert_int_equal(count_refs(&f, 2), 2);
  order_snapshot(&f, 2); /* of a run that is unloaded: ends by itself */
  snapshot_fixture_fini(&f);
  assert_int_equal(f.n_answers, 0);
}

static void a_store_that_fails_fails_the_snapshot_and_not_the_run(void **state) {
  struct snapshot_fixture f;
  const Weir__BlocksWritten *written;
  (void)state;
  snapshot_fixture_init(&f);
  double_fail(&f.store, 1, ERR_UNAVAILABLE);
  order_snapshot(&f, 1);
  push_version(&f.server, 0);
  written = wait_answer(&f, 1);
  assert_string_equal(written->error, "run 'unit-1', version 1: store: nobody answers");
  assert_true(written->is_last && !written->is_too_late && written->n_blocks == 0);
  order_snapshot(&f, 2);
  push_version(&f.server, 1);
  assert_holds_version(&f, wait_written(&f, 2, 2), 2);
  snapshot_fixture_fini(&f);
}

/* Of weights and of slots, that the block refers to. */
static void count_buffers(const struct hosted_block *block, int *weights, int *slots) {
  *weights = !!block->current + (int)block->older.n + !!block->next + !!block->spare;
  *slots = !!block->slots + !!block->next_slots;
}

static void a_snapshot_takes_one_copy_of_memory_at_most(void **state) {
  struct snapshot_fixture f;
  struct buffer *pinned_weights, *pinned_slots;
  const struct hosted_block *block;
  int weights, slots;
  (void)state;
  snapshot_fixture_init(&f);
  block = &f.run->blocks[0];
  double_hang(&f.store, true);
  order_snapshot(&f, 0);
  wait_shards(&f);
  pinned_weights = buffer_get(block->current);
  pinned_slots = buffer_get(block->slots);
  for (uint64_t step = 0; step < STEPS; step++) {
    push_version(&f.server, step);
    count_buffers(block, &weights, &slots);
    weights += older_find(&block->older, block->version, block->version - 1) != pinned_weights &&
               block->spare != pinned_weights;
    assert_true(weights <= 2 + 1);
    assert_int_equal(slots, 1); /* and the pinned ones */
    assert_ptr_not_equal(block->slots, pinned_slots);
  }
  double_hang(&f.store, false);
  wait_written(&f, 1, 0);
  assert_true(buffer_is_sole(pinned_slots)); /* ours */
  buffer_put(pinned_weights);
  buffer_put(pinned_slots);
  snapshot_fixture_fini(&f);
}

static void a_store_that_hangs_does_not_hold_up_what_ends_a_snapshot(void **state) {
  struct snapshot_fixture f;
  (void)state;
  snapshot_fixture_init(&f);
  double_hang(&f.store, true);
  order_snapshot(&f, 0);
  double_wait_hanging(&f.store);
  snapshot_writer_cancel(f.writer, NULL);
  run_table_remove(&f.server.runs, "unit-1", "it was cancelled");
  double_hang(&f.store, false);
  snapshot_fixture_fini(&f);
  assert_int_equal(f.n_answers, 0);
}

/* Without a run: blocks of four bytes, pinned from the last to the first. */
static void an_answer_of_many_blocks_comes_in_several_messages(void **state) {
  enum { MANY = 4096 + 904 };
  Weir__WriteBlocks order = WEIR__WRITE_BLOCKS__INIT;
  struct snapshot_fixture f;
  struct snapshot *snapshot;
  struct buffer *weights = buffer_new(4);
  const Weir__BlocksWritten *first, *last;
  (void)state;
  snapshot_fixture_init(&f);
  memcpy(weights->data, "weir", 4);
  order.run = (char *)"unit-9";
  snapshot = snapshot_start(f.writer, &order, MANY, MEMBERSHIP);
  for (uint32_t b = MANY; b-- > 0;)
    snapshot_pin(snapshot, b, 2 * b, &(struct block_content){.weights = weights});
  snapshot_put(snapshot);
  last = wait_answer(&f, 2);
  first = wait_answer(&f, 1);
  assert_false(first->is_last);
  assert_true(last->is_last);
  assert_int_equal(first->n_blocks, 4096);
  assert_int_equal(last->n_blocks, 904);
  assert_int_equal(first->blocks[17]->block, 34);
  assert_int_equal(last->blocks[903]->block, 2 * (MANY - 1));
  assert_int_equal(last->blocks[903]->bytes, 4);
  assert_int_equal(first->written_bytes, 0);
  assert_true(last->stall_seconds > 0);
  assert_int_equal(f.store.n_puts, (MANY + STORE_BATCH_MAX - 1) / STORE_BATCH_MAX);
  assert_true(buffer_is_sole(weights));
  buffer_put(weights);
  snapshot_fixture_fini(&f);
}

static void a_server_without_blocks_answers_at_once(void **state) {
  Weir__WriteBlocks order = WEIR__WRITE_BLOCKS__INIT;
  struct snapshot_fixture f;
  const Weir__BlocksWritten *written;
  (void)state;
  snapshot_fixture_init(&f);
  order.run = (char *)"unit-9";
  snapshot_put(snapshot_start(f.writer, &order, 0, MEMBERSHIP));
  written = wait_answer(&f, 1);
  assert_true(written->is_last && written->n_blocks == 0 && !*written->error);
  snapshot_fixture_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_coming_version_is_written_while_the_run_goes_on),
      cmocka_unit_test(a_version_that_is_there_is_written_at_once),
      cmocka_unit_test(what_is_in_the_store_is_not_written_again),
      cmocka_unit_test(a_version_that_a_block_has_passed_is_too_late),
      cmocka_unit_test(a_newer_order_ends_an_older_one_while_the_store_hangs),
      cmocka_unit_test(a_snapshot_that_ends_early_lets_go_of_all_that_it_pinned),
      cmocka_unit_test(unloading_a_run_ends_its_snapshot),
      cmocka_unit_test(a_store_that_fails_fails_the_snapshot_and_not_the_run),
      cmocka_unit_test(a_snapshot_takes_one_copy_of_memory_at_most),
      cmocka_unit_test(a_store_that_hangs_does_not_hold_up_what_ends_a_snapshot),
      cmocka_unit_test(an_answer_of_many_blocks_comes_in_several_messages),
      cmocka_unit_test(a_server_without_blocks_answers_at_once),
  };
  return cmocka_run_group_tests(tests, make_history, free_history);
}
