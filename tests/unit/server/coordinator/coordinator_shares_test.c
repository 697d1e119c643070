/* Shares of a run's work follow how fast its workers compute. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/support/coordinator/core_fixture.h"

enum { S1 = 1, W1, W2, W3, W4, S2 = 20, TEAM = 4, IDLE_MS = 60000 };
static const char RUN[] = "mlp-aaaaaa";

/* How the workers W1 .. W4, of one executor each, compute, and what they have counted. */
struct team {
  struct core_fixture *f;
  uint64_t server;
  double microbatch_s[TEAM]; /* INFINITY: it hangs */
  double computed[TEAM], busy_s[TEAM];
  bool receives_nothing; /* who follows */
};

static void joins_on(struct core_fixture *f, uint64_t key, const char *host) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__WORKER;
  hello.host = "host";
  hello.pid = (uint32_t)key;
  hello.device = "cpu";
  hello.executors = 1;
  hello.fingerprint = "build-1";
  hello.shm_host = (char *)host;
  says_hello(f, key, &hello);
}

static struct team team_begin(struct core_fixture *f, uint32_t microbatches, const double *microbatch_s) {
  struct team team = {.f = f, .server = S1};
  memcpy(team.microbatch_s, microbatch_s, sizeof team.microbatch_s);
  f->microbatches = microbatches;
  server_joins(f, S1);
  for (uint64_t i = 0; i < TEAM; i++)
    joins_on(f, W1 + i, f->collective ? "one" : "");
  user_submits(f, RUN, TEAM, 0);
  for (uint64_t i = 0; i < TEAM; i++)
    worker_loads(f, W1 + i, RUN);
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  return team;
}

static uint32_t share_of(const struct team *team, int i) {
  const struct told *told = &team->f->told[W1 + i];
  return told->end - told->begin;
}

/* By the shares that the workers were told. */
static double step_seconds(const struct team *team) {
  double slowest = 0;
  for (int i = 0; i < TEAM; i++)
    if (share_of(team, i) && share_of(team, i) * team->microbatch_s[i] > slowest)
      slowest = share_of(team, i) * team->microbatch_s[i];
  return slowest;
}

/* Steps follow each other; where a worker hangs none does, and the others make up for what it lacks.
   Everybody beats each second; who follows receives the versions. */
static void team_trains(struct team *team, int seconds) {
  while (seconds-- > 0) {
    double step_s = step_seconds(team);
    if (isinf(step_s))
      step_s = 1;
    for (int i = 0; i < TEAM; i++) {
      bool is_stuck = isinf(team->microbatch_s[i]) && (share_of(team, i) || team->busy_s[i] > 0);
      double n = is_stuck ? 0 : share_of(team, i) / step_s;
      team->computed[i] += n;
      team->busy_s[i] += is_stuck ? 1 : n * (isinf(team->microbatch_s[i]) ? 0 : team->microbatch_s[i]);
      member_counts(team->f, W1 + (uint64_t)i, RUN, (uint64_t)team->computed[i], team->busy_s[i]);
      if (!team->receives_nothing && team->f->told[W1 + i].follows)
        worker_catches_up(team->f, W1 + (uint64_t)i, RUN, 0);
    }
    member_beats(team->f, team->server);
    time_passes(team->f, 1000);
  }
}

/* The least step of all ways to share so many microbatches. */
static double best_seconds(const double *microbatch_s, int n, uint32_t microbatches) {
  double best = INFINITY;
  if (n == 0)
    return microbatches ? INFINITY : 0;
  for (uint32_t take = 0; take <= microbatches; take++) {
    double rest = best_seconds(microbatch_s + 1, n - 1, microbatches - take);
    double mine = take ? take * microbatch_s[0] : 0, slower = mine > rest ? mine : rest;
    best = slower < best ? slower : best;
  }
  return best;
}

