/* The curves of a run: what they say beside a plain computation, and what they take. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "common/base/memory.h"
#include "common/base/message.h"
#include "server/coordinator/state/event_log.h"

enum { LONG = 1000000, RUNS = 1000, BATCH = 32, BOUND = 64 << 10 };

static double loss_of(uint64_t step) {
  return (double)(step * 7919 % 1024) / 8;
}

static Weir__StepEvent step_event(uint64_t step) {
  Weir__StepEvent event = WEIR__STEP_EVENT__INIT;
  event.step = step;
  event.loss = loss_of(step);
  event.lr = 1.0 / (double)(step + 1);
  event.samples = BATCH;
  event.workers = (uint32_t)(step / 1000 % 4);
  event.seconds = 0.5 + (double)(step % 2);
  return event;
}

static void add_step(struct event_log *log, uint64_t incarnation, uint64_t step) {
  struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_STEP, .step = step_event(step)};
  event.step.incarnation = incarnation;
  event_log_add(log, &event);
}

static void add_eval(struct event_log *log, uint64_t step, double loss) {
  struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_EVAL};
  Weir__EvalEvent eval = WEIR__EVAL_EVENT__INIT;
  Weir__MetricValue top5 = WEIR__METRIC_VALUE__INIT, *metrics[] = {&top5};
  top5.name = "top5";
  top5.value = loss / 2;
  eval.step = step;
  eval.loss = loss;
  eval.accuracy = NAN;
  eval.metrics = metrics;
  eval.n_metrics = 1;
  event.eval = message_copy(&eval);
  event_log_add(log, &event);
}

static void assert_near(double value, double expected) {
  assert_true(fabs(value - expected) <= 1e-6 * fabs(expected) + 1e-12);
}

/* Of the steps [first, end), plainly. */
static struct curve_value plain(uint64_t first, uint64_t end, double value(uint64_t step)) {
  struct curve_value result = {0, INFINITY, -INFINITY};
  for (uint64_t step = first; step < end; step++) {
    result.mean += value(step) / (double)(end - first);
    result.min = fmin(result.min, value(step));
    result.max = fmax(result.max, value(step));
  }
  return result;
}

static double lr_of(uint64_t step) {
  return step_event(step).lr;
}

static double rate_of(uint64_t step) {
  return (double)BATCH / step_event(step).seconds;
}

static double workers_of(uint64_t step) {
  return step_event(step).workers;
}

/* Each point stands for the steps behind the one before, and says what a plain computation does. */
static void check_points(const struct curves *curves, uint64_t first, uint64_t end) {
  static double (*const values[STEP_METRICS])(uint64_t) = {loss_of, lr_of, rate_of, workers_of};
  for (int i = 0; i < curves->n_points; i++) {
    struct curve_point point;
    curves_point(curves, i, &point);
    assert_int_equal(point.count, point.last + 1 - first);
    for (int m = 0; m < STEP_METRICS; m++) {
      struct curve_value expected = plain(first, point.last + 1, values[m]);
      assert_near(point.values[m].mean, expected.mean);
      assert_near(point.values[m].min, expected.min);
      assert_near(point.values[m].max, expected.max);
      assert_true(point.values[m].min <= point.values[m].mean && point.values[m].mean <= point.values[m].max);
    }
    first = point.last + 1;
  }
  assert_int_equal(first, end);
}

static void points_say_what_a_plain_computation_does(void **state) {
  const uint64_t lengths[] = {1, 2, 500, 641, 5000, 123457};
  (void)state;
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
    for (uint64_t first = 0; first <= 1000003; first += 1000003) { /* of a fork it is not 0 */
      struct run_curves curves = {0};
      for (uint64_t step = first; step < first + lengths[i]; step++) {
        Weir__StepEvent event = step_event(step);
        assert_true(run_curves_add_step(&curves, &event));
      }
      check_points(&curves.steps, first, first + lengths[i]);
      assert_in_range(curves.steps.n_points, (int)fmin((double)lengths[i], curves.steps.max_points / 4),
                      curves.steps.max_points);
      run_curves_fini(&curves);
    }
}

