/* The curves of a run as they are asked for, and what happened to it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/log.h"
#include "server/coordinator/overview/series.h"
#include "tests/support/coordinator/core_run.h"

enum { LONG = 100000 };

static Weir__Series ask(struct core_fixture *f, struct arena *arena, const Weir__SeriesRequest *request) {
  struct overview_question question = {f->coordinator, &viewer_of_all, f->now_ms, arena};
  Weir__Series series;
  struct err err = ERR_NONE;
  assert_int_equal(series_answer(&question, RUN, request, &series, &err), 0);
  return series;
}

static const Weir__Curve *curve(const Weir__Series *series, const char *metric) {
  for (size_t i = 0; i < series->n_curves; i++)
    if (strcmp(series->curves[i]->metric, metric) == 0)
      return series->curves[i];
  return NULL;
}

static void a_short_run_has_a_point_for_each_step(void **state) {
  struct core_fixture *f = *state;
  Weir__SeriesRequest request = WEIR__SERIES_REQUEST__INIT;
  struct arena arena;
  Weir__Series series;
  f->evaluates = true;
  core_run_begin(f, 1);
  reports_steps(f, S1, RUN, 0, 8);
  arena_init(&arena);
  series = ask(f, &arena, &request);
  assert_int_equal(series.step, 8);
  assert_int_equal(series.steps, STEPS);
  assert_int_equal(curve(&series, "loss")->n_steps, 8);
  assert_int_equal(curve(&series, "loss")->n_min, 0); /* each is of one value */
  assert_int_equal(curve(&series, "lr")->n_mean, 8);
  assert_non_null(curve(&series, "workers"));
  assert_null(curve(&series, "eval_loss"));
  request.since = 5;
  series = ask(f, &arena, &request);
  assert_int_equal(curve(&series, "loss")->n_steps, 3);
  assert_int_equal(curve(&series, "loss")->steps[0], 5);
  request.since = UINT64_MAX;
  series = ask(f, &arena, &request);
  assert_int_equal(series.n_curves + series.n_events, 0);
  arena_fini(&arena);
}

static void a_long_run_has_as_many_points_as_are_wanted(void **state) {
  struct core_fixture *f = *state;
  const uint32_t points[] = {1, 2, 40, 100, 2000};
  struct arena arena;
  f->steps = LONG + 1;
  core_run_begin(f, 1);
  for (uint64_t step = 0; step < LONG; step++)
    reports_step(f, S1, RUN, step);
  arena_init(&arena);
  for (size_t i = 0; i < sizeof points / sizeof *points; i++)
    for (uint64_t since = 0; since < LONG; since += LONG / 2 + LONG / 3) { /* of curves, of events */
      Weir__SeriesRequest request = WEIR__SERIES_REQUEST__INIT;
      Weir__Series series;
      const Weir__Curve *loss;
      request.points = points[i];
      request.since = since;
      series = ask(f, &arena, &request);
      loss = curve(&series, "loss");
      assert_in_range(loss->n_steps, points[i] < 4 ? 1 : points[i] / 4, points[i]);
      assert_int_equal(loss->n_mean, loss->n_steps);
      assert_int_equal(loss->n_min, loss->n_steps);
      assert_int_equal(loss->steps[loss->n_steps - 1], LONG - 1);
      assert_true(loss->steps[0] >= since);
    }
  arena_fini(&arena);
}

static void zooming_in_on_the_newest_steps_shows_each(void **state) {
  struct core_fixture *f = *state;
  Weir__SeriesRequest request = WEIR__SERIES_REQUEST__INIT;
  struct arena arena;
  Weir__Series series;
  f->steps = LONG + 1;
  core_run_begin(f, 1);
  for (uint64_t step = 0; step < LONG; step++)
    reports_step(f, S1, RUN, step);
  arena_init(&arena);
  request.since = LONG - 700;
  series = ask(f, &arena, &request);
  assert_int_equal(curve(&series, "loss")->n_steps, 700);
  assert_int_equal(curve(&series, "loss")->n_min, 0);
  arena_fini(&arena);
}