static void a_worker_at_a_quarter_of_the_others_speed_costs_no_more_than_it_must(void **state) {
  const double microbatch_s[TEAM] = {0.05, 0.05, 0.05, 0.2};
  const uint32_t microbatches[] = {8, 12, 16};
  for (int i = 0; i < 3; i++) {
    struct core_fixture *f;
    struct team team;
    double equal_s, best_s;
    if (i > 0) {
      core_teardown(state);
      core_setup(state);
    }
    f = *state;
    team = team_begin(f, microbatches[i], microbatch_s);
    equal_s = step_seconds(&team);
    team_trains(&team, 12);
    best_s = best_seconds(microbatch_s, TEAM, microbatches[i]);
    print_message(
        "%2u microbatches at speeds 1, 1, 1, 1/4: shares %u %u %u %u, step %.2f s, best %.2f s (%.2f), "
        "equal shares %.2f s\n",
        microbatches[i], share_of(&team, 0), share_of(&team, 1), share_of(&team, 2), share_of(&team, 3),
        step_seconds(&team), best_s, best_s / step_seconds(&team), equal_s);
    assert_true(best_s / step_seconds(&team) > 0.999);
  }
}

static void speeds_are_listed(void **state) {
  const double microbatch_s[TEAM] = {0.05, 0.05, 0.05, 0.2};
  struct team team = team_begin(*state, 16, microbatch_s);
  assert_true(worker_row(*state, W1).speed == 0); /* not measured yet */
  team_trains(&team, 12);
  assert_true(fabs(worker_row(*state, W1).speed - 20) < 1);
  assert_true(fabs(worker_row(*state, W4).speed - 5) < 0.5);
}

static void a_gain_must_last(void **state) {
  const double microbatch_s[TEAM] = {0.05, 0.05, 0.05, 0.05};
  struct core_fixture *f = *state;
  struct team team = team_begin(f, 16, microbatch_s);
  uint64_t view = f->told[W1].view;
  team_trains(&team, 30);
  team.microbatch_s[3] = 0.2;
  team_trains(&team, 2);
  team.microbatch_s[3] = 0.05;
  team_trains(&team, 30);
  assert_int_equal(f->told[W1].view, view);
  assert_int_equal(share_of(&team, 3), 4);
}

static void speeds_that_promise_little_change_no_share(void **state) {
  const double microbatch_s[TEAM] = {0.05, 0.05, 0.05, 0.054};
  struct core_fixture *f = *state;
  struct team team = team_begin(f, 16, microbatch_s);
  uint64_t view = f->told[W1].view;
  team_trains(&team, 100);
  assert_int_equal(f->told[W1].view, view);
}

static void a_worker_that_hangs_has_no_share_until_it_computes_again(void **state) {
  const double microbatch_s[TEAM] = {0.05, 0.05, 0.05, 0.05};
  struct core_fixture *f = *state;
  struct team team = team_begin(f, 16, microbatch_s);
  team_trains(&team, 10);
  team.microbatch_s[3] = INFINITY;
  team_trains(&team, 12);
  assert_int_equal(share_of(&team, 3), 0);
  assert_true(worker_row(f, W4).speed == 0);
  assert_string_equal(worker_row(f, W4).state, "following");
  assert_non_null(strstr(info_of_run(f, RUN).message, "worker-4 (host) computes nothing: for 3 s"));
  team_trains(&team, 100);
  worker_catches_up(f, W4, RUN, 0); /* it receives weights, but its executor hangs all the same */
  team_trains(&team, 100);
  assert_int_equal(share_of(&team, 3), 0);
  team.microbatch_s[3] = 0.05;
  team.computed[3] += 4;
  team_trains(&team, 20);
  assert_int_equal(share_of(&team, 3), 4);
  assert_string_equal(info_of_run(f, RUN).message, "");
}