static void few_values_are_exact(void **state) {
  struct run_curves curves = {0};
  struct curve_point point;
  (void)state;
  for (uint64_t step = 0; step < 600; step++) {
    Weir__StepEvent event = step_event(step);
    event.loss = 1.0 / 3 + (double)step;
    run_curves_add_step(&curves, &event);
  }
  assert_int_equal(curves.steps.n_points, 600);
  for (int i = 0; i < 600; i++) {
    curves_point(&curves.steps, i, &point);
    assert_int_equal(point.last, i);
    assert_true(point.values[STEP_LOSS].mean == 1.0 / 3 + i && point.values[STEP_LOSS].min == 1.0 / 3 + i);
  }
  run_curves_fini(&curves);
}

/* Bytes that are counted, not time. Every run is given all of its steps in turn with the others of its
   hundred; the numbers of all hundreds are the same. */
static void a_thousand_long_runs_take_a_bounded_number_of_bytes(void **state) {
  struct run_curves curves = {0};
  size_t most = 0;
  (void)state;
  for (uint64_t step = 0; step < LONG; step++) {
    Weir__StepEvent event = step_event(step);
    assert_true(run_curves_add_step(&curves, &event));
    if (step % 64 == 0) {
      Weir__EvalEvent eval = WEIR__EVAL_EVENT__INIT;
      eval.step = step + 1;
      assert_true(run_curves_add_eval(&curves, &eval));
    }
    if (step % 1024 == 0 && run_curves_bytes(&curves) > most)
      most = run_curves_bytes(&curves);
  }
  most = run_curves_bytes(&curves) > most ? run_curves_bytes(&curves) : most;
  print_message("%d runs of %d steps: %zu bytes each, %.1f MiB\n", RUNS, LONG, most,
                (double)most * RUNS / (1 << 20));
  assert_in_range(most, 1, BOUND);
  assert_in_range(curves.steps.n_points, curves.steps.max_points / 4, curves.steps.max_points);
  run_curves_fini(&curves);
}

static void a_run_that_is_short_takes_little(void **state) {
  struct run_curves curves = {0};
  Weir__StepEvent event = step_event(0);
  (void)state;
  run_curves_add_step(&curves, &event);
  assert_in_range(run_curves_bytes(&curves), 1, 2048);
  run_curves_fini(&curves);
}

/* What was rolled back comes again: other values take the place of those that there were. */
static void after_a_roll_back_the_curves_are_those_of_what_came_again(void **state) {
  const uint64_t lengths[] = {300, 3000, 60000};
  (void)state;
  for (int i = 0; i < 3; i++) {
    struct event_log log = {.next = 1};
    uint64_t length = lengths[i];
    for (uint64_t step = 0; step < length; step++)
      add_step(&log, 0, step);
    add_eval(&log, length / 2, 1);
    add_eval(&log, length, 2);
    for (uint64_t step = length * 2 / 3; step < length; step++) {
      struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_STEP, .step = step_event(step)};
      event.step.loss = 1000;
      event.step.incarnation = 1;
      event_log_add(&log, &event);
    }
    add_eval(&log, length, 3);
    assert_int_equal(log.curves.evals.n_points, 2);
    for (int p = 0; p < log.curves.steps.n_points; p++) {
      struct curve_point point;
      curves_point(&log.curves.steps, p, &point);
      if (point.last < length * 2 / 3)
        assert_true(point.values[STEP_LOSS].max <= 128);
      else if (point.last + 1 - point.count >= length * 2 / 3)
        assert_true(point.values[STEP_LOSS].min == 1000);
    }
    event_log_fini(&log);
  }
}

