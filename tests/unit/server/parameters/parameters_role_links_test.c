/* A parameter server whose coordinator goes away and comes back, or another in its place. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/common/fake_coordinator.h"
#include "tests/support/parameters/parameters_calls.h"
#include "tests/support/parameters/restore_fixture.h"
#include "tests/support/parameters/role_fixture.h"

static void steps_1_and_2_happen(struct role_fixture *f) {
  push_version(&f->workers, 1);
  push_version(&f->workers, 2);
}

static void assert_history(const struct role_fixture *f, int i, Weir__MemberMessage__BodyCase body,
                           uint64_t step) {
  assert_int_equal(f->history[i].body, body);
  assert_int_equal(f->history[i].step, step);
}

static void a_run_goes_on_without_a_coordinator_and_the_next_is_told_what_it_missed(void **state) {
  struct role_fixture f;
  const Weir__MemberMessage *message;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  push_version(&f.workers, 0);
  fake_coordinator_wait(&f.coordinator, &f.n_history, 1);
  lose_coordinator(&f, steps_1_and_2_happen);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HELLO, 3);
  assert_int_equal(message->hello->n_runs, 1);
  assert_string_equal(message->hello->runs[0]->run, "unit-1");
  assert_int_equal(message->hello->runs[0]->incarnation, 1);
  assert_int_equal(message->hello->runs[0]->version, 3);
  assert_int_equal(f.n_history, 1); /* nothing is told before it is asked for */
  order_keep(&f, 1, 1);
  fake_coordinator_wait(&f.coordinator, &f.n_history, 4);
  assert_history(&f, 1, WEIR__MEMBER_MESSAGE__BODY_STEP, 1);
  assert_history(&f, 2, WEIR__MEMBER_MESSAGE__BODY_EVAL, 2);
  assert_history(&f, 3, WEIR__MEMBER_MESSAGE__BODY_STEP, 2);
  push_eval(&f.workers, 3, 0, 3);
  push_eval(&f.workers, 3, 1, 3);
  fake_coordinator_wait(&f.coordinator, &f.n_history, 6);
  assert_history(&f, 4, WEIR__MEMBER_MESSAGE__BODY_EVAL, 3);
  assert_history(&f, 5, WEIR__MEMBER_MESSAGE__BODY_COMPLETE, 0);
  lose_coordinator(&f, NULL);
  order_keep(&f, 1, 3);
  fake_coordinator_wait(&f.coordinator, &f.n_history, 8);
  assert_history(&f, 6, WEIR__MEMBER_MESSAGE__BODY_EVAL, 3);
  assert_history(&f, 7, WEIR__MEMBER_MESSAGE__BODY_COMPLETE, 0);
  order_unload(&f);
  order_keep(&f, 1, 3);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 1);
  assert_string_equal(message->refused->message, "there is no run 'unit-1' on this server");
  role_fini(&f);
}

static void what_a_former_coordinator_ordered_is_not_answered_to_the_next(void **state) {
  struct role_fixture f;
  int n_loaded;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  order_write(&f, 1);
  lose_coordinator(&f, NULL);
  order_keep(&f, 1, 0);
  push_version(&f.workers, 0);
  order_write(&f, 1);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, 1);
  f.coordinator.has_no_model = true;
  order_load_from(&f, 2, 0, ""); /* takes the place of the first; it may be answered before the loss */
  lose_coordinator(&f, NULL);
  f.coordinator.has_no_model = false;
  n_loaded = f.coordinator.n_messages[WEIR__MEMBER_MESSAGE__BODY_LOADED];
  order_load_from(&f, 3, 0, "");
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, n_loaded + 1);
  assert_int_equal(f.coordinator.messages[WEIR__MEMBER_MESSAGE__BODY_LOADED]->loaded->incarnation, 3);
  assert_int_equal(f.coordinator.n_messages[WEIR__MEMBER_MESSAGE__BODY_WRITTEN], 1);
  role_fini(&f);
}

static void a_run_that_is_there_is_not_loaded_again(void **state) {
  struct role_fixture f;
  struct attempt pull;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  push_version(&f.workers, 0);
  fake_coordinator_wait(&f.coordinator, &f.n_history, 1);
  lose_coordinator(&f, NULL);
  f.coordinator.has_no_model = true;
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  start_pull(&f.workers, &pull, 0, 1);
  finish_with_version(&pull, 1);
  fake_coordinator_wait(&f.coordinator, &f.n_history, 2); /* step 0, again */
  role_fini(&f);
}

static void a_run_is_rolled_back_to_its_checkpoint_or_says_that_it_is_lost(void **state) {
  struct role_fixture f;
  struct attempt pull;
  const Weir__MemberMessage *message;
  char *name;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  order_write(&f, 1);
  push_version(&f.workers, 0);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, 1);
  assert_string_equal(message->written->error, "");
  name = commit_version(&f.store.base, message->written, f.model_sha256);
  push_version(&f.workers, 1);
  order_load_from(&f, 2, 1, name);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  start_pull(&f.workers, &pull, 0, 1);
  finish_with_error(&pull, ERR_STALE, "run 'unit-1' is in incarnation 2 here, not in 1");
  double_find(&f.store, message->written->blocks[1]->sha256)->name[0] = 'x';
  order_load_from(&f, 3, 1, name);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 1);
  assert_true(message->refused->lost_checkpoint && !message->refused->bad_input);
  assert_int_equal(message->refused->incarnation, 3);
  assert_non_null(strstr(message->refused->message, "run 'unit-1' at version 1: block 1, key "));
  order_load_from(&f, 4, 2, "runs/unit-1/checkpoints/00000000000000000002");
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 2);
  assert_true(message->refused->lost_checkpoint && !message->refused->bad_input);
  order_load_from(&f, 5, 0, "");
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 3);
  order_load_from(&f, 4, 0, "");
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 3);
  assert_false(message->refused->lost_checkpoint);
  assert_string_equal(message->refused->message, "run 'unit-1' is loaded already, in incarnation 5");
  free(name);
  role_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_run_goes_on_without_a_coordinator_and_the_next_is_told_what_it_missed),
      cmocka_unit_test(what_a_former_coordinator_ordered_is_not_answered_to_the_next),
      cmocka_unit_test(a_run_that_is_there_is_not_loaded_again),
      cmocka_unit_test(a_run_is_rolled_back_to_its_checkpoint_or_says_that_it_is_lost),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
