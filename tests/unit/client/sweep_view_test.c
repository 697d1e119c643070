/* How a sweep looks: the live view, the table, CSV. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "client/sweeps/sweep_importance.h"
#include "client/sweeps/sweep_table.h"
#include "client/sweeps/sweep_view.h"
#include "common/base/message.h"
#include "tests/support/common/sweep_fixture.h"

static uint64_t rungs[] = {10, 30, 90};

/* Of six trials over three rungs at most: three were stopped or wait at the first, one runs beyond it. */
static Weir__SweepInfo *make_info(const char *space) {
  Weir__SweepInfo info = WEIR__SWEEP_INFO__INIT;
  Weir__SweepSpec *spec = sweep_spec_make(space);
  Weir__SweepObjective objective = WEIR__SWEEP_OBJECTIVE__INIT;
  Weir__SweepSearch search = WEIR__SWEEP_SEARCH__INIT;
  Weir__SweepSchedule schedule = WEIR__SWEEP_SCHEDULE__INIT;
  Weir__SweepBudget budget = WEIR__SWEEP_BUDGET__INIT;
  Weir__SweepInfo *copy;
  objective.metric = "accuracy";
  objective.goal = "max";
  schedule.name = "asha";
  schedule.rungs = rungs;
  schedule.n_rungs = 3;
  budget.has_trials = true;
  budget.trials = 9;
  spec->objective = &objective;
  spec->search = &search;
  spec->schedule = &schedule;
  spec->budget = &budget;
  info.sweep = "search-abcdef";
  info.spec = spec;
  copy = message_copy(&info);
  spec->objective = NULL;
  spec->search = NULL;
  spec->schedule = NULL;
  spec->budget = NULL;
  message_free(spec);
  return copy;
}

static void set_text(char **field, const char *text) {
  if (*field != (const char *)protobuf_c_empty_string)
    free(*field);
  *field = strdup(text);
}

/* values: "lr=0.1 name=sgd". n results, by rung. */
static Weir__SweepTrial *add_trial(Weir__SweepInfo *info, const char *state, const char *values, int n,
                                   const double *results) {
  Weir__SweepTrial *trial = calloc(1, sizeof *trial);
  char *copy = strdup(values), *rest = copy, *word;
  weir__sweep_trial__init(trial);
  trial->number = (uint32_t)info->n_trials;
  set_text(&trial->run, "search-abcdef-0000");
  set_text(&trial->state, state);
  trial->values = calloc(8, sizeof *trial->values);
  while ((word = strsep(&rest, " "))) {
    Weir__SweepValue *value = calloc(1, sizeof *value);
    weir__sweep_value__init(value);
    value->path = strdup(strsep(&word, "="));
    value->value = strdup(word);
    trial->values[trial->n_values++] = value;
  }
  free(copy);
  trial->results = malloc((size_t)(n + 1) * sizeof *results);
  for (int i = 0; i < n; i++)
    trial->results[trial->n_results++] = results[i];
  info->trials = realloc(info->trials, (info->n_trials + 1) * sizeof *info->trials);
  info->trials[info->n_trials++] = trial;
  info->begun++;
  return trial;
}

static void add_progress(Weir__SweepInfo *info, uint32_t trial, uint64_t step, double loss) {
  Weir__SweepProgress *progress = calloc(1, sizeof *progress);
  weir__sweep_progress__init(progress);
  progress->trial = trial;
  progress->state = WEIR__RUN_STATE__RUNNING;
  progress->step = step;
  progress->steps = 90;
  progress->loss = loss;
  progress->workers = 2;
  info->progress = realloc(info->progress, (info->n_progress + 1) * sizeof *info->progress);
  info->progress[info->n_progress++] = progress;
}

#define RESULTS(...)                                                                                         \
  (int)(sizeof(double[]){__VA_ARGS__} / sizeof(double)), (const double[]) {                                  \
    __VA_ARGS__                                                                                              \
  }

