/* The parameters role as the coordinator sees it: runs are loaded, trained, written and unloaded by order. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/common/fake_coordinator.h"
#include "tests/support/common/patience.h"
#include "tests/support/model/model_bytes.h"
#include "tests/support/parameters/parameters_calls.h"
#include "tests/support/parameters/role_fixture.h"

/* As the second of two servers, of which the first keeps the sums. */
static void order_load_beside(struct role_fixture *f, uint64_t incarnation, bool is_clipped, char *keeper) {
  Weir__LoadRun load = *make_order(incarnation, 2);
  Weir__Endpoint *own = load.servers[0], *swapped[2] = {load.servers[1], own};
  load.servers = swapped;
  swapped[0]->address = keeper;
  load.spec->train->has_clip_norm = is_clipped;
  load.spec->train->clip_norm = 1;
  send_load(f, &load);
}

static void a_run_is_loaded_by_order(void **state) {
  struct role_fixture f;
  struct attempt pull;
  const Weir__MemberMessage *message;
  (void)state;
  role_init(&f);
  order_load(&f);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  assert_string_equal(message->loaded->run, "unit-1");
  assert_int_equal(message->loaded->incarnation, 1);
  start_pull(&f.workers, &pull, 0, 0);
  finish_with_version(&pull, 0);
  role_fini(&f);
}

/* Of a spec that differs only in what servers apply, and in no other that is computed. */
static void a_model_that_is_open_is_not_fetched_again(void **state) {
  struct role_fixture f;
  Weir__LoadRun load;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  load = *make_order(1, 1);
  load.run = (char *)"unit-2";
  load.spec->train->optimizer->lr = 0.125;
  send_load(&f, &load);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  assert_int_equal(f.coordinator.n_fetched, 1);
  order_unload(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 3);
  assert_int_equal(f.coordinator.n_fetched, 1);
  load = *make_order(1, 1);
  load.run = (char *)"unit-3";
  load.spec->train->microbatches = 1;
  send_load(&f, &load);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 4);
  assert_int_equal(f.coordinator.n_fetched, 2);
  role_fini(&f);
}

static void a_model_that_came_wrong_is_refused(void **state) {
  struct role_fixture f;
  const Weir__MemberMessage *message;
  (void)state;
  role_init(&f);
  f.model_sha256[0] ^= 1;
  order_load(&f);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 1);
  assert_false(message->refused->bad_input);
  f.model_sha256[0] ^= 1;
  f.workers.model_bytes--; /* what the order says; FetchModel gives more */
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 2);
  f.workers.model_bytes++;
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  role_fini(&f);
}

static void a_model_that_is_none_is_the_users_mistake(void **state) {
  struct role_fixture f;
  const Weir__MemberMessage *message;
  (void)state;
  role_init(&f);
  memset(f.workers.model, 0xff, 64);
  sha256_hex(f.workers.model, f.workers.model_bytes, f.model_sha256);
  order_load(&f);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 1);
  assert_true(message->refused->bad_input);
  role_fini(&f);
}

static void blocks_are_written_with_their_slots(void **state) {
  struct role_fixture f;
  struct attempt pull;
  const Weir__MemberMessage *message;
  struct err err;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  order_write(&f, 0);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, 1);
  assert_string_equal(message->written->error, "");
  assert_int_equal(message->written->n_blocks, BLOCKS);
  for (uint32_t b = 0; b < BLOCKS; b++) {
    const Weir__WrittenBlock *written = message->written->blocks[b];
    void *content;
    size_t size;
    start_pull(&f.workers, &pull, b, 0);
    attempt_finish(&pull);
    assert_int_equal(written->block, b);
    assert_int_equal(store_get(&f.store.base, written->sha256, &content, &size, &err), 0);
    assert_int_equal(size, written->bytes);
    assert_int_equal(size, pull.size_bytes * (b == STATISTICS_BLOCK ? 1 : 2)); /* one momentum slot */
    assert_memory_equal(content, pull.data, pull.size_bytes);
    free(content);
    finish_with_version(&pull, 0);
  }
  order_write(&f, STEPS + 1);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, 2);
  assert_string_equal(message->written->error,
                      "run 'unit-1': there will be no version 4, the run's last is 3");
  assert_true(message->written->is_last && !message->written->is_too_late);
  role_fini(&f);
}

