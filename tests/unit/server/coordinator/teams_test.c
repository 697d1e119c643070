/* What stages wait for each other, by what heartbeats say. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/spec.h"
#include "common/base/log.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/state/teams.h"
#include "tests/support/coordinator/core_fixture.h"

enum { S1 = 1, W1, STAGES_GIVEN = 4000 };
static const char RUN[] = "mlp-aaaaaa";

/* Two teams of two stages, ten steps of six microbatches each. */
struct said {
  Weir__TeamCounters counters;
  Weir__StageCounters stages[STAGES_GIVEN], *list[STAGES_GIVEN];
};

static struct said *said_new(void) {
  struct said *said = calloc(1, sizeof *said);
  assert_non_null(said);
  weir__team_counters__init(&said->counters);
  for (int s = 0; s < STAGES_GIVEN; s++) {
    weir__stage_counters__init(&said->stages[s]);
    said->list[s] = &said->stages[s];
  }
  said->counters.teams = 2;
  said->counters.steps = 20;
  said->counters.microbatches = 120;
  said->counters.seconds = 10;
  said->counters.stages = said->list;
  said->counters.n_stages = 2;
  said->stages[0].busy_seconds = 9;
  said->stages[0].program_bytes = 1000;
  said->stages[1].busy_seconds = 7.5;
  return said;
}

static void idle_shares_stand_beside_the_formula(void **state) {
  struct said *said = said_new();
  struct teams *teams = teams_of(&said->counters, 4);
  (void)state;
  assert_non_null(teams);
  assert_int_equal(teams->n, 2);
  assert_int_equal(teams->n_stages, 2);
  assert_float_equal(teams->bubble, 1.0 / 7, 1e-12);
  assert_float_equal(teams->stages[0].idle, 0.1, 1e-12);
  assert_float_equal(teams->stages[1].idle, 0.25, 1e-12);
  assert_int_equal(teams->stages[0].program_bytes, 1000);
  free(teams);
  free(said);
}

static void the_formula_counts_stages_that_other_workers_have(void **state) {
  struct said *said = said_new();
  struct teams *teams;
  (void)state;
  said->counters.n_stages = 1;
  assert_null(teams_of(&said->counters, 2)); /* its executors work alone */
  said->counters.model_stages = 3;
  teams = teams_of(&said->counters, 2);
  assert_non_null(teams);
  assert_int_equal(teams->n_stages, 1);
  assert_float_equal(teams->bubble, 2.0 / (6 + 2), 1e-12);
  assert_float_equal(teams->stages[0].idle, 0.1, 1e-12);
  free(teams);
  said->counters.model_stages = SPEC_STAGES_MAX + 1;
  assert_null(teams_of(&said->counters, 2));
  free(said);
}

static void nothing_is_known_before_the_first_microbatch(void **state) {
  struct said *said = said_new();
  struct teams *teams;
  (void)state;
  said->counters.seconds = said->stages[0].busy_seconds = said->stages[1].busy_seconds = 0;
  said->counters.steps = said->counters.microbatches = 0;
  teams = teams_of(&said->counters, 4);
  assert_non_null(teams);
  assert_true(isnan(teams->bubble));
  assert_true(isnan(teams->stages[0].idle) && isnan(teams->stages[1].idle));
  free(teams);
  free(said);
}

static void a_stage_is_never_idle_for_less_than_nothing(void **state) {
  struct said *said = said_new();
  struct teams *teams;
  (void)state;
  said->stages[0].busy_seconds = 1e300;
  teams = teams_of(&said->counters, 4);
  assert_non_null(teams);
  assert_true(teams->stages[0].idle == 0);
  free(teams);
  free(said);
}

