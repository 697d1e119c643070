/* The history of a run: each step for who follows, and few events of what is long ago. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "common/base/memory.h"
#include "common/base/message.h"
#include "server/coordinator/state/event_log.h"

enum { LONG = 1000000, BATCH = 32, EVENTS_MOST = EVENT_LOG_THINNED + EVENT_LOG_EXACT + EVENT_LOG_SLACK };

/* Of step s: a whole number, so that sums are exact. */
static double loss_of(uint64_t step) {
  return (double)(step * 7919 % 1024);
}

static void add_step(struct event_log *log, uint64_t incarnation, uint64_t step) {
  struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_STEP, .step = WEIR__STEP_EVENT__INIT};
  event.step.step = step;
  event.step.incarnation = incarnation;
  event.step.loss = loss_of(step);
  event.step.samples = BATCH;
  event.step.workers = 2;
  event.step.seconds = 0.25;
  event_log_add(log, &event);
}

static void add_evaluation(struct event_log *log, uint64_t step) {
  struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_EVAL};
  Weir__EvalEvent evaluation = WEIR__EVAL_EVENT__INIT;
  evaluation.step = step;
  event.eval = message_copy(&evaluation);
  event_log_add(log, &event);
}

static void add_info(struct event_log *log, uint64_t step) {
  struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_INFO};
  Weir__RunInfo info = WEIR__RUN_INFO__INIT;
  info.step = step;
  event.info = message_copy(&info);
  event_log_add(log, &event);
}

static uint64_t steps_of(const Weir__StepEvent *step) {
  return step->steps ? step->steps : 1;
}

/* What a watcher from `number` on gets of steps [from, to): each of them in one event, in order. Returns how
   many events that are. */
static int check_steps(const struct event_log *log, uint64_t number, uint64_t from, uint64_t to) {
  struct run_event_view view;
  uint64_t next = from, previous = 0;
  double sum = 0, expected = 0;
  int events = 0;
  while (event_log_view(log, number, &view)) {
    assert_true(view.event.number >= number && (events == 0 || view.event.number > previous));
    previous = view.event.number;
    number = previous + 1;
    if (view.event.event_case != WEIR__RUN_EVENT__EVENT_STEP)
      continue;
    assert_int_equal(view.step.step + 1 - steps_of(&view.step), next);
    next = view.step.step + 1;
    assert_int_equal(view.step.samples, BATCH * steps_of(&view.step));
    assert_true(view.step.seconds == 0.25 * (double)steps_of(&view.step));
    sum += view.step.loss * (double)steps_of(&view.step);
    events++;
  }
  assert_int_equal(next, to);
  for (uint64_t step = from; step < to; step++)
    expected += loss_of(step);
  assert_true(fabs(sum - expected) < 1e-6 * expected + 1e-9);
  return events;
}

static void a_million_steps_are_a_bounded_number_of_events(void **state) {
  struct event_log log = {.next = 1};
  struct run_event_view view;
  uint64_t number = 1;
  int exact = 0;
  (void)state;
  for (uint64_t step = 0; step < LONG; step++)
    add_step(&log, 0, step);
  assert_in_range(check_steps(&log, 0, 0, LONG), EVENT_LOG_EXACT, EVENTS_MOST);
  assert_in_range(log.steps.capacity, EVENT_LOG_EXACT, 2 * EVENTS_MOST);
  while (event_log_view(&log, number, &view)) {
    uint64_t first = view.step.step + 1 - steps_of(&view.step);
    double least = INFINITY, most = -INFINITY;
    number = view.event.number + 1;
    if (view.step.steps <= 1) {
      exact++;
      continue;
    }
    assert_int_equal(exact, 0); /* the oldest come first */
    for (uint64_t step = first; step <= view.step.step; step++) {
      least = fmin(least, loss_of(step));
      most = fmax(most, loss_of(step));
    }
    assert_true(view.step.loss_min == least && view.step.loss_max == most);
  }
  assert_true(exact >= EVENT_LOG_EXACT);
  event_log_fini(&log);
}

static void nothing_comes_together_while_there_is_room(void **state) {
  struct event_log log = {.next = 1};
  (void)state;
  for (uint64_t step = 0; step < EVENT_LOG_EXACT + EVENT_LOG_THINNED; step++)
    add_step(&log, 0, step);
  assert_int_equal(check_steps(&log, 0, 0, EVENT_LOG_EXACT + EVENT_LOG_THINNED),
                   EVENT_LOG_EXACT + EVENT_LOG_THINNED);
  event_log_fini(&log);
}

static void a_watcher_that_follows_gets_each_step_by_itself(void **state) {
  struct event_log log = {.next = 1};
  struct run_event_view view;
  uint64_t next = 0;
  (void)state;
  for (uint64_t step = 0; step < LONG / 10; step++) {
    add_step(&log, 0, step);
    if (step % 1000)
      continue;
    while (event_log_view(&log, next, &view)) {
      assert_int_equal(view.step.steps, 0);
      next = view.event.number + 1;
    }
    assert_int_equal(view.step.step, step);
  }
  event_log_fini(&log);
}