static void an_order_is_carried_out_while_the_store_hangs(void **state) {
  struct role_fixture f;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  double_hang(&f.store, true);
  order_write(&f, 0);
  double_wait_hanging(&f.store);
  order_unload(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  double_hang(&f.store, false);
  role_fini(&f);
  assert_int_equal(f.coordinator.n_messages[WEIR__MEMBER_MESSAGE__BODY_WRITTEN], 0);
}

static void an_unloaded_run_is_gone(void **state) {
  struct role_fixture f;
  struct attempt parked;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  start_pull(&f.workers, &parked, 0, 0);
  finish_with_version(&parked, 0);
  start_pull(&f.workers, &parked, 0, 1);
  order_unload(&f);
  attempt_finish(&parked); /* CANCELLED where it was parked, NOT_FOUND where it came later */
  assert_true(parked.err.code == ERR_CANCELLED || parked.err.code == ERR_NOT_FOUND);
  free(parked.data);
  role_fini(&f);
}

static void a_run_of_another_store_is_refused(void **state) {
  static const char ours[] = "00112233445566778899aabbccddeeff",
                    theirs[] = "ff112233445566778899aabbccddeeff";
  struct role_fixture f;
  const Weir__MemberMessage *message;
  struct err err = ERR_NONE;
  (void)state;
  role_init(&f);
  order_load_of(&f, theirs, 1, 0, "");
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 1);
  assert_true(message->refused->wrong_store && !message->refused->bad_input);
  assert_non_null(strstr(message->refused->message, "is not the coordinator's: it has not its record"));
  assert_int_equal(store_put_record(&f.store.base,
                                    &(struct store_record){"store/identity", ours, strlen(ours), NULL}, &err),
                   0);
  order_load_of(&f, theirs, 2, 1, "runs/unit-1/checkpoints/00000000000000000001");
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 2);
  assert_true(message->refused->wrong_store && !message->refused->lost_checkpoint);
  assert_non_null(strstr(message->refused->message, "is not the coordinator's: its record"));
  order_load_of(&f, ours, 3, 0, "");
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  f.store.n_failures = 1 << 20; /* what is known need not be asked again */
  f.store.fail_code = ERR_UNAVAILABLE;
  order_load_of(&f, ours, 4, 0, "");
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  role_fini(&f);
}

/* Else it would stand still at its first step, and nobody would be told. */
static void a_run_whose_keeper_of_sums_is_out_of_reach_is_refused(void **state) {
  struct role_fixture f;
  const Weir__MemberMessage *message;
  (void)state;
  role_init_impatient(&f);
  order_load_beside(&f, 1, true, (char *)"127.0.0.1:1");
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 1);
  assert_false(message->refused->bad_input || message->refused->lost_checkpoint);
  assert_non_null(strstr(message->refused->message, "cannot be reached from this one: 127.0.0.1:1: "));
  order_load_beside(&f, 2, false, (char *)"127.0.0.1:1"); /* without sums it does not matter */
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  role_fini(&f);
}

static void a_keeper_of_sums_that_is_out_of_reach_is_waited_for(void **state) {
  struct role_fixture f;
  (void)state;
  role_init(&f);
  order_load_beside(&f, 1, true, f.coordinator.target); /* any server answers */
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  order_load_beside(&f, 2, true, (char *)"127.0.0.1:1");
  order_load_of(&f, "", 3, 0, ""); /* a newer order ends the wait */
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  order_load_beside(&f, 4, true, (char *)"127.0.0.1:1");
  patience_begin();
  role_fini(&f); /* a stop does, too */
  patience_end();
  assert_int_equal(f.coordinator.n_messages[WEIR__MEMBER_MESSAGE__BODY_REFUSED], 0);
}

static void a_newer_order_ends_the_wait_for_a_store(void **state) {
  struct role_fixture f;
  (void)state;
  role_init(&f);
  double_fail(&f.store, 1 << 30, ERR_UNAVAILABLE);
  order_load_from(&f, 2, 1, "runs/unit-1/checkpoints/00000000000000000001");
  order_load_from(&f, 3, 0, "");
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  order_load_from(&f, 4, 1, "runs/unit-1/checkpoints/00000000000000000001");
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, 1);
  role_fini(&f); /* a stop does, too */
  assert_int_equal(f.coordinator.n_messages[WEIR__MEMBER_MESSAGE__BODY_REFUSED], 0);
}

static void a_server_can_stop_while_a_model_does_not_come(void **state) {
  struct role_fixture f;
  (void)state;
  role_init(&f);
  f.coordinator.has_no_model = true;
  order_load(&f);
  order_unload(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, 1);
  role_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_run_is_loaded_by_order),
      cmocka_unit_test(a_model_that_is_open_is_not_fetched_again),
      cmocka_unit_test(a_model_that_came_wrong_is_refused),
      cmocka_unit_test(a_model_that_is_none_is_the_users_mistake),
      cmocka_unit_test(blocks_are_written_with_their_slots),
      cmocka_unit_test(an_order_is_carried_out_while_the_store_hangs),
      cmocka_unit_test(an_unloaded_run_is_gone),
      cmocka_unit_test(a_run_of_another_store_is_refused),
      cmocka_unit_test(a_run_whose_keeper_of_sums_is_out_of_reach_is_refused),
      cmocka_unit_test(a_keeper_of_sums_that_is_out_of_reach_is_waited_for),
      cmocka_unit_test(a_newer_order_ends_the_wait_for_a_store),
      cmocka_unit_test(a_server_can_stop_while_a_model_does_not_come),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
