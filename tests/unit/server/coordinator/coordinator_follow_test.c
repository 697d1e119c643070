/* Workers that join a run which trains: they follow it, and owe nothing before they hold the newest weights.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/support/coordinator/core_run.h"

enum { W3 = 5, W4, AGAIN };

/* A third worker has loaded the run. */
static void begin_following(struct core_fixture *f) {
  core_run_begin(f, 1);
  worker_joins(f, W3, 2);
  member_loads(f, W3, RUN, "data", SAMPLES);
}

static void assert_computes(const struct core_fixture *f, uint64_t key, uint32_t microbatches) {
  assert_int_equal(f->told[key].end - f->told[key].begin, microbatches);
}

static void assert_follows(struct core_fixture *f, uint64_t key) {
  assert_string_equal(worker_row(f, key).state, "following");
  assert_true(f->told[key].follows);
  assert_computes(f, key, 0);
}

/* Everybody beats, the third worker with so many bytes received. */
static void lives(struct core_fixture *f, uint64_t seconds, uint64_t bytes_each) {
  while (seconds-- > 0) {
    for (uint64_t key = S1; key <= W4; key++)
      if (f->told[key].is_member && !f->told[key].is_closed)
        member_beats(f, key);
    f->received_bytes += bytes_each;
    member_counts(f, W3, RUN, 0, 0);
    time_passes(f, 1000);
  }
}

static void a_joiner_follows_until_it_holds_the_newest_weights(void **state) {
  struct core_fixture *f = *state;
  begin_following(f);
  assert_follows(f, W3);
  assert_int_equal(f->told[W3].view, 2);
  assert_int_equal(f->told[W1].view, 1); /* for it nothing has changed */
  assert_computes(f, W1, MICROBATCHES / 2);
  assert_int_equal(info_of_run(f, RUN).workers, 2);
  worker_catches_up(f, W3, RUN, 0);
  assert_string_equal(worker_row(f, W3).state, "ready");
  assert_false(f->told[W3].follows);
  assert_computes(f, W3, MICROBATCHES / 2);
  assert_computes(f, W1, MICROBATCHES / 4);
  assert_int_equal(info_of_run(f, RUN).workers, 3);
}

static void a_follower_has_its_place_among_the_runs_workers(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 2);
  worker_loads(f, W1, RUN);
  server_loads(f, S1, RUN);
  worker_joins(f, W3, 1);
  member_loads(f, W3, RUN, "data", SAMPLES);
  assert_follows(f, W3);
  worker_joins(f, W4, 1);
  assert_string_equal(f->told[W4].load, "");
}

static void when_all_who_compute_are_gone_followers_compute_at_once(void **state) {
  struct core_fixture *f = *state;
  begin_following(f);
  member_leaves(f, W1);
  assert_follows(f, W3);
  member_leaves(f, W2);
  assert_string_equal(worker_row(f, W3).state, "ready");
  assert_computes(f, W3, MICROBATCHES);
}

