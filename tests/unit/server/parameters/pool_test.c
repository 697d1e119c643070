/* Buffers that the step loop takes and gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "server/parameters/round/pool.h"

enum { MANY = 100, BLOCK_BYTES = 256 * 1024 };

struct fixture {
  struct budget budget;
  struct pool pool;
};

static void fixture_init(struct fixture *fixture, size_t bytes_max) {
  fixture->budget = (struct budget){.bytes_max = bytes_max};
  pool_init(&fixture->pool, &fixture->budget);
}

static void take_and_give(struct fixture *fixture, int n, size_t size_bytes) {
  struct buffer *taken[MANY];
  for (int i = 0; i < n; i++)
    assert_non_null(taken[i] = pool_take(&fixture->pool, size_bytes));
  for (int i = 0; i < n; i++)
    pool_give(&fixture->pool, taken[i]);
}

static void a_buffer_is_at_most_a_quarter_larger_than_what_it_is_for(void **state) {
  struct fixture fixture;
  struct buffer *block;
  (void)state;
  fixture_init(&fixture, SIZE_MAX);
  for (size_t size = POOL_CLASS_BYTES_MIN; size <= BLOCK_BYTES; size += size < 4096 ? 4 : 1021) {
    struct buffer *buffer = pool_take(&fixture.pool, size);
    assert_in_range(buffer->size_bytes, size, size + size / 4);
    pool_give(&fixture.pool, buffer);
  }
  block = pool_take(&fixture.pool, BLOCK_BYTES);
  assert_int_equal(block->size_bytes, BLOCK_BYTES); /* most blocks, exactly */
  pool_give(&fixture.pool, block);
  pool_fini(&fixture.pool);
}

static void sizes_do_not_take_each_others_memory(void **state) {
  struct fixture fixture;
  (void)state;
  fixture_init(&fixture, SIZE_MAX);
  take_and_give(&fixture, MANY, 20);
  take_and_give(&fixture, 1, BLOCK_BYTES);
  assert_int_equal(fixture.budget.bytes, MANY * POOL_CLASS_BYTES_MIN + BLOCK_BYTES);
  pool_fini(&fixture.pool);
  assert_int_equal(fixture.budget.bytes, 0);
}

/* A step that needed much leaves it to the steps that follow for a while, and then to all. */
static void what_recent_steps_did_not_need_is_given_back(void **state) {
  struct fixture fixture;
  uint64_t version = 1;
  (void)state;
  fixture_init(&fixture, SIZE_MAX);
  take_and_give(&fixture, MANY, BLOCK_BYTES);
  for (; version < POOL_RECENT_STEPS; version++) {
    pool_step(&fixture.pool, version);
    pool_step(&fixture.pool, version); /* another block comes to it, too */
    take_and_give(&fixture, 2, BLOCK_BYTES);
    assert_int_equal(fixture.budget.bytes, MANY * BLOCK_BYTES);
  }
  for (; version < POOL_RECENT_STEPS + 2; version++)
    pool_step(&fixture.pool, version);
  assert_int_equal(fixture.budget.bytes, 2 * BLOCK_BYTES);
  pool_fini(&fixture.pool);
}

static void what_is_taken_over_a_step_counts_for_it(void **state) {
  struct fixture fixture;
  struct buffer *kept;
  (void)state;
  fixture_init(&fixture, SIZE_MAX);
  kept = pool_take(&fixture.pool, BLOCK_BYTES);
  for (uint64_t version = 1; version < 2 * POOL_RECENT_STEPS; version++)
    pool_step(&fixture.pool, version);
  pool_give(&fixture.pool, kept);
  pool_step(&fixture.pool, 2 * POOL_RECENT_STEPS);
  assert_ptr_equal(pool_take(&fixture.pool, BLOCK_BYTES), kept);
  pool_give(&fixture.pool, kept);
  pool_fini(&fixture.pool);
}

static void pools_share_a_budget(void **state) {
  struct fixture fixture;
  struct pool other;
  struct buffer *buffer;
  (void)state;
  fixture_init(&fixture, 2 * BLOCK_BYTES);
  pool_init(&other, &fixture.budget);
  buffer = pool_take(&other, BLOCK_BYTES);
  assert_true(pool_has_room(&fixture.pool, BLOCK_BYTES));
  take_and_give(&fixture, 1, BLOCK_BYTES);
  assert_true(pool_has_room(&fixture.pool, BLOCK_BYTES)); /* the free one */
  assert_false(pool_has_room(&fixture.pool, 20));
  assert_false(pool_has_room(&other, BLOCK_BYTES));
  pool_give(&other, buffer);
  take_and_give(&fixture, 3, BLOCK_BYTES); /* what must be taken is, and is not kept */
  assert_int_equal(fixture.budget.bytes, 2 * BLOCK_BYTES);
  pool_fini(&fixture.pool);
  pool_fini(&other);
  assert_int_equal(fixture.budget.bytes, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_buffer_is_at_most_a_quarter_larger_than_what_it_is_for),
      cmocka_unit_test(sizes_do_not_take_each_others_memory),
      cmocka_unit_test(what_recent_steps_did_not_need_is_given_back),
      cmocka_unit_test(what_is_taken_over_a_step_counts_for_it),
      cmocka_unit_test(pools_share_a_budget),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
