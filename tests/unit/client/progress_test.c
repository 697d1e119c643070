/* How progress looks, and what the metrics file holds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/files/metrics.h"
#include "client/terminal/output.h"
#include "client/terminal/progress_text.h"

static const struct live_style plain = {.width = 80};
static const struct live_style fancy = {.width = 80, .is_unicode = true, .is_coloured = true};

static void add_step(struct progress_view *view, uint64_t step, double seconds) {
  Weir__StepEvent body = WEIR__STEP_EVENT__INIT;
  Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
  body.step = step;
  body.epoch = 3;
  body.loss = 0.28714;
  body.samples = 128;
  body.workers = 2;
  body.seconds = seconds;
  event.event_case = WEIR__RUN_EVENT__EVENT_STEP;
  event.step = &body;
  progress_view_update(view, &event);
}

/* Of a run so named. */
static void view_init(struct progress_view *view, const char *run) {
  Weir__RunInfo info = WEIR__RUN_INFO__INIT;
  info.run = (char *)run;
  progress_view_init(view, &info);
}

static struct progress_view running_view(void) {
  struct progress_view view;
  Weir__RunInfo info = WEIR__RUN_INFO__INIT;
  info.run = "fashion-mnist-k3f9a2";
  info.steps = 2340;
  info.epochs = 5;
  progress_view_init(&view, &info);
  for (uint64_t step = 0; step < 1170; step++)
    add_step(&view, step, 0.025);
  view.accuracy = 0.9012;
  return view;
}

static void a_bar_is_exactly_as_wide_as_asked(void **state) {
  char bar[PROGRESS_BAR_MAX];
  (void)state;
  for (int width = 3; width <= 200; width++)
    for (double fraction = -0.1; fraction < 1.2; fraction += 0.0437) {
      progress_bar(fraction, width, &fancy, bar);
      assert_int_equal(output_columns(bar), width);
      progress_bar(fraction, width, &plain, bar);
      assert_int_equal((int)strlen(bar), width);
    }
}

static void a_bar_fills_with_its_fraction(void **state) {
  char bar[PROGRESS_BAR_MAX];
  (void)state;
  progress_bar(0, 10, &plain, bar);
  assert_string_equal(bar, "[        ]");
  progress_bar(0.5, 10, &plain, bar);
  assert_string_equal(bar, "[====>   ]");
  progress_bar(1, 10, &plain, bar);
  assert_string_equal(bar, "[========]");
  progress_bar(0.3125, 6, &fancy, bar);
  assert_string_equal(bar, "▕█▎  ▏");
  progress_bar(NAN, 4, &fancy, bar);
  assert_string_equal(bar, "▕  ▏");
}

static void live_lines_never_take_the_last_column(void **state) {
  struct progress_view view = running_view(), waiting;
  char first[PROGRESS_LINE_MAX], second[PROGRESS_LINE_MAX];
  (void)state;
  view_init(&waiting, "fashion-mnist-k3f9a2");
  for (int width = 1; width <= 250; width++) {
    struct live_style style = {.width = width, .is_unicode = width % 2, .is_coloured = width % 3 > 0};
    progress_live_lines(&view, &style, first, second);
    assert_true(output_columns(first) < width && output_columns(second) < width);
    progress_live_lines(&waiting, &style, first, second);
    assert_true(output_columns(first) < width && output_columns(second) < width);
  }
}

static void live_lines_tell_all_at_80_columns(void **state) {
  struct progress_view view = running_view();
  char first[PROGRESS_LINE_MAX], second[PROGRESS_LINE_MAX];
  (void)state;
  progress_live_lines(&view, &plain, first, second);
  assert_string_equal(first,
                      "fashion-mnist-k3f9a2  [=============>             ]  50 %  1170/2340  epoch 4/5");
  assert_string_equal(second, "  loss 0.2871 | accuracy 90.12 % | 0:29 left | 5,120 samples/s | 2 workers");
}

