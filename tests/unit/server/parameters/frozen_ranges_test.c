/* Rows that are frozen become ranges of the blocks that hold them. */
#include "common/optim/frozen_ranges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Tensors of 4 rows of 5 and 3 rows of 2 elements, one behind the other: 26 elements. */
static const int64_t first_rows[] = {0, 2}, second_rows[] = {1};
static struct param params[] = {
    {.shape = {2, {4, 5}}, .begin = 0, .elems = 20, .frozen_rows = first_rows, .n_frozen_rows = 2},
    {.shape = {2, {3, 2}}, .begin = 20, .elems = 6, .frozen_rows = second_rows, .n_frozen_rows = 1},
};
static const struct model model = {.params = params, .n_params = 2};

static bool is_frozen(uint64_t at) {
  return at < 5 || (at >= 10 && at < 15) || at == 22 || at == 23;
}

/* A block of those elements: its frozen ones are cleared and kept, and no others. */
static void check_block(uint64_t begin, uint32_t elems) {
  struct block block = {.begin = begin, .elems = elems};
  struct frozen_ranges ranges;
  float grad[32], weights[32], next[32];
  for (uint32_t i = 0; i < elems; i++) {
    grad[i] = 1;
    weights[i] = 2;
    next[i] = 3;
  }
  frozen_ranges_init(&ranges, &model, &block);
  frozen_ranges_clear(&ranges, grad);
  frozen_ranges_keep(&ranges, weights, next);
  for (uint32_t i = 0; i < elems; i++) {
    assert_true(grad[i] == (is_frozen(begin + i) ? 0 : 1));
    assert_true(next[i] == (is_frozen(begin + i) ? 2 : 3));
  }
  frozen_ranges_fini(&ranges);
}

static void frozen_elements_of_any_block_are_cleared_and_kept(void **state) {
  (void)state;
  for (uint64_t begin = 0; begin < 26; begin++)
    for (uint32_t elems = 1; begin + elems <= 26; elems++)
      check_block(begin, elems);
}

static void a_block_without_frozen_rows_has_no_ranges(void **state) {
  struct block block = {.begin = 5, .elems = 5};
  struct frozen_ranges ranges;
  (void)state;
  frozen_ranges_init(&ranges, &model, &block);
  assert_int_equal(ranges.n, 0);
  assert_null(ranges.items);
  frozen_ranges_fini(&ranges);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(frozen_elements_of_any_block_are_cleared_and_kept),
      cmocka_unit_test(a_block_without_frozen_rows_has_no_ranges),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