static void a_watcher_that_was_away_goes_on_with_what_it_was_in(void **state) {
  struct event_log log = {.next = 1};
  struct run_event_view view;
  (void)state;
  for (uint64_t step = 0; step < LONG; step++)
    add_step(&log, 0, step);
  for (uint64_t had = 0; had < LONG - EVENT_LOG_EXACT - EVENT_LOG_SLACK; had += 997) { /* steps below */
    assert_true(event_log_view(&log, 1 + had, &view)); /* their numbers are one more */
    assert_true(view.step.steps > 1);
    assert_in_range(had, view.step.step + 1 - view.step.steps, view.step.step);
  }
  event_log_fini(&log);
}

static void evaluations_are_kept_one_by_one(void **state) {
  struct event_log log = {.next = 1};
  struct run_event_view view;
  uint64_t number = 0, evaluated = 0;
  (void)state;
  for (uint64_t step = 0; step < LONG / 5; step++) {
    add_step(&log, 0, step);
    if (step % 3 == 2)
      add_evaluation(&log, step + 1);
  }
  assert_in_range(check_steps(&log, 0, 0, LONG / 5), EVENT_LOG_EXACT, EVENTS_MOST);
  for (; event_log_view(&log, number, &view); number = view.event.number + 1)
    if (view.event.event_case == WEIR__RUN_EVENT__EVENT_EVAL)
      assert_int_equal(view.event.eval->step, evaluated += 3);
  assert_int_equal(evaluated, LONG / 5 / 3 * 3);
  assert_int_equal(event_log_newest(&log, WEIR__RUN_EVENT__EVENT_EVAL, 100)->eval->step, 99);
  event_log_fini(&log);
}

/* The second repeats steps, the third does not, as after a planned roll-back. */
static void incarnations_do_not_mix(void **state) {
  static const uint64_t begins[] = {0, 12345, LONG / 5 - 1}, ends[] = {LONG / 10, LONG / 5 - 1, LONG / 4};
  struct event_log log = {.next = 1};
  struct run_event_view view;
  uint64_t number = 0, incarnation = 0, next = 0;
  (void)state;
  for (uint64_t i = 0; i < 3; i++)
    for (uint64_t step = begins[i]; step < ends[i]; step++)
      add_step(&log, i, step);
  for (; event_log_view(&log, number, &view); number = view.event.number + 1) {
    if (view.step.incarnation > incarnation) {
      assert_int_equal(next, ends[incarnation]);
      assert_int_equal(view.step.incarnation, ++incarnation);
      next = begins[incarnation];
    }
    assert_int_equal(view.step.step + 1 - steps_of(&view.step), next);
    next = view.step.step + 1;
  }
  assert_int_equal(incarnation, 2);
  assert_int_equal(next, ends[2]);
  event_log_fini(&log);
}

static void roll_backs_without_end_are_bounded_too(void **state) {
  struct event_log log = {.next = 1};
  (void)state;
  for (uint64_t incarnation = 0; incarnation < 100000; incarnation++)
    add_step(&log, incarnation, 5);
  assert_in_range(log.steps.count, EVENT_LOG_EXACT, EVENTS_MOST);
  assert_int_equal(event_log_last(&log)->step.incarnation, 99999);
  event_log_fini(&log);
}

static void losses_that_are_no_numbers_do_not_spread(void **state) {
  struct event_log log = {.next = 1};
  struct run_event_view view;
  int several = 0;
  (void)state;
  for (uint64_t step = 0; step < LONG / 10; step++) {
    add_step(&log, 0, step);
    if (step % 2)
      log.steps.items[log.steps.count - 1].step.loss = NAN;
  }
  for (uint64_t number = 0; event_log_view(&log, number, &view); number = view.event.number + 1)
    if (view.step.steps > 1) {
      assert_true(isfinite(view.step.loss) && isfinite(view.step.loss_min) && isfinite(view.step.loss_max));
      several++;
    }
  assert_true(several > 0);
  event_log_fini(&log);
}

static void of_what_a_run_said_of_itself_the_newest_is_kept(void **state) {
  struct event_log log = {.next = 1};
  struct run_event_view view;
  uint64_t infos = 0, last = 0;
  (void)state;
  add_evaluation(&log, 1);
  for (uint64_t step = 1; step <= 10000; step++)
    add_info(&log, step);
  assert_true(event_log_view(&log, 0, &view));
  assert_int_equal(view.event.event_case, WEIR__RUN_EVENT__EVENT_EVAL);
  for (uint64_t number = view.event.number + 1; event_log_view(&log, number, &view);
       number = view.event.number + 1, infos++)
    last = view.event.info->step;
  assert_in_range(infos, EVENT_LOG_INFOS, 2 * EVENT_LOG_INFOS);
  assert_int_equal(last, 10000);
  event_log_fini(&log);
}