static void a_narrow_terminal_keeps_the_percentage(void **state) {
  struct progress_view view = running_view();
  struct live_style style = {.width = 20};
  char first[PROGRESS_LINE_MAX], second[PROGRESS_LINE_MAX];
  (void)state;
  progress_live_lines(&view, &style, first, second);
  assert_non_null(strstr(first, "50 %"));
  assert_string_equal(second, "  loss 0.2871");
}

static void a_waiting_run_says_what_it_waits_for(void **state) {
  struct progress_view view;
  Weir__RunInfo info = WEIR__RUN_INFO__INIT;
  Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
  char first[PROGRESS_LINE_MAX], second[PROGRESS_LINE_MAX];
  (void)state;
  view_init(&view, "a-123456");
  info.state = WEIR__RUN_STATE__QUEUED;
  info.message = "0 of 2 workers\nare there";
  event.event_case = WEIR__RUN_EVENT__EVENT_INFO;
  event.info = &info;
  progress_view_update(&view, &event);
  progress_live_lines(&view, &plain, first, second);
  assert_string_equal(first, "a-123456  queued: 0 of 2 workers are there");
  add_step(&view, 0, 1);
  progress_view_update(&view, &event);
  progress_live_lines(&view, &plain, first, second);
  assert_string_equal(second, "  queued: 0 of 2 workers are there");
  add_step(&view, 1, 1);
  progress_live_lines(&view, &plain, first, second);
  assert_non_null(strstr(second, "loss 0.2871"));
}

static void a_held_run_says_where_it_is_held(void **state) {
  struct progress_view view = running_view();
  Weir__RunInfo info = WEIR__RUN_INFO__INIT;
  Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
  char first[PROGRESS_LINE_MAX], second[PROGRESS_LINE_MAX];
  (void)state;
  info.state = WEIR__RUN_STATE__HELD;
  info.step = 1171;
  info.steps = 2340;
  event.event_case = WEIR__RUN_EVENT__EVENT_INFO;
  event.info = &info;
  progress_view_update(&view, &event);
  progress_live_lines(&view, &plain, first, second);
  assert_string_equal(second, "  held at step 1171 of 2340");
  progress_state_line(&view, first);
  assert_string_equal(first, "fashion-mnist-k3f9a2: held at step 1171 of 2340");
  info.message = "pausing at step 1171";
  progress_view_update(&view, &event);
  progress_state_line(&view, first);
  assert_string_equal(first, "fashion-mnist-k3f9a2: held at step 1171 of 2340: pausing at step 1171");
}

static void the_speed_follows_the_recent_steps(void **state) {
  struct progress_view view = running_view();
  (void)state;
  assert_true(fabs(progress_samples_per_second(&view) - 5120) < 1);
  assert_true(fabs(progress_seconds_left(&view) - 1170 * 0.025) < 0.1);
  for (uint64_t step = 1170; step < 1400; step++)
    add_step(&view, step, 0.25);
  assert_true(fabs(progress_samples_per_second(&view) - 512) < 5);
}

static void an_evaluation_says_after_how_much_training(void **state) {
  struct progress_view view = running_view();
  Weir__EvalEvent eval = WEIR__EVAL_EVENT__INIT;
  char line[PROGRESS_LINE_MAX];
  (void)state;
  eval.step = 1170;
  eval.loss = 0.25;
  eval.accuracy = 0.9012;
  progress_eval_line(&view, &eval, line); /* also to one who watches a run that has ended long ago */
  assert_string_equal(line, "eval at step 1170  loss 0.2500  accuracy 90.12 %  after 0:29");
  eval.accuracy = NAN; /* the loss has no classes */
  progress_eval_line(&view, &eval, line);
  assert_string_equal(line, "eval at step 1170  loss 0.2500  after 0:29");
}

static void nothing_is_promised_before_the_first_step(void **state) {
  struct progress_view view;
  (void)state;
  view_init(&view, "a-123456");
  assert_true(isnan(progress_samples_per_second(&view)));
  assert_true(isnan(progress_seconds_left(&view)));
}