static void what_makes_no_sense_is_refused(void **state) {
  struct core_fixture *f = *state;
  Weir__SeriesRequest request = WEIR__SERIES_REQUEST__INIT;
  struct arena arena;
  struct overview_question question = {f->coordinator, &viewer_of_all, f->now_ms, &arena};
  char *metrics[] = {"loss", "speed"};
  Weir__Series series;
  struct err err = ERR_NONE;
  core_run_begin(f, 1);
  question.coordinator = f->coordinator;
  arena_init(&arena);
  request.points = UINT32_MAX;
  assert_int_equal(series_answer(&question, RUN, &request, &series, &err), ERR_INVALID);
  assert_string_equal(err.text, "points: 4294967295: a curve has at most 2000");
  request.points = 0;
  request.metrics = metrics;
  request.n_metrics = 2;
  err = ERR_NONE;
  assert_int_equal(series_answer(&question, RUN, &request, &series, &err), ERR_INVALID);
  assert_string_equal(err.text, "run '" RUN "' has no curve of 'speed'");
  arena_fini(&arena);
}

static int count_events(const Weir__Series *series, const char *kind) {
  int count = 0;
  for (size_t i = 0; i < series->n_events; i++) {
    assert_true(i == 0 || series->events[i - 1]->step <= series->events[i]->step);
    count += strcmp(series->events[i]->kind, kind) == 0;
  }
  return count;
}

static void what_happened_stands_beside_the_curves(void **state) {
  struct core_fixture *f = *state;
  Weir__SeriesRequest request = WEIR__SERIES_REQUEST__INIT;
  struct arena arena;
  Weir__Series series;
  core_run_start(f, 2);
  reports_steps(f, S1, RUN, 0, 5);
  core_run_checkpoint(f);
  member_leaves(f, W2);
  time_passes(f, 200);
  member_leaves(f, S2);
  for (int i = 0; i < 50; i++) {
    member_beats(f, S1);
    member_beats(f, W1);
    time_passes(f, 100);
  }
  arena_init(&arena);
  series = ask(f, &arena, &request);
  assert_true(series.incarnation > 0);
  assert_int_equal(count_events(&series, "checkpoint"), 1);
  assert_int_equal(count_events(&series, "rollback"), 1);
  assert_true(count_events(&series, "view") >= 1);
  assert_true(count_events(&series, "state") >= 2);
  arena_fini(&arena);
}

/* A run that is to be paused says so; that is nothing that went wrong. */
static void what_is_waited_for_is_a_note_and_what_went_wrong_a_fault(void **state) {
  struct core_fixture *f = *state;
  Weir__SeriesRequest request = WEIR__SERIES_REQUEST__INIT;
  Weir__Unreached unreached = WEIR__UNREACHED__INIT;
  char *missed[] = {"server-2"};
  struct arena arena;
  Weir__Series series;
  int n_faults;
  core_run_start(f, 2);
  reports_steps(f, S1, RUN, 0, 5);
  unreached.run = RUN;
  unreached.incarnation = f->incarnation;
  unreached.servers = missed;
  unreached.n_servers = 1;
  unreached.message = "connection refused";
  member_says(f, W1, WEIR__MEMBER_MESSAGE__BODY_UNREACHED, &unreached);
  time_passes(f, 100);
  arena_init(&arena);
  series = ask(f, &arena, &request);
  assert_int_equal(count_events(&series, "note"), 0);
  assert_true(count_events(&series, "fault") > 0);
  unreached.n_servers = 0;
  member_says(f, W1, WEIR__MEMBER_MESSAGE__BODY_UNREACHED, &unreached);
  time_passes(f, 100);
  series = ask(f, &arena, &request);
  n_faults = count_events(&series, "fault");
  user_pauses(f, RUN);
  time_passes(f, 100);
  series = ask(f, &arena, &request);
  assert_true(count_events(&series, "note") > 0);
  assert_int_equal(count_events(&series, "fault"), n_faults);
  arena_fini(&arena);
}

/* Events without end: the newest are told. */
static void of_many_events_the_newest_are_told(void **state) {
  struct core_fixture *f = *state;
  Weir__SeriesRequest request = WEIR__SERIES_REQUEST__INIT;
  struct arena arena;
  Weir__Series series;
  core_run_begin(f, 1);
  for (uint64_t i = 0; i < 400; i++) {
    user_pauses(f, RUN);
    user_resumes(f, RUN, 0);
    time_passes(f, 100);
  }
  arena_init(&arena);
  series = ask(f, &arena, &request);
  assert_true(series.n_events <= SERIES_EVENTS_MAX);
  arena_fini(&arena);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_short_run_has_a_point_for_each_step),
      TEST(a_long_run_has_as_many_points_as_are_wanted),
      TEST(zooming_in_on_the_newest_steps_shows_each),
      TEST(what_makes_no_sense_is_refused),
      TEST(what_happened_stands_beside_the_curves),
      TEST(what_is_waited_for_is_a_note_and_what_went_wrong_a_fault),
      TEST(of_many_events_the_newest_are_told),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