static const char space[] =
    "train.optimizer.lr log 0.001 0.3; train.optimizer.name choice sgd; train.batch choice 32 64";

static Weir__SweepInfo *usual_info(void) {
  Weir__SweepInfo *info = make_info(space);
  add_trial(info, "stopped", "train.optimizer.lr=0.1 train.optimizer.name=sgd train.batch=32", RESULTS(0.5));
  add_trial(info, "running", "train.optimizer.lr=0.02 train.optimizer.name=sgd train.batch=64",
            RESULTS(0.75, 0.875));
  add_trial(info, "waiting", "train.optimizer.lr=0.003 train.optimizer.name=sgd train.batch=64",
            RESULTS(0.625));
  add_trial(info, "running", "train.optimizer.lr=0.2 train.optimizer.name=sgd train.batch=64", 0, NULL);
  info->running = 2;
  info->begun_steps = 10 + 90 + 10 + 10;
  info->has_best = true;
  info->best = 1;
  info->best_value = 0.875;
  add_progress(info, 1, 60, 0.25);
  add_progress(info, 3, 5, 2.5);
  return info;
}

static char *view_text(const struct sweep_view *view, const Weir__SweepInfo *info, const struct live *live) {
  char *text = NULL;
  size_t bytes;
  FILE *file = open_memstream(&text, &bytes);
  sweep_view_print(file, view, info, 100, live);
  fclose(file);
  return text;
}

static char *printed(const Weir__SweepInfo *info, void (*print)(FILE *file, const Weir__SweepInfo *info)) {
  char *text = NULL;
  size_t bytes;
  FILE *file = open_memstream(&text, &bytes);
  print(file, info);
  fclose(file);
  return text;
}

static void assert_has(const char *text, const char *part) {
  if (!strstr(text, part))
    fail_msg("no '%s' in:\n%s", part, text);
}

static void the_view_has_the_best_the_rungs_and_the_trials_that_run(void **state) {
  struct live live = {.lines = 40, .style = {.width = 100}};
  Weir__SweepInfo *info = usual_info();
  struct sweep_view view;
  char *text;
  (void)state;
  sweep_view_init(&view);
  sweep_view_update(&view, info, 90);
  text = view_text(&view, info, &live);
  assert_has(text, "search-abcdef  random, asha\n");
  assert_has(text, "  4/9 trials  85 steps  ");
  assert_has(text, "best accuracy 0.8750 at step 30  trial 1  lr=0.02 batch=64\n");
  assert_has(text, "2 running, 1 waiting, 1 stopped  4 workers\n");
  assert_has(text, "TRIAL  PROGRESS              LOSS       lr  batch\n"
                   "    1  [=====>    ] 60/90  0.2500  _  0.02  64\n"
                   "    3  [=====>    ] 5/10   2.5000  _   0.2  64\n");
  assert_has(text, "STEP  TRIALS  ON THE WAY    BEST\n"
                   "  10       3           1  0.7500\n"
                   "  30       1           0  0.8750\n"
                   "  90       0           1       -\n");
  assert_null(strchr(text, '\033'));
  free(text);
  sweep_view_fini(&view);
  message_free(info);
}

/* Of 640 samples, ten steps of 64 each: usual_info() with ten times the steps. */
static void rungs_in_epochs_are_shown_as_such_with_the_steps_of_runs(void **state) {
  struct live live = {.lines = 40, .style = {.width = 100}};
  Weir__SweepInfo *info = usual_info();
  struct sweep_view view;
  char *text;
  (void)state;
  info->spec->schedule->unit = strdup("epochs");
  for (size_t i = 0; i < info->n_trials; i++)
    info->trials[i]->batch = 64;
  info->trials[1]->train_samples = 640;
  for (size_t i = 0; i < info->n_progress; i++) {
    info->progress[i]->step *= 10;
    info->progress[i]->train_samples = 640;
  }
  sweep_view_init(&view);
  sweep_view_update(&view, info, 90);
  text = view_text(&view, info, &live);
  assert_has(text, "  4/9 trials  85 epochs  ");
  assert_has(text, "best accuracy 0.8750 at epoch 30  trial 1  lr=0.02 batch=64\n");
  assert_has(text, "    1  [=====>    ] 600/900  0.2500  _  0.02  64\n"
                   "    3  [=====>    ] 50/100   2.5000  _   0.2  64\n");
  assert_has(text, "EPOCH  TRIALS  ON THE WAY    BEST\n"
                   "   10       3           1  0.7500\n");
  free(text);
  sweep_view_fini(&view);
  assert_int_equal(sweep_run_step_at(info, info->trials[1], 2), 300);
  message_free(info);
}