static void durations_and_counts_read_well(void **state) {
  char text[OUTPUT_TEXT_MAX];
  (void)state;
  assert_string_equal(output_duration(0.2, text), "0:00");
  assert_string_equal(output_duration(41, text), "0:41");
  assert_string_equal(output_duration(3723, text), "1:02:03");
  assert_string_equal(output_duration(NAN, text), "-");
  assert_string_equal(output_duration(-1, text), "-");
  assert_string_equal(output_count(0, text), "0");
  assert_string_equal(output_count(999, text), "999");
  assert_string_equal(output_count(60000, text), "60,000");
  assert_string_equal(output_count(-1234567, text), "-1,234,567");
  assert_string_equal(output_count(NAN, text), "-");
  assert_string_equal(output_bytes(1023, text), "1023 B");
  assert_string_equal(output_bytes(1782579, text), "1.7 MiB");
  assert_string_equal(output_percent(0.90123, text), "90.12 %");
  assert_string_equal(output_percent(NAN, text), "-");
}

static void numbers_read_back_as_the_same_double(void **state) {
  static const double values[] = {0,      0.05,          2.31,      1.0 / 3, 0.1 + 0.2,
                                  1e-300, 123456789.125, -4.9e-324, 5120.3};
  char text[32];
  (void)state;
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    assert_true(strtod(metrics_number(values[i], text), NULL) == values[i]);
  assert_string_equal(metrics_number(0.05, text), "0.05");
  assert_string_equal(metrics_number(NAN, text), "null");
  assert_string_equal(metrics_number(INFINITY, text), "null");
}

static void metrics_lines_have_the_contracts_keys(void **state) {
  Weir__StepEvent step = WEIR__STEP_EVENT__INIT;
  Weir__EvalEvent eval = WEIR__EVAL_EVENT__INIT;
  Weir__DoneEvent done = WEIR__DONE_EVENT__INIT;
  Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
  char line[METRICS_LINE_MAX];
  size_t length;
  (void)state;
  event.event_case = WEIR__RUN_EVENT__EVENT_STEP;
  event.step = &step;
  step.loss = 2.31;
  step.lr = 0.05;
  step.samples = 128;
  step.workers = 2;
  step.seconds = 0.80000000004;
  length = metrics_line(&event, line);
  assert_int_equal(length, strlen(line));
  assert_string_equal(line,
                      "{\"event\":\"step\",\"step\":0,\"epoch\":0,\"loss\":2.31,\"lr\":0.05,\"samples\":128,"
                      "\"workers\":2,\"seconds\":0.8}\n");
  step.incarnation = 1;
  metrics_line(&event, line);
  assert_non_null(strstr(line, "\"seconds\":0.8,\"incarnation\":1}\n"));
  step.step = 1007; /* of several steps, long ago */
  step.steps = 8;
  step.loss_min = 1.5;
  step.loss_max = NAN;
  metrics_line(&event, line);
  assert_string_equal(line, "{\"event\":\"step\",\"step\":1007,\"epoch\":0,\"loss\":2.31,\"lr\":0.05,"
                            "\"samples\":128,\"workers\":2,\"seconds\":0.8,\"steps\":8,\"loss_min\":1.5,"
                            "\"loss_max\":null,\"incarnation\":1}\n");
  event.event_case = WEIR__RUN_EVENT__EVENT_EVAL;
  event.eval = &eval;
  eval.step = 468;
  eval.loss = 0.41;
  eval.accuracy = 0.852;
  metrics_line(&event, line);
  assert_string_equal(line, "{\"event\":\"eval\",\"step\":468,\"loss\":0.41,\"accuracy\":0.852}\n");
  eval.accuracy = NAN; /* the loss has no classes */
  metrics_line(&event, line);
  assert_string_equal(line, "{\"event\":\"eval\",\"step\":468,\"loss\":0.41}\n");
  event.event_case = WEIR__RUN_EVENT__EVENT_DONE;
  event.done = &done;
  done.steps = 2343;
  done.accuracy = NAN;
  done.weights_sha256 = (char *)"abc";
  done.samples_per_second = 5120.34;
  metrics_line(&event, line);
  assert_string_equal(line, "{\"event\":\"done\",\"steps\":2343,\"accuracy\":null,\"weights_sha256\":\"abc\","
                            "\"samples_per_second\":5120.3}\n");
}

