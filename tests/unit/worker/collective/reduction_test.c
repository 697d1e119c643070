/* Reductions of many arrays, beside the reduction tree written out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/agree/tree.h"
#include "worker/collective/reduction.h"

enum { ELEMS = 1300 }; /* several pieces, the last one short */

static float rows[COLLECTIVE_SIZE_MAX][ELEMS];

static float combine(enum collective_reduction reduction, float a, float b) {
  switch (reduction) {
  case COLLECTIVE_SUM:
    return a + b;
  case COLLECTIVE_PRODUCT:
    return a * b;
  case COLLECTIVE_MAX:
    return a > b ? a : b;
  default:
    return a < b ? a : b;
  }
}

static float along_tree(enum collective_reduction reduction, struct tree_node node, uint32_t size, size_t i) {
  struct tree_node left, right;
  float sum;
  if (node.level == 0)
    return rows[node.first][i];
  left = (struct tree_node){node.first, node.level - 1};
  right = (struct tree_node){node.first + (1u << (node.level - 1)), node.level - 1};
  sum = along_tree(reduction, left, size, i);
  return right.first < size ? combine(reduction, sum, along_tree(reduction, right, size, i)) : sum;
}

static void every_number_of_arrays_is_reduced_along_the_tree(void **state) {
  const float *sources[COLLECTIVE_SIZE_MAX];
  float out[ELEMS];
  (void)state;
  for (int row = 0; row < COLLECTIVE_SIZE_MAX; row++)
    for (size_t i = 0; i < ELEMS; i++)
      rows[row][i] = random_uniform(random_key(3, (uint64_t)row, 0, 0), i) * 4 - 2;
  for (int n = 1; n <= COLLECTIVE_SIZE_MAX; n++)
    for (int reduction = 0; reduction < COLLECTIVE_REDUCTIONS; reduction++) {
      for (int row = 0; row < n; row++)
        sources[row] = rows[row];
      memcpy(out, rows[n / 2], sizeof out);
      sources[n / 2] = out; /* in place */
      reduction_of(reduction, sources, n, ELEMS, out);
      for (size_t i = 0; i < ELEMS; i++) {
        float want = along_tree(reduction, tree_root((uint32_t)n), (uint32_t)n, i);
        assert_memory_equal(&out[i], &want, sizeof want);
      }
    }
}

static void not_a_number_wins_a_maximum_and_a_minimum(void **state) {
  float out[3];
  const float *sources[7];
  (void)state;
  for (int n = 2; n <= 7; n++)
    for (int bad = 0; bad < n; bad++) {
      for (int i = 0; i < n; i++) {
        rows[i][0] = rows[i][1] = rows[i][2] = (float)i;
        sources[i] = rows[i];
      }
      rows[bad][1] = NAN;
      reduction_of(COLLECTIVE_MAX, sources, n, 3, out);
      assert_true(out[0] == (float)(n - 1) && isnan(out[1]) && out[2] == out[0]);
      reduction_of(COLLECTIVE_MIN, sources, n, 3, out);
      assert_true(out[0] == 0.0f && isnan(out[1]) && out[2] == 0.0f);
    }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_number_of_arrays_is_reduced_along_the_tree),
      cmocka_unit_test(not_a_number_wins_a_maximum_and_a_minimum),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