static void evaluations_have_the_metrics_of_the_spec(void **state) {
  struct event_log log = {.next = 1};
  struct curve_point point;
  (void)state;
  for (uint64_t step = 100; step <= 3000; step += 100)
    add_eval(&log, step, (double)step);
  assert_int_equal(log.curves.evals.n_metrics, 3);
  assert_string_equal(log.curves.names[EVAL_LOSS], "eval_loss");
  assert_string_equal(log.curves.names[EVAL_NAMED], "top5");
  assert_int_equal(log.curves.evals.n_points, 30); /* far from each other, but few */
  curves_point(&log.curves.evals, 7, &point);
  assert_int_equal(point.last, 800);
  assert_true(point.values[EVAL_NAMED].mean == 400 && isnan(point.values[EVAL_ACCURACY].mean));
  event_log_fini(&log);
}

static void values_that_are_missing_do_not_spread(void **state) {
  struct curves curves;
  (void)state;
  curves_init_points(&curves, 1, 4);
  for (uint64_t i = 0; i < 64; i++) {
    struct curve_point point = {.last = i, .count = 1};
    double value = i % 2 ? NAN : 1;
    point.values[0] = (struct curve_value){value, value, value};
    curves_add(&curves, &point);
  }
  for (int i = 0; i < curves.n_points; i++) {
    struct curve_point point;
    curves_point(&curves, i, &point);
    assert_true(point.values[0].mean == 1);
  }
  curves_fini(&curves);
}

/* As a damaged store may have them. */
static void any_positions_are_taken_in_order(void **state) {
  for (int max = 1; max < 6; max++) {
    struct curves curves;
    uint64_t positions[] = {0, 1, 5, 1ull << 40, 1ull << 62, (1ull << 63) - 1, 1ull << 63, UINT64_MAX};
    (void)state;
    curves_init_points(&curves, 1, max);
    for (int i = 0; i < 8; i++) {
      struct curve_point point = {.last = positions[i], .count = UINT64_MAX / 2};
      point.values[0] = (struct curve_value){i, i, i};
      assert_true(curves_add(&curves, &point));
      assert_false(curves_add(&curves, &point));
      assert_in_range(curves.n_points, 1, max);
    }
    assert_int_equal(curves.heads == NULL, 0);
    curves_fini(&curves);
  }
}

static void a_sparkline_goes_from_the_first_step_to_the_newest(void **state) {
  const uint64_t lengths[] = {1, 39, 40, 41, 1000, 100000};
  (void)state;
  for (int i = 0; i < 6; i++) {
    struct run_curves curves = {0};
    float line[RUN_CURVES_SPARKLINE];
    int n;
    for (uint64_t step = 0; step < lengths[i]; step++) {
      Weir__StepEvent event = step_event(step);
      event.loss = (double)step;
      run_curves_add_step(&curves, &event);
    }
    n = run_curves_sparkline(&curves, line);
    assert_int_equal(n, lengths[i] < RUN_CURVES_SPARKLINE ? (int)lengths[i] : RUN_CURVES_SPARKLINE);
    for (int p = 0; p < n; p++) {
      assert_true(p == 0 || line[p] > line[p - 1]);
      assert_true(fabs(line[p] - ((double)p + 0.5) * (double)lengths[i] / n) <= (double)lengths[i] / n + 1);
    }
    run_curves_fini(&curves);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(points_say_what_a_plain_computation_does),
      cmocka_unit_test(few_values_are_exact),
      cmocka_unit_test(a_thousand_long_runs_take_a_bounded_number_of_bytes),
      cmocka_unit_test(a_run_that_is_short_takes_little),
      cmocka_unit_test(after_a_roll_back_the_curves_are_those_of_what_came_again),
      cmocka_unit_test(evaluations_have_the_metrics_of_the_spec),
      cmocka_unit_test(values_that_are_missing_do_not_spread),
      cmocka_unit_test(any_positions_are_taken_in_order),
      cmocka_unit_test(a_sparkline_goes_from_the_first_step_to_the_newest),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