/* A name that is not known may be anything: it is left out. */
static void named_metrics_are_keys_of_their_own(void **state) {
  Weir__MetricValue top5 = WEIR__METRIC_VALUE__INIT, auc = WEIR__METRIC_VALUE__INIT,
                    odd = WEIR__METRIC_VALUE__INIT;
  Weir__MetricValue *metrics[] = {&top5, &odd, &auc};
  Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
  Weir__EvalEvent eval = WEIR__EVAL_EVENT__INIT;
  Weir__DoneEvent done = WEIR__DONE_EVENT__INIT;
  struct progress_view view = running_view();
  char line[METRICS_LINE_MAX], text[PROGRESS_LINE_MAX];
  (void)state;
  top5.name = (char *)"top5";
  top5.value = 0.985;
  odd.name = (char *)"\",\"step\":\"\n";
  auc.name = (char *)"auc";
  auc.value = NAN; /* there was one class alone */
  eval.metrics = done.metrics = metrics;
  eval.n_metrics = done.n_metrics = 3;
  eval.step = 468;
  eval.loss = 0.41;
  eval.accuracy = 0.852;
  event.event_case = WEIR__RUN_EVENT__EVENT_EVAL;
  event.eval = &eval;
  metrics_line(&event, line);
  assert_string_equal(line,
                      "{\"event\":\"eval\",\"step\":468,\"loss\":0.41,\"accuracy\":0.852,\"top5\":0.985,"
                      "\"auc\":null}\n");
  progress_eval_line(&view, &eval, text);
  assert_string_equal(text,
                      "eval at step 468  loss 0.4100  accuracy 85.20 %  top5 98.50 %  auc -  after 0:29");
  event.event_case = WEIR__RUN_EVENT__EVENT_DONE;
  event.done = &done;
  done.weights_sha256 = (char *)"abc";
  metrics_line(&event, line);
  assert_non_null(strstr(line, "\"samples_per_second\":0,\"top5\":0.985,\"auc\":null}\n"));
}

static void changes_of_state_are_no_metrics(void **state) {
  Weir__RunInfo info = WEIR__RUN_INFO__INIT;
  Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
  char line[METRICS_LINE_MAX];
  (void)state;
  event.event_case = WEIR__RUN_EVENT__EVENT_INFO;
  event.info = &info;
  assert_int_equal(metrics_line(&event, line), 0);
}

static void write_step(struct metrics *metrics, uint64_t step, uint64_t incarnation) {
  Weir__StepEvent body = WEIR__STEP_EVENT__INIT;
  Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
  struct err err = ERR_NONE;
  body.step = step;
  body.incarnation = incarnation;
  event.event_case = WEIR__RUN_EVENT__EVENT_STEP;
  event.step = &body;
  assert_int_equal(metrics_write(metrics, &event, &err), ERR_OK);
}

static int count_lines(const char *path) {
  FILE *file = fopen(path, "r");
  int n = 0, c;
  while ((c = fgetc(file)) != EOF)
    n += c == '\n';
  fclose(file);
  return n;
}