static void a_view_of_many_trials_leaves_room_for_the_rungs(void **state) {
  struct live live = {.lines = 20, .style = {.width = 80, .is_unicode = true, .is_coloured = true}};
  Weir__SweepInfo *info = make_info(space);
  struct sweep_view view;
  char *text;
  int lines = 0;
  (void)state;
  for (uint32_t i = 0; i < 200; i++) {
    add_trial(info, "running", "train.optimizer.lr=0.2 train.batch=64", 0, NULL);
    add_progress(info, i, 1, 1);
  }
  sweep_view_init(&view);
  sweep_view_update(&view, info, 90);
  text = view_text(&view, info, &live);
  for (const char *at = text; (at = strchr(at, '\n')); at++)
    lines++;
  assert_in_range(lines, 15, 20);
  assert_has(text, " more\n");
  assert_has(text, "  90       0           0     -\n");
  free(text);
  sweep_view_fini(&view);
  message_free(info);
}

static void what_is_done_and_what_there_will_be_count_in_steps(void **state) {
  Weir__SweepInfo *info = usual_info();
  (void)state;
  assert_true(sweep_done(info) == 10 + 30 + 30 + 10 + 5);
  assert_true(sweep_total(info) == 9 * 10 + 3 * 20 + 1 * 60);
  info->spec->budget->has_steps = true;
  info->spec->budget->steps = 100;
  assert_true(sweep_total(info) == 100);
  info->spec->budget->has_steps = false;
  set_text(&info->spec->schedule->name, "none");
  assert_true(sweep_total(info) == 9 * 90);
  set_text(&info->spec->schedule->name, "hyperband");
  assert_true(isnan(sweep_total(info)));
  info->spec->schedule->n_rungs = 0;
  assert_true(sweep_total(info) == 9);
  assert_true(sweep_done(info) == 2 + 60.0 / 90 + 5.0 / 90);
  message_free(info);
}

static void a_sparkline_has_the_lowest_at_the_bottom(void **state) {
  char text[SWEEP_TRACE_MAX * 3 + 1];
  (void)state;
  assert_string_equal(sweep_sparkline((const float[]){3, 2, 1, 1.5F}, 4, true, text), "█▄▁▂");
  assert_string_equal(sweep_sparkline((const float[]){3, 2, 1, 1.5F}, 4, false, text), "#~_.");
  assert_string_equal(sweep_sparkline((const float[]){1, 1}, 2, true, text), "▁▁");
  assert_string_equal(sweep_sparkline((const float[]){1, INFINITY, 2}, 3, true, text), "▁▁▁");
  assert_string_equal(sweep_sparkline(NULL, 0, true, text), "");
}

static void a_trace_spans_all_that_was_seen(void **state) {
  Weir__SweepInfo *info = make_info(space);
  struct sweep_view view;
  (void)state;
  add_trial(info, "running", "train.batch=64", 0, NULL);
  add_progress(info, 0, 0, NAN);
  sweep_view_init(&view);
  for (int step = 1; step <= 1000; step++) {
    info->progress[0]->step = (uint64_t)step;
    info->progress[0]->loss = 1000 - step;
    sweep_view_update(&view, info, step);
    assert_in_range(view.traces[0].n, 1, SWEEP_TRACE_MAX);
  }
  assert_true(view.traces[0].n >= SWEEP_TRACE_MAX / 2);
  assert_true(view.traces[0].losses[0] > 800);
  assert_true(view.traces[0].losses[view.traces[0].n - 1] < 200);
  sweep_view_fini(&view);
  message_free(info);
}

