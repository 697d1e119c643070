/* Doubts of modes in which a step may be over on one server long before it is on all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/coordinator/core_reissue.h"

enum { S1 = 1, S2, W1, W2, W3, GATHER_MS = 50, PATIENCE_MS = 10000 };
static const char RUN[] = "mlp-aaaaaa";

/* Two servers and three workers are at DOUBTED_STEP, or its round, where parts of a block are doubted. */
static void doubts(struct core_fixture *f) {
  static const char *const hosts[] = {"a", "b", "c"};
  struct pushed parts[] = {{W1, 0, 1}, {W2, 2, 1}};
  for (uint64_t key = S1; key <= S2; key++)
    server_joins(f, key);
  for (uint64_t i = 0; i < 3; i++)
    worker_joins_on(f, W1 + i, hosts[i], "cpu");
  f->steps = 4 * DOUBTED_STEP;
  user_submits(f, RUN, 3, 0);
  for (uint64_t i = 0; i < 3; i++)
    worker_loads(f, W1 + i, RUN);
  for (uint64_t key = S1; key <= S2; key++)
    server_loads(f, key, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  reports_steps(f, S1, RUN, 0, DOUBTED_STEP);
  server_doubts(f, 1, parts, 2);
}

static void passes(struct core_fixture *f, uint64_t ms) {
  f->now_ms += ms;
  for (uint64_t key = S1; key <= W3; key++)
    member_beats(f, key);
  core_ticks(f);
}

/* The server with the statistics has come to that step; the other one is where it was. */
static void comes_to(struct core_fixture *f, uint64_t from, uint64_t step) {
  reports_steps(f, S1, RUN, from, step);
  passes(f, GATHER_MS);
}

static uint64_t orders(const struct core_fixture *f) {
  return (uint64_t)(f->told[W1].reissues + f->told[W2].reissues + f->told[W3].reissues);
}

static void ssp_keeps_a_doubt_while_no_later_step_shows_its_own_to_be_over(void **state) {
  struct core_fixture *f = *state;
  f->staleness = 2;
  doubts(f);
  comes_to(f, DOUBTED_STEP, DOUBTED_STEP + 3);
  assert_int_equal(f->told[W3].reissue_step, DOUBTED_STEP);
  assert_int_equal(f->told[W3].reissue_microbatches, 0xf);
}

static void ssp_drops_a_doubt_once_a_step_is_complete_that_began_behind_it(void **state) {
  struct core_fixture *f = *state;
  f->staleness = 2;
  doubts(f);
  comes_to(f, DOUBTED_STEP, DOUBTED_STEP + 4);
  passes(f, PATIENCE_MS);
  assert_int_equal(orders(f), 0);
}

/* All inner steps of a round are reported at once. */
static void local_keeps_a_doubt_while_the_round_after_its_own_is_not_complete(void **state) {
  struct core_fixture *f = *state;
  Weir__OptimizerSpec outer = WEIR__OPTIMIZER_SPEC__INIT;
  Weir__LocalSpec local = WEIR__LOCAL_SPEC__INIT;
  outer.name = "sgd";
  local.has_replicas = local.has_inner_steps = true;
  local.replicas = MICROBATCHES;
  local.inner_steps = DOUBTED_STEP;
  local.outer = &outer;
  f->local = &local;
  doubts(f);
  comes_to(f, DOUBTED_STEP, 2 * DOUBTED_STEP);
  assert_int_equal(f->told[W3].reissue_step, DOUBTED_STEP);
  comes_to(f, 2 * DOUBTED_STEP, 3 * DOUBTED_STEP);
  passes(f, PATIENCE_MS);
  assert_int_equal(orders(f), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(ssp_keeps_a_doubt_while_no_later_step_shows_its_own_to_be_over),
      TEST(ssp_drops_a_doubt_once_a_step_is_complete_that_began_behind_it),
      TEST(local_keeps_a_doubt_while_the_round_after_its_own_is_not_complete),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