static void resumed_metrics_repeat_no_line_and_lose_none(void **state) {
  char path[] = "/tmp/weir-metrics-XXXXXX";
  struct metrics *metrics;
  struct err err = ERR_NONE;
  FILE *file;
  (void)state;
  close(mkstemp(path));
  assert_int_equal(metrics_open(path, false, &metrics, &err), ERR_OK);
  for (uint64_t step = 0; step < 5; step++)
    write_step(metrics, step, 0);
  write_step(metrics, 3, 1);
  metrics_close(metrics);
  file = fopen(path, "a");
  fputs("{\"event\":\"step\",\"step\":4,\"ep", file); /* cut short by a SIGKILL */
  fclose(file);
  assert_int_equal(metrics_open(path, true, &metrics, &err), ERR_OK);
  for (uint64_t step = 0; step < 5; step++)
    write_step(metrics, step, 0); /* had already */
  for (uint64_t step = 3; step < 6; step++)
    write_step(metrics, step, 1); /* 3 was had */
  metrics_close(metrics);
  assert_int_equal(count_lines(path), 8);
  assert_int_equal(metrics_open(path, true, &metrics, &err), ERR_OK); /* no line is broken */
  metrics_close(metrics);
  file = fopen(path, "a");
  fputs("hello\n", file);
  fclose(file);
  assert_int_equal(metrics_open(path, true, &metrics, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, ":9: not a line of metrics"));
  remove(path);
}

/* A file that the user names may have another run's lines before. */
static void a_run_before_in_the_same_file_hides_no_line(void **state) {
  char path[] = "/tmp/weir-metrics-XXXXXX";
  struct metrics *metrics;
  struct err err = ERR_NONE;
  (void)state;
  close(mkstemp(path));
  for (int run = 0; run < 2; run++) {
    assert_int_equal(metrics_open(path, false, &metrics, &err), ERR_OK);
    for (uint64_t step = 0; step < (run == 0 ? 9 : 2); step++)
      write_step(metrics, step, 0);
    metrics_close(metrics);
  }
  assert_int_equal(metrics_open(path, true, &metrics, &err), ERR_OK);
  for (uint64_t step = 0; step < 5; step++)
    write_step(metrics, step, 0);
  metrics_close(metrics);
  assert_int_equal(count_lines(path), 9 + 5);
  remove(path);
}

static void what_an_exporter_left_out_is_one_line(void **state) {
  struct graph whole = {0}, folded = {.n_lost = 1, .lost = "'fc.bias'"};
  char *text = NULL;
  size_t size;
  FILE *file = open_memstream(&text, &size);
  (void)state;
  output_lost(file, "weir: note: ", &whole);
  fflush(file);
  assert_int_equal(size, 0);
  output_lost(file, "weir: note: ", &folded);
  fclose(file);
  assert_ptr_equal(strstr(text, "weir: note: parameters"), text);
  assert_non_null(strstr(text, "'fc.bias'"));
  assert_ptr_equal(strchr(text, '\n'), text + size - 1);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_bar_is_exactly_as_wide_as_asked),
      cmocka_unit_test(a_bar_fills_with_its_fraction),
      cmocka_unit_test(live_lines_never_take_the_last_column),
      cmocka_unit_test(live_lines_tell_all_at_80_columns),
      cmocka_unit_test(a_narrow_terminal_keeps_the_percentage),
      cmocka_unit_test(a_waiting_run_says_what_it_waits_for),
      cmocka_unit_test(a_held_run_says_where_it_is_held),
      cmocka_unit_test(the_speed_follows_the_recent_steps),
      cmocka_unit_test(an_evaluation_says_after_how_much_training),
      cmocka_unit_test(nothing_is_promised_before_the_first_step),
      cmocka_unit_test(durations_and_counts_read_well),
      cmocka_unit_test(what_an_exporter_left_out_is_one_line),
      cmocka_unit_test(numbers_read_back_as_the_same_double),
      cmocka_unit_test(metrics_lines_have_the_contracts_keys),
      cmocka_unit_test(named_metrics_are_keys_of_their_own),
      cmocka_unit_test(changes_of_state_are_no_metrics),
      cmocka_unit_test(resumed_metrics_repeat_no_line_and_lose_none),
      cmocka_unit_test(a_run_before_in_the_same_file_hides_no_line),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