/* As a successor reads it from the store: some of it twice. */
static void a_history_that_is_restored_is_the_same(void **state) {
  struct event_log log = {.next = 1}, restored = {.next = UINT64_C(1) << 32};
  struct run_event_view view;
  uint64_t number = 0;
  (void)state;
  for (uint64_t step = 0; step < LONG; step++)
    add_step(&log, 0, step);
  assert_true(event_log_view(&log, 0, &view) && view.step.steps > 1);
  for (uint64_t step = 0; step + 1 < view.step.steps; step++) { /* what it stands for was still there */
    Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
    Weir__StepEvent alone = WEIR__STEP_EVENT__INIT;
    alone.step = step;
    event.number = 1 + step;
    event.event_case = WEIR__RUN_EVENT__EVENT_STEP;
    event.step = &alone;
    event_log_restore(&restored, &event);
  }
  for (; event_log_view(&log, number, &view); number = view.event.number + 1)
    event_log_restore(&restored, &view.event);
  check_steps(&restored, 0, 0, LONG);
  for (uint64_t step = LONG; step < 2 * LONG; step++)
    add_step(&restored, 0, step);
  assert_in_range(check_steps(&restored, 0, 0, 2 * LONG), EVENT_LOG_EXACT, EVENTS_MOST);
  event_log_fini(&restored);
  event_log_fini(&log);
}

static void an_event_of_more_steps_than_there_were_is_cut(void **state) {
  struct event_log log = {.next = 1000};
  Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
  Weir__StepEvent step = WEIR__STEP_EVENT__INIT;
  (void)state;
  step.step = 7;
  step.steps = UINT64_MAX;
  event.number = 5;
  event.event_case = WEIR__RUN_EVENT__EVENT_STEP;
  event.step = &step;
  event_log_restore(&log, &event);
  assert_int_equal(event_log_last(&log)->step.steps, 8);
  event_log_fini(&log);
}

static void the_history_of_a_run_that_is_over_can_be_made_short(void **state) {
  struct event_log log = {.next = 1};
  struct run_event_view view;
  struct logged_event done = {.kind = WEIR__RUN_EVENT__EVENT_DONE};
  Weir__DoneEvent message = WEIR__DONE_EVENT__INIT;
  size_t before;
  uint64_t last;
  int events;
  (void)state;
  event_log_compact(&log); /* there is nothing */
  for (uint64_t step = 0; step < 30000; step++) {
    add_step(&log, 0, step);
    if (step % 20 == 0)
      add_evaluation(&log, step);
    if (step % 50 == 0)
      add_info(&log, step);
  }
  done.done = message_copy(&message);
  event_log_add(&log, &done);
  last = event_log_last(&log)->number;
  before = event_log_bytes(&log);
  event_log_compact(&log);
  events = check_steps(&log, 0, 0, 30000); /* all are still told, with the same mean */
  assert_in_range(events, EVENT_LOG_OLD_STEPS / 4, EVENT_LOG_OLD_STEPS);
  assert_int_equal(log.others.count, EVENT_LOG_OLD_EVALS + EVENT_LOG_OLD_INFOS + 1);
  assert_true(event_log_bytes(&log) < 600000 && event_log_bytes(&log) * 8 < before);
  assert_int_equal(event_log_last(&log)->number, last);
  assert_int_equal(event_log_last(&log)->kind, WEIR__RUN_EVENT__EVENT_DONE);
  assert_int_equal(event_log_newest(&log, WEIR__RUN_EVENT__EVENT_EVAL, UINT64_MAX)->eval->step, 29980);
  event_log_compact(&log); /* it is as short as it gets */
  assert_int_equal(check_steps(&log, 0, 0, 30000), events);
  for (uint64_t step = 30000; step < 60000; step++) /* it was resumed */
    add_step(&log, 0, step);
  assert_int_equal(check_steps(&log, 0, 0, 60000), log.steps.count);
  assert_true(event_log_view(&log, last + 1, &view));
  event_log_fini(&log);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_million_steps_are_a_bounded_number_of_events),
      cmocka_unit_test(the_history_of_a_run_that_is_over_can_be_made_short),
      cmocka_unit_test(nothing_comes_together_while_there_is_room),
      cmocka_unit_test(a_watcher_that_follows_gets_each_step_by_itself),
      cmocka_unit_test(a_watcher_that_was_away_goes_on_with_what_it_was_in),
      cmocka_unit_test(evaluations_are_kept_one_by_one),
      cmocka_unit_test(incarnations_do_not_mix),
      cmocka_unit_test(roll_backs_without_end_are_bounded_too),
      cmocka_unit_test(losses_that_are_no_numbers_do_not_spread),
      cmocka_unit_test(of_what_a_run_said_of_itself_the_newest_is_kept),
      cmocka_unit_test(a_history_that_is_restored_is_the_same),
      cmocka_unit_test(an_event_of_more_steps_than_there_were_is_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