static void when_all_hang_the_shares_stay(void **state) {
  const double microbatch_s[TEAM] = {0.05, 0.05, 0.05, 0.05};
  struct core_fixture *f = *state;
  struct team team = team_begin(f, 16, microbatch_s);
  team_trains(&team, 10);
  for (int i = 0; i < TEAM; i++)
    team.microbatch_s[i] = INFINITY;
  team_trains(&team, 100);
  for (int i = 0; i < TEAM; i++)
    assert_int_equal(share_of(&team, i), 4);
}

/* At 8 microbatches a worker at a quarter of the speed is better left without any. */
static void a_worker_too_slow_for_a_share_is_tried_again_after_ever_longer_pauses(void **state) {
  const double microbatch_s[TEAM] = {0.05, 0.05, 0.05, 0.2};
  struct core_fixture *f = *state;
  struct team team = team_begin(f, 8, microbatch_s);
  team_trains(&team, 12);
  for (int pause_s = 60; pause_s <= 240; pause_s *= 2) {
    assert_int_equal(share_of(&team, 3), 0);
    assert_true(f->told[W4].follows); /* so that it has weights when it is tried */
    team_trains(&team, pause_s - 20);
    assert_int_equal(share_of(&team, 3), 0);
    for (int waited = 0; !share_of(&team, 3) && waited < 30; waited++)
      team_trains(&team, 1);
    assert_int_equal(share_of(&team, 3), 2);
    team_trains(&team, 15);
  }
  assert_int_equal(share_of(&team, 3), 0);
  team.microbatch_s[3] = 0.05; /* it was busy with something else */
  team_trains(&team, 600);
  assert_int_equal(share_of(&team, 3), 2);
}