static char *cut(const char *text, int lines, int columns) {
  char *out = NULL;
  size_t bytes;
  FILE *file = open_memstream(&out, &bytes);
  live_print_cut(file, text, lines, columns);
  fclose(file);
  return out;
}

static void text_is_cut_by_columns_and_colours_end_with_their_line(void **state) {
  char *text;
  (void)state;
  text = cut("▁▂▃▄\nabcdef\nx", 2, 3);
  assert_string_equal(text, "▁▂▃\nabc");
  free(text);
  text = cut("\033[32mabcdef\033[0m\nnext", 5, 3);
  assert_string_equal(text, "\033[32mabc\033[0m\nnex");
  free(text);
  text = cut("\033[32mabc\033[0m", 5, 3);
  assert_string_equal(text, "\033[32mabc\033[0m");
  free(text);
  text = cut("abc\033[", 5, 3);
  assert_int_equal(output_columns(text), 3);
  free(text);
  text = cut("abc", 0, 3);
  assert_string_equal(text, "");
  free(text);
}

static void the_table_has_the_best_first_and_only_what_varies(void **state) {
  Weir__SweepInfo *info = usual_info();
  char *text;
  (void)state;
  set_text(
      &add_trial(info, "failed", "train.optimizer.lr=0.3 train.optimizer.name=sgd train.batch=64", 0, NULL)
           ->failure,
      "its training diverges");
  text = printed(info, sweep_print);
  assert_has(text, "TRIAL  STATE    ACCURACY@10     @30  @90     lr  batch  FAILURE\n"
                   "    1  running       0.7500  0.8750        0.02  64\n"
                   "    2  waiting       0.6250               0.003  64\n"
                   "    0  stopped       0.5000                 0.1  32\n"
                   "    3  running                              0.2  64\n"
                   "    4  failed                               0.3  64     its training diverges\n");
  free(text);
  message_free(info);
}

static void names_are_whole_where_their_last_parts_are_alike(void **state) {
  Weir__SweepInfo *info =
      make_info("train.optimizer.name choice sgd adam; train.schedule.name choice cosine linear; "
                "momentum uniform 0 1 when train.optimizer.name sgd");
  char *text, values[SWEEP_VALUES_MAX];
  (void)state;
  add_trial(info, "done", "train.optimizer.name=sgd train.schedule.name=linear momentum=0.5",
            RESULTS(0.5, 0.25, 0.75));
  add_trial(info, "done", "train.optimizer.name=adam train.schedule.name=linear",
            RESULTS(0.5, 0.25, 0.00125));
  text = printed(info, sweep_print);
  assert_has(text, "@90  train.optimizer.name  momentum\n");
  assert_has(text, "0.00125  adam                         -\n");
  assert_string_equal(sweep_short_values(info, info->trials[0], values),
                      "train.optimizer.name=sgd train.schedule.name=linear momentum=0.5");
  free(text);
  message_free(info);
}

static void csv_has_all_values_and_quotes_what_has_commas(void **state) {
  Weir__SweepInfo *info = make_info("train.optimizer.betas choice a; train.batch choice 32 64");
  char *text;
  (void)state;
  add_trial(info, "stopped", "train.optimizer.betas=[0.9,0.99] train.batch=32", RESULTS(0.1));
  add_trial(info, "failed", "train.optimizer.betas=say\"so\" train.batch=32", 0, NULL);
  text = printed(info, sweep_print_csv);
  assert_string_equal(text, "trial,run,state,step,accuracy,accuracy@10,accuracy@30,accuracy@90,train."
                            "optimizer.betas,train.batch,failure,parent,parent_step\n"
                            "0,search-abcdef-0000,stopped,10,0.1,0.1,,,\"[0.9,0.99]\",32,,,\n"
                            "1,search-abcdef-0000,failed,,,,,,\"say\"\"so\"\"\",32,,,\n");
  free(text);
  message_free(info);
}

