/* What a server may hold: calls that wait, and parts that steps wait with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/parameters/parameters_calls.h"

/* Of the present moment; calls and parts are the shards'. */
static size_t bytes_of(const struct budget *budget) {
  return __atomic_load_n(&budget->bytes, __ATOMIC_RELAXED);
}

static void calls_that_wait_have_a_bound_in_bytes(void **state) {
  struct parameters_fixture f;
  struct attempt pulls[4];
  (void)state;
  parameters_fixture_init(&f, 1);
  f.budgets.calls.bytes_max = 3 * PARKED_CALL_BYTES + 1;
  for (int i = 0; i < 3; i++)
    start_pull(&f, &pulls[i], i == 0, 1); /* of blocks of either shard */
  wait_parked(&f, 0, 2);
  wait_parked(&f, 1, 1);
  assert_int_equal(bytes_of(&f.budgets.calls), 3 * PARKED_CALL_BYTES);
  start_pull(&f, &pulls[3], 1, 1);
  finish_with_error(&pulls[3], ERR_BUSY, "calls that wait for a version take all of their");
  push_step(&f, 0, 0);
  push_step(&f, 1, 0);
  for (int i = 0; i < 3; i++)
    finish_with_version(&pulls[i], 1);
  assert_int_equal(bytes_of(&f.budgets.calls), 0);
  start_pull(&f, &pulls[3], 1, 1); /* what need not wait is answered in any case */
  finish_with_version(&pulls[3], 1);
  parameters_fixture_fini(&f);
}

/* Else its client would send the gradient again. */
static void a_push_that_there_is_no_room_to_wait_for_is_taken(void **state) {
  struct parameters_fixture f;
  struct attempt push;
  float before, after;
  (void)state;
  parameters_fixture_init(&f, 1);
  f.budgets.calls.bytes_max = 0;
  pull_first_element(&f, 0, 0, &before);
  start_waiting_part(&f, &push, 0, 0, 0);
  attempt_finish(&push);
  assert_int_equal(push.err.code, ERR_OK);
  assert_int_equal(push.size_bytes, 0);
  finish_with_version(&push, 0);
  for (uint32_t m = 1; m < MICROBATCHES; m++)
    push_part(&f, 0, 0, m, m + 1 == MICROBATCHES);
  pull_first_element(&f, 0, 1, &after);
  assert_true(after == before - 0.5f * (1 + 2 + 3 + 4 + 5 + 6));
  parameters_fixture_fini(&f);
}

static void a_call_that_is_given_up_makes_room(void **state) {
  struct parameters_fixture f;
  struct attempt pulls[2];
  (void)state;
  parameters_fixture_init(&f, 1);
  f.budgets.calls.bytes_max = PARKED_CALL_BYTES;
  start_pull(&f, &pulls[0], 0, 1);
  wait_parked(&f, 0, 1);
  rpc_request_cancel(&pulls[0].request);
  finish_with_error(&pulls[0], ERR_CANCELLED, "");
  wait_parked(&f, 0, 0);
  start_pull(&f, &pulls[1], 1, 1);
  wait_parked(&f, 1, 1);
  run_table_remove(&f.runs, "unit-1", "it was cancelled");
  finish_with_error(&pulls[1], ERR_CANCELLED, "it was cancelled");
  assert_int_equal(bytes_of(&f.budgets.calls), 0);
  parameters_fixture_fini(&f);
}

/* Who is refused comes again, and the step completes with the same bits. */
static void parts_have_a_bound_in_bytes_and_the_step_completes(void **state) {
  struct parameters_fixture f;
  struct attempt odd;
  float of_any_order, of_this_order;
  (void)state;
  parameters_fixture_init(&f, 1);
  push_step(&f, 0, 0);
  pull_first_element(&f, 0, 1, &of_any_order);
  parameters_fixture_fini(&f);
  parameters_fixture_init(&f, 1);
  f.budgets.parts.bytes_max = 0;
  start_part(&f, &odd, 0, 0, 1);
  finish_with_error(&odd, ERR_BUSY, "the parts that steps wait with take all of their");
  for (uint32_t m = 0; m < MICROBATCHES; m++)
    push_part(&f, 0, 0, m, m + 1 == MICROBATCHES);
  pull_first_element(&f, 0, 1, &of_this_order);
  assert_true(of_this_order == of_any_order);
  assert_int_equal(bytes_of(&f.budgets.parts), 0);
  parameters_fixture_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_that_wait_have_a_bound_in_bytes),
      cmocka_unit_test(a_push_that_there_is_no_room_to_wait_for_is_taken),
      cmocka_unit_test(a_call_that_is_given_up_makes_room),
      cmocka_unit_test(parts_have_a_bound_in_bytes_and_the_step_completes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