/* It has none of the versions that followed a roll-back: whoever waited for it would wait for the weights. */
static void a_worker_without_a_share_gets_none_after_a_roll_back_before_it_has_weights(void **state) {
  const double microbatch_s[TEAM] = {0.05, 0.05, 0.05, 0.2};
  struct core_fixture *f = *state;
  struct team team = team_begin(f, 8, microbatch_s);
  team_trains(&team, 12);
  assert_int_equal(share_of(&team, 3), 0);
  assert_string_equal(worker_row(f, W4).state, "ready");
  member_leaves(f, S1);
  server_joins(f, team.server = S2);
  team_trains(&team, 5);
  f->incarnation = 1;
  server_loads(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  team.receives_nothing = true;
  for (int i = 0; i < 3; i++)
    team.microbatch_s[i] = 0.2;
  team_trains(&team, 30);
  assert_int_equal(share_of(&team, 3), 0);
  assert_string_equal(worker_row(f, W4).state, "following");
  assert_true(f->told[W4].follows);
  team.receives_nothing = false;
  team_trains(&team, 5);
  assert_int_equal(share_of(&team, 3), 2);
  assert_string_equal(worker_row(f, W4).state, "ready");
}

/* The queued run is before it, but waits for more workers than there are. */
static void a_run_whose_only_worker_hangs_gets_the_next_that_is_free(void **state) {
  static const char QUEUED[] = "mlp-bbbbbb";
  const double microbatch_s[TEAM] = {0.05, 0.05, 0.05, 0.05};
  struct core_fixture *f = *state;
  struct team team;
  user_submits(f, QUEUED, 2, 0);
  user_pauses(f, QUEUED);
  team = team_begin(f, 8, microbatch_s);
  team_trains(&team, 10);
  user_resumes(f, QUEUED, 0);
  for (uint64_t key = W1; key < W4; key++)
    member_leaves(f, key);
  for (int i = 0; i < 100; i++) {
    member_counts(f, W4, RUN, (uint64_t)team.computed[3], team.busy_s[3] += 1);
    member_beats(f, S1);
    time_passes(f, 1000);
  }
  worker_joins(f, W4 + 1, 1);
  assert_string_equal(f->told[W4 + 1].load, RUN);
  assert_state(f, QUEUED, WEIR__RUN_STATE__QUEUED);
}

static void shares_in_a_group_change_for_much_alone_and_late(void **state) {
  const double microbatch_s[TEAM] = {0.05, 0.05, 0.05, 0.06};
  struct core_fixture *f = *state;
  struct team team;
  uint32_t group;
  f->collective = "shm";
  team = team_begin(f, 16, microbatch_s);
  group = f->told[W1].group;
  assert_true(group > 0);
  team.microbatch_s[3] = 0.065; /* one less would save 23 % of each step */
  team_trains(&team, 200);
  assert_int_equal(f->told[W1].group, group);
  team.microbatch_s[3] = 0.2;
  team_trains(&team, 25);
  assert_int_equal(f->told[W1].group, group);
  team_trains(&team, 20);
  assert_int_not_equal(f->told[W1].group, group);
  assert_int_equal(share_of(&team, 3), 1);
}

static void a_view_for_another_reason_leaves_the_shares_as_they_are(void **state) {
  const double microbatch_s[TEAM] = {0.05, 0.05, 0.05, 0.09};
  struct core_fixture *f = *state;
  struct team team;
  Weir__GroupFailed failed = WEIR__GROUP_FAILED__INIT;
  f->collective = "shm";
  team = team_begin(f, 16, microbatch_s);
  team_trains(&team, 12);
  failed.run = (char *)RUN;
  failed.view = f->told[W1].view_number;
  failed.group = f->told[W1].group;
  member_says(f, W1, WEIR__MEMBER_MESSAGE__BODY_GROUP_FAILED, &failed);
  assert_true(f->told[W1].group > failed.group);
  for (int i = 0; i < TEAM; i++)
    assert_int_equal(share_of(&team, i), 4);
}

/* Of another run or incarnation, of who has none, of a server: nothing is taken from them. */
static void counters_that_make_no_sense_are_ignored(void **state) {
  const double microbatch_s[TEAM] = {0.05, 0.05, 0.05, 0.05};
  const double odd[] = {(double)NAN, (double)INFINITY, -1, 1e300};
  struct core_fixture *f = *state;
  struct team team = team_begin(f, 16, microbatch_s);
  uint64_t view = f->told[W1].view;
  worker_joins(f, W4 + 1, 1); /* follows nothing yet: it loads */
  for (uint64_t i = 0; i < 200; i++) {
    for (uint64_t key = S1; key <= W4 + 1; key++) {
      uint64_t beats = f->told[key].beats;
      member_counts(f, key, "mlp-bbbbbb", i * 7, (double)i);
      member_counts(f, key, "", i * 7, (double)i);
      f->incarnation = 7;
      member_counts(f, key, RUN, i * 7, (double)i);
      f->incarnation = 0;
      member_counts(f, key, RUN, UINT64_MAX - i % 3, odd[i % 4]);
      assert_int_equal(f->told[key].beats, beats + 4); /* each is answered */
    }
    time_passes(f, 1000);
  }
  assert_int_equal(f->told[W1].view, view);
  assert_true(worker_row(f, W1).speed == 0);
  team_trains(&team, 12);
  assert_int_equal(f->told[W1].view, view);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_worker_at_a_quarter_of_the_others_speed_costs_no_more_than_it_must),
      TEST(speeds_are_listed),
      TEST(a_gain_must_last),
      TEST(speeds_that_promise_little_change_no_share),
      TEST(a_worker_that_hangs_has_no_share_until_it_computes_again),
      TEST(when_all_hang_the_shares_stay),
      TEST(a_worker_too_slow_for_a_share_is_tried_again_after_ever_longer_pauses),
      TEST(a_worker_without_a_share_gets_none_after_a_roll_back_before_it_has_weights),
      TEST(a_run_whose_only_worker_hangs_gets_the_next_that_is_free),
      TEST(shares_in_a_group_change_for_much_alone_and_late),
      TEST(a_view_for_another_reason_leaves_the_shares_as_they_are),
      TEST(counters_that_make_no_sense_are_ignored),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