static void forks_say_what_they_come_from_and_count_at_their_own_rungs(void **state) {
  struct live live = {.lines = 40, .style = {.width = 100}};
  Weir__SweepInfo *info = make_info(space);
  Weir__SweepTrial *fork;
  struct sweep_view view;
  char *text;
  (void)state;
  add_trial(info, "stopped", "train.optimizer.lr=0.1 train.batch=32", RESULTS(0.5, 0.75));
  fork = add_trial(info, "waiting", "train.optimizer.lr=0.2 train.batch=32", RESULTS(0.5, 0.875));
  fork->has_parent = true;
  fork->parent = 0;
  fork->parent_rung = 0;
  text = printed(info, sweep_print);
  assert_has(text, "TRIAL  STATE    FROM  ACCURACY@10     @30  @90   lr\n"
                   "    1  waiting     0       0.5000  0.8750       0.2\n"
                   "    0  stopped             0.5000  0.7500       0.1\n");
  free(text);
  text = printed(info, sweep_print_csv);
  assert_has(text, "1,search-abcdef-0000,waiting,30,0.875,0.5,0.875,,0.2,,32,,0,10\n");
  free(text);
  sweep_view_init(&view);
  sweep_view_update(&view, info, 1);
  text = view_text(&view, info, &live);
  assert_has(text, "  10       1           0  0.5000\n"
                   "  30       2           0  0.8750\n");
  free(text);
  sweep_view_fini(&view);
  message_free(info);
}

static int count_important(const Weir__SweepInfo *info, uint64_t steps) {
  struct sweep_importance importance;
  struct err err = ERR_NONE;
  int n;
  assert_int_equal(sweep_importance_init(&importance, info, steps, &err), 0);
  n = importance.n_trials;
  sweep_importance_fini(&importance);
  return n;
}

static void what_a_fork_has_from_its_parent_is_not_important(void **state) {
  Weir__SweepInfo *info = make_info("lr uniform 0 1");
  Weir__SweepTrial *fork;
  (void)state;
  for (int i = 0; i < 8; i++) {
    char values[32];
    snprintf(values, sizeof values, "lr=0.%d", i + 1);
    add_trial(info, "done", values, 2, (double[]){i, i});
  }
  fork = add_trial(info, "done", "lr=0.95", 2, (double[]){0, 9});
  fork->has_parent = true; /* of trial 0, at the first rung */
  assert_int_equal(count_important(info, 10), 8);
  assert_int_equal(count_important(info, 30), 9);
  message_free(info);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_view_has_the_best_the_rungs_and_the_trials_that_run),
      cmocka_unit_test(rungs_in_epochs_are_shown_as_such_with_the_steps_of_runs),
      cmocka_unit_test(a_view_of_many_trials_leaves_room_for_the_rungs),
      cmocka_unit_test(what_is_done_and_what_there_will_be_count_in_steps),
      cmocka_unit_test(a_sparkline_has_the_lowest_at_the_bottom),
      cmocka_unit_test(a_trace_spans_all_that_was_seen),
      cmocka_unit_test(text_is_cut_by_columns_and_colours_end_with_their_line),
      cmocka_unit_test(the_table_has_the_best_first_and_only_what_varies),
      cmocka_unit_test(names_are_whole_where_their_last_parts_are_alike),
      cmocka_unit_test(csv_has_all_values_and_quotes_what_has_commas),
      cmocka_unit_test(what_a_fork_has_from_its_parent_is_not_important),
      cmocka_unit_test(forks_say_what_they_come_from_and_count_at_their_own_rungs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