/* What is wrong with counters that are sound but for it. */
static void spoil(struct said *said, int what) {
  const double odd[] = {(double)NAN, (double)INFINITY, -1};
  if (what < 3)
    said->counters.seconds = odd[what];
  else if (what < 6)
    said->stages[1].busy_seconds = odd[what - 3];
  else if (what == 6)
    said->counters.n_stages = STAGES_GIVEN;
  else if (what == 7)
    said->counters.n_stages = 1;
  else if (what == 8)
    said->counters.n_stages = 0;
  else if (what == 9)
    said->counters.teams = 0;
  else if (what == 10)
    said->counters.teams = UINT32_MAX;
  else if (what == 11)
    said->counters.teams = 3; /* of two stages, of four executors */
  else if (what == 12)
    said->counters.steps = 121;
  else if (what == 13)
    said->counters.n_stages = SPEC_STAGES_MAX + 1;
}
enum { SPOILS = 14 };

static void counters_that_cannot_be_are_refused(void **state) {
  (void)state;
  for (int what = 0; what < SPOILS; what++) {
    struct said *said = said_new();
    spoil(said, what);
    assert_null(teams_of(&said->counters, what == 13 || what == 6 ? UINT32_MAX : 4));
    free(said);
  }
}

static void member_says_teams(struct core_fixture *f, const char *run, const Weir__TeamCounters *counters) {
  Weir__RunCounters of = WEIR__RUN_COUNTERS__INIT;
  of.run = (char *)run;
  of.teams = (Weir__TeamCounters *)counters;
  member_tells(f, W1, &of);
}

/* Of the worker's second stage, as `weir workers` and `weir status` have it; -1: it has no stages. */
static double idle_of(struct core_fixture *f) {
  Weir__ListWorkersReply workers;
  Weir__RunInfo info;
  struct arena arena;
  double idle = -1;
  arena_init(&arena);
  coordinator_list_workers(f->coordinator, &viewer_of_all, f->now_ms, &arena, &workers);
  assert_int_equal(workers.n_workers, 1);
  assert_true(coordinator_run_info(f->coordinator, RUN, f->now_ms, &info));
  coordinator_list_staged(f->coordinator, &viewer_of_all, f->now_ms, &arena, &info);
  assert_int_equal(info.n_staged_workers, workers.workers[0]->n_stages > 0);
  if (info.n_staged_workers > 0) {
    assert_int_equal(workers.workers[0]->n_stages, 2);
    assert_string_equal(info.staged_workers[0]->id, workers.workers[0]->id);
    idle = info.staged_workers[0]->stages[1]->idle;
    assert_true(workers.workers[0]->stages[1]->idle == idle);
  }
  arena_fini(&arena);
  return idle;
}

static void the_newest_sound_counters_are_listed_until_the_worker_leaves_its_run(void **state) {
  struct core_fixture *f = *state;
  struct said *said = said_new(), *other = said_new();
  server_joins(f, S1);
  worker_joins(f, W1, 4);
  user_submits(f, RUN, 1, 0);
  member_says_teams(f, RUN, &said->counters); /* it loads */
  worker_loads(f, W1, RUN);
  server_loads(f, S1, RUN);
  assert_float_equal(idle_of(f), 0.25, 1e-12);
  said->stages[1].busy_seconds = 6;
  member_says_teams(f, RUN, &said->counters);
  assert_float_equal(idle_of(f), 0.4, 1e-12);
  for (int what = 0; what < SPOILS; what++) {
    struct said *odd = said_new();
    spoil(odd, what);
    member_says_teams(f, RUN, &odd->counters);
    member_says_teams(f, "mlp-bbbbbb", &other->counters);
    assert_float_equal(idle_of(f), 0.4, 1e-12);
    free(odd);
  }
  user_cancels(f, RUN);
  assert_true(idle_of(f) == -1);
  free(other);
  free(said);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(idle_shares_stand_beside_the_formula),
      cmocka_unit_test(the_formula_counts_stages_that_other_workers_have),
      cmocka_unit_test(nothing_is_known_before_the_first_microbatch),
      cmocka_unit_test(a_stage_is_never_idle_for_less_than_nothing),
      cmocka_unit_test(counters_that_cannot_be_are_refused),
      cmocka_unit_test_setup_teardown(the_newest_sound_counters_are_listed_until_the_worker_leaves_its_run,
                                      core_setup, core_teardown),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
