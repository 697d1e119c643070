/* What a parameter server tells its coordinator of steps that are late and of parts that are doubted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/common/fake_coordinator.h"
#include "tests/support/parameters/parameters_calls.h"
#include "tests/support/parameters/role_fixture.h"

static const struct pace_options at_once = {.least_ms = 1, .first_ms = 1, .pause_max_ms = 1};

static void load(struct role_fixture *f) {
  order_load(f);
  fake_coordinator_wait_message(&f->coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
}

/* Messages of this kind that come from now on. */
static const Weir__MemberMessage *wait_for_more(struct role_fixture *f, Weir__MemberMessage__BodyCase body,
                                                int n) {
  int n_before;
  pthread_mutex_lock(&f->coordinator.lock);
  n_before = f->coordinator.n_messages[body];
  pthread_mutex_unlock(&f->coordinator.lock);
  return fake_coordinator_wait_message(&f->coordinator, body, n_before + n);
}

static void wait_late_at(struct role_fixture *f, uint64_t step) {
  for (;;) {
    uint64_t told;
    wait_for_more(f, WEIR__MEMBER_MESSAGE__BODY_LATE, 1);
    pthread_mutex_lock(&f->coordinator.lock);
    told = f->coordinator.messages[WEIR__MEMBER_MESSAGE__BODY_LATE]->late->step;
    pthread_mutex_unlock(&f->coordinator.lock);
    if (told == step)
      return;
  }
}

static void a_late_step_is_told_until_it_is_complete_and_then_the_next(void **state) {
  struct role_fixture f;
  (void)state;
  role_init_paced(&f, &at_once);
  load(&f);
  wait_for_more(&f, WEIR__MEMBER_MESSAGE__BODY_LATE, 3);
  wait_late_at(&f, 0);
  push_version(&f.workers, 0);
  wait_late_at(&f, 1);
  role_fini(&f);
}

static void the_next_coordinator_is_told_of_late_steps_too(void **state) {
  struct role_fixture f;
  (void)state;
  role_init_paced(&f, &at_once);
  load(&f);
  wait_late_at(&f, 0);
  lose_coordinator(&f, NULL);
  order_keep(&f, 1, 0);
  wait_late_at(&f, 0);
  order_unload(&f);
  role_fini(&f);
}

static void push_huge(struct role_fixture *f, uint32_t first, uint32_t worker, float value) {
  Weir__PushRequest push = push_request(2, 1, first, 0);
  struct attempt attempt;
  push.worker = worker;
  start_push(&f->workers, &attempt, &push, f->workers.values, part_of(&f->workers, 2, value));
  finish_with_version(&attempt, 1);
}

static void a_part_is_doubted(struct role_fixture *f) {
  push_huge(f, 4, 8, 3.4e38f);
  push_huge(f, 5, 9, 1e38f);
}

static void doubts_reach_a_coordinator_that_was_away(void **state) {
  struct role_fixture f;
  const Weir__MemberMessage *message;
  (void)state;
  role_init(&f);
  load(&f);
  push_version(&f.workers, 0);
  fake_coordinator_wait(&f.coordinator, &f.n_history, 1);
  lose_coordinator(&f, a_part_is_doubted);
  assert_int_equal(f.coordinator.n_messages[WEIR__MEMBER_MESSAGE__BODY_DOUBTED], 0);
  order_keep(&f, 1, 1);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_DOUBTED, 1);
  assert_true(message->doubted->step == 1 && message->doubted->block == 2 && message->doubted->n_parts == 2);
  assert_int_equal(message->doubted->parts[0]->worker, 8);
  assert_int_equal(message->doubted->parts[1]->worker, 9);
  push_huge(&f, 4, 7, 1e38f);
  push_huge(&f, 5, 7, 1e38f);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_JUDGED, 1);
  assert_int_equal(message->judged->n_changed, 1);
  assert_int_equal(message->judged->changed[0]->worker, 8);
  role_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_late_step_is_told_until_it_is_complete_and_then_the_next),
      cmocka_unit_test(the_next_coordinator_is_told_of_late_steps_too),
      cmocka_unit_test(doubts_reach_a_coordinator_that_was_away),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