static void after_a_roll_back_all_compute_at_once(void **state) {
  struct core_fixture *f = *state;
  begin_following(f);
  member_leaves(f, S2);
  lives(f, GRACE_MS / 1000 + 1, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_string_equal(worker_row(f, W3).state, "ready");
  f->incarnation = 1;
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_computes(f, W3, MICROBATCHES / 2);
}

static void a_follower_that_leaves_changes_nothing(void **state) {
  struct core_fixture *f = *state;
  begin_following(f);
  member_drains(f, W3);
  assert_string_equal(f->told[W3].unload, RUN);
  worker_joins(f, W4, 1);
  member_loads(f, W4, RUN, "data", SAMPLES);
  assert_follows(f, W4);
  member_refuses(f, W4, RUN, "out of memory", false);
  assert_string_equal(worker_row(f, W4).state, "refused");
  worker_joins(f, AGAIN, 1);
  member_loads(f, AGAIN, RUN, "data", SAMPLES);
  member_leaves(f, AGAIN);
  assert_int_equal(f->told[W1].view, 1);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

/* All who trained give up: the follower is to try before the run fails. */
static void a_run_does_not_fail_while_a_follower_is_left(void **state) {
  struct core_fixture *f = *state;
  begin_following(f);
  member_refuses(f, W1, RUN, "loss is not finite", false);
  member_refuses(f, W2, RUN, "loss is not finite", false);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_computes(f, W3, MICROBATCHES);
  member_refuses(f, W3, RUN, "loss is not finite", false);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
}

static void who_cannot_catch_up_is_named_with_its_rate(void **state) {
  struct core_fixture *f = *state;
  uint64_t saves;
  begin_following(f);
  lives(f, FOLLOW_MS / 1000 - 1, 1000000);
  assert_string_equal(worker_row(f, W3).message, "");
  assert_string_equal(info_of_run(f, RUN).message, "");
  lives(f, 2, 1000000);
  assert_string_equal(
      worker_row(f, W3).message,
      "has not caught up with the run in 30 s: it receives 1 MB/s of weights, of which a version "
      "has 0.00262 MB");
  assert_string_equal(
      info_of_run(f, RUN).message,
      "worker-3 (host) has not caught up with the run in 30 s: it receives 1 MB/s of weights, of "
      "which a version has 0.00262 MB");
  saves = (uint64_t)f->saves;
  lives(f, FOLLOW_MS / 1000 - 2, 0);
  assert_int_equal(f->saves, saves); /* the run is not written each second for it */
  lives(f, 3, 0);
  assert_non_null(strstr(worker_row(f, W3).message, "in 60 s: it receives 0.5"));
  assert_follows(f, W3); /* and it may still come */
  worker_catches_up(f, W3, RUN, 3);
  assert_string_equal(worker_row(f, W3).message, "");
  assert_string_equal(info_of_run(f, RUN).message, "");
  assert_string_equal(worker_row(f, W3).state, "ready");
}

static void the_coordinators_own_absence_is_no_time_that_a_follower_had(void **state) {
  struct core_fixture *f = *state;
  begin_following(f);
  core_ticks(f);
  f->now_ms += 10 * FOLLOW_MS;
  core_ticks(f);
  assert_string_equal(worker_row(f, W3).message, "");
}

static void readiness_of_another_run_incarnation_or_version_is_ignored(void **state) {
  struct core_fixture *f = *state;
  begin_following(f);
  worker_catches_up(f, W3, "mlp-bbbbbb", 0);
  worker_catches_up(f, W3, "", 0);
  worker_catches_up(f, W3, RUN, STEPS + 1);
  worker_catches_up(f, W3, RUN, UINT64_MAX);
  f->incarnation = 7;
  worker_catches_up(f, W3, RUN, 0);
  f->incarnation = 0;
  worker_catches_up(f, W1, RUN, 0); /* it is ready */
  worker_catches_up(f, S1, RUN, 0); /* no worker */
  worker_joins(f, W4, 1);
  worker_catches_up(f, W4, RUN, 0); /* it loads yet */
  assert_string_equal(worker_row(f, W4).state, "loading");
  assert_follows(f, W3);
  assert_int_equal(f->told[W1].view, 1);
}

/* It may be told to follow again and again: one view is for all that changed. */
static void a_follower_knows_of_each_view(void **state) {
  struct core_fixture *f = *state;
  begin_following(f);
  member_leaves(f, W2);
  assert_int_equal(f->told[W3].view, f->told[W1].view);
  assert_follows(f, W3);
  assert_computes(f, W1, MICROBATCHES);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_joiner_follows_until_it_holds_the_newest_weights),
      TEST(a_follower_has_its_place_among_the_runs_workers),
      TEST(when_all_who_compute_are_gone_followers_compute_at_once),
      TEST(after_a_roll_back_all_compute_at_once),
      TEST(a_follower_that_leaves_changes_nothing),
      TEST(a_run_does_not_fail_while_a_follower_is_left),
      TEST(who_cannot_catch_up_is_named_with_its_rate),
      TEST(the_coordinators_own_absence_is_no_time_that_a_follower_had),
      TEST(readiness_of_another_run_incarnation_or_version_is_ignored),
      TEST(a_follower_knows_of_each_view),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
