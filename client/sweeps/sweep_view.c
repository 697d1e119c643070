/* A sweep on a terminal. */
#include "client/sweeps/sweep_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/sweeps/sweep_table.h"
#include "client/terminal/output.h"
#include "client/terminal/progress_text.h"
#include "common/base/err.h"
#include "common/base/memory.h"
#include "common/sweep/sweep_unit.h"

/* The present speed is told from so many seconds on. */
#define SPEED_SECONDS 2.0
enum { BAR_WIDTH = 24, ROW_BAR_WIDTH = 12, RUNNING_LEAST = 3, WAITS_SHOWN = 6 };

void sweep_view_init(struct sweep_view *view) {
  *view = (struct sweep_view){.first_seconds = -1};
}

void sweep_view_fini(struct sweep_view *view) {
  free(view->traces);
}

static void trace_add(struct sweep_trace *trace, const Weir__SweepProgress *progress) {
  if (isnan(progress->loss) || (trace->n > 0 && progress->step < trace->step + trace->stride))
    return;
  if (trace->n == SWEEP_TRACE_MAX) {
    for (int i = 0; i < SWEEP_TRACE_MAX / 2; i++)
      trace->losses[i] = trace->losses[2 * i + 1];
    trace->n = SWEEP_TRACE_MAX / 2;
    trace->stride *= 2;
  }
  if (trace->n == 1)
    trace->stride = progress->step - trace->step;
  trace->losses[trace->n++] = (float)progress->loss;
  trace->step = progress->step;
  if (trace->stride == 0)
    trace->stride = 1;
}

void sweep_view_update(struct sweep_view *view, const Weir__SweepInfo *info, double now_seconds) {
  view->traces = mem_resize(view->traces, (info->n_trials + 1) * sizeof *view->traces);
  for (; view->n_traces < (int)info->n_trials; view->n_traces++)
    view->traces[view->n_traces] = (struct sweep_trace){0};
  for (size_t i = 0; i < info->n_progress; i++)
    if (info->progress[i]->trial < (uint32_t)view->n_traces)
      trace_add(&view->traces[info->progress[i]->trial], info->progress[i]);
  view->waits = view->waits >= WAITS_SHOWN ? view->waits + 1 : 0;
  if (view->first_seconds < 0) {
    view->first_seconds = now_seconds;
    view->first_done = sweep_done(info);
  }
}

/* Where its run stands, in the unit of rungs. */
static double place_of(const Weir__SweepInfo *info, const Weir__SweepTrial *trial,
                       const Weir__SweepProgress *progress) {
  const enum sweep_unit unit = sweep_unit_of(info->spec->schedule);
  double samples = (double)progress->step * trial->batch;
  if (unit == SWEEP_STEPS)
    return (double)progress->step;
  return unit == SWEEP_SAMPLES ? samples : samples / fmax((double)progress->train_samples, 1);
}

/* What the trial has begun and not made, in the unit of rungs. */
static double steps_ahead(const Weir__SweepInfo *info, const Weir__SweepTrial *trial) {
  double from = (double)sweep_steps_at(info, trial->n_results);
  double to = (double)sweep_steps_at(info, trial->n_results + 1), at = from;
  for (size_t i = 0; i < info->n_progress; i++)
    if (info->progress[i]->trial == trial->number)
      at = place_of(info, trial, info->progress[i]);
  return to - fmin(fmax(at, from), to);
}

double sweep_done(const Weir__SweepInfo *info) {
  bool has_rungs = info->spec->schedule->n_rungs > 0;
  double done = has_rungs ? (double)info->begun_steps : 0;
  for (size_t i = 0; i < info->n_trials; i++) {
    bool is_running = strcmp(info->trials[i]->state, "running") == 0;
    if (has_rungs && is_running)
      done -= steps_ahead(info, info->trials[i]);
    else if (!has_rungs && !is_running)
      done++;
  }
  for (size_t i = 0; i < info->n_progress && !has_rungs; i++)
    if (info->progress[i]->steps > 0)
      done += (double)info->progress[i]->step / (double)info->progress[i]->steps;
  return done;
}

double sweep_total(const Weir__SweepInfo *info) {
  const Weir__SweepSchedule *schedule = info->spec->schedule;
  const Weir__SweepBudget *budget = info->spec->budget;
  bool halves = strcmp(schedule->name, "asha") == 0 || strcmp(schedule->name, "halving") == 0;
  double total = 0, at_rung = budget->has_trials ? budget->trials : NAN;
  if (schedule->n_rungs == 0)
    return at_rung;
  if (strcmp(schedule->name, "hyperband") == 0)
    at_rung = NAN;
  for (size_t i = 0; i < schedule->n_rungs; i++) {
    total += at_rung * (double)(schedule->rungs[i] - (i > 0 ? schedule->rungs[i - 1] : 0));
    at_rung = halves ? floor(at_rung / schedule->eta) : at_rung;
  }
  return budget->has_steps ? fmin(total, (double)budget->steps) : total; /* fmin of NaN: the other */
}

/* NaN: that cannot be told. */
static double seconds_left(const struct sweep_view *view, const Weir__SweepInfo *info, double now_seconds) {
  const Weir__SweepBudget *budget = info->spec->budget;
  double done = sweep_done(info), passed = now_seconds - view->first_seconds, left = NAN;
  if (passed >= SPEED_SECONDS && done > view->first_done)
    left = fmax(sweep_total(info) - done, 0) * passed / (done - view->first_done);
  if (isnan(sweep_total(info)))
    left = NAN;
  return budget->has_seconds ? fmin(left, fmax(budget->seconds - info->seconds, 0)) : left;
}

static double share_done(const Weir__SweepInfo *info) {
  const Weir__SweepBudget *budget = info->spec->budget;
  double share = sweep_done(info) / sweep_total(info); /* fmax of NaN: the other */
  return budget->has_seconds ? fmax(share, info->seconds / budget->seconds) : share;
}

/* A number, and the one that it may become. */
static void print_of(FILE *file, double value, double most, bool has_most, const char *unit) {
  char text[OUTPUT_TEXT_MAX];
  fprintf(file, "  %s", output_count(value, text));
  if (has_most)
    fprintf(file, "/%s", output_count(most, text));
  fprintf(file, " %s", unit);
}

static void print_budget(FILE *file, const struct sweep_view *view, const Weir__SweepInfo *info,
                         double now_seconds, const struct live_style *style) {
  const Weir__SweepBudget *budget = info->spec->budget;
  double share = share_done(info), left = seconds_left(view, info, now_seconds);
  char bar[PROGRESS_BAR_MAX], text[OUTPUT_TEXT_MAX];
  if (!isnan(share)) {
    progress_bar(share, BAR_WIDTH, style, bar);
    fprintf(file, "%s%s%s", style->is_coloured ? "\033[32m" : "", bar, style->is_coloured ? "\033[0m" : "");
  }
  print_of(file, info->begun, budget->trials, budget->has_trials, "trials");
  if (info->spec->schedule->n_rungs > 0)
    print_of(file, sweep_done(info), (double)budget->steps, budget->has_steps, info->spec->schedule->unit);
  fprintf(file, "  %s", output_duration(info->seconds, text));
  if (budget->has_seconds)
    fprintf(file, "/%s", output_duration(budget->seconds, text));
  if (!isnan(left))
    fprintf(file, ", %s left", output_duration(left, text));
  fputc('\n', file);
}

/* "3, 7, 12": which trials are on it, cut where they are too many. */
static const char *front_text(const Weir__SweepInfo *info, char text[SWEEP_VALUES_MAX]) {
  size_t at = 0;
  text[0] = '\0';
  for (size_t i = 0; i < info->n_front && at < SWEEP_VALUES_MAX; i++)
    at += (size_t)snprintf(text + at, SWEEP_VALUES_MAX - at, "%s%u", i ? ", " : "", info->front[i]);
  return text;
}

static void print_best(FILE *file, const Weir__SweepInfo *info, const struct live_style *style) {
  const Weir__SweepTrial *best = info->has_best ? sweep_find_trial(info, info->best) : NULL;
  char values[SWEEP_VALUES_MAX], value[OUTPUT_TEXT_MAX];
  if (!best) {
    fprintf(file, "no trial has a result yet\n");
    return;
  }
  fprintf(file, "best %s%s %s%s", style->is_coloured ? "\033[1m" : "", info->spec->objective->metric,
          sweep_number(info->best_value, value), style->is_coloured ? "\033[0m" : "");
  if (info->spec->schedule->n_rungs > 0)
    fprintf(file, " at %s %" PRIu64, sweep_unit(info), sweep_steps_at(info, best->n_results));
  fprintf(file, "  trial %u  %s\n", best->number, sweep_short_values(info, best, values));
  if (info->n_front)
    fprintf(file, "front of %zu trials: %s\n", info->n_front, front_text(info, values));
}

static uint32_t count_state(const Weir__SweepInfo *info, const char *state) {
  uint32_t n = 0;
  for (size_t i = 0; i < info->n_trials; i++)
    n += strcmp(info->trials[i]->state, state) == 0;
  return n;
}

static void print_counts(FILE *file, const Weir__SweepInfo *info) {
  static const char *const states[] = {"running", "waiting", "stopped", "done", "failed"};
  char text[OUTPUT_TEXT_MAX];
  uint32_t workers = 0;
  double rate = 0;
  for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
    uint32_t n = count_state(info, states[i]);
    if (n > 0 || i == 0)
      fprintf(file, "%s%u %s", i ? ", " : "", n, states[i]);
  }
  for (size_t i = 0; i < info->n_progress; i++) {
    const Weir__SweepProgress *progress = info->progress[i];
    if (progress->state != WEIR__RUN_STATE__RUNNING)
      continue;
    workers += progress->workers;
    rate += isfinite(progress->samples_per_second) ? progress->samples_per_second : 0;
  }
  fprintf(file, "  %u worker%s", workers, workers == 1 ? "" : "s");
  if (rate > 0)
    fprintf(file, "  %s samples/s", output_count(rate, text));
  fprintf(file, "\n");
}

/* How many trials came to each rung, and the best value there. */
static void print_rungs(FILE *file, const Weir__SweepInfo *info) {
  const Weir__SweepSchedule *schedule = info->spec->schedule;
  static const char *const units[] = {
      [SWEEP_STEPS] = ">STEP", [SWEEP_SAMPLES] = ">SAMPLE", [SWEEP_EPOCHS] = ">EPOCH"};
  const char *const headings[] = {units[sweep_unit_of(schedule)], ">TRIALS", ">ON THE WAY", ">BEST", NULL};
  bool is_max = sweep_is_max(info);
  struct table table;
  if (schedule->n_rungs == 0)
    return;
  table_init(&table, headings);
  for (size_t r = 0; r < schedule->n_rungs; r++) {
    char step[24], reached[16], coming[16], best[OUTPUT_TEXT_MAX];
    uint32_t n = 0, on_the_way = 0;
    double value = NAN;
    for (size_t i = 0; i < info->n_trials; i++) {
      const Weir__SweepTrial *trial = info->trials[i];
      on_the_way += trial->n_results == r && strcmp(trial->state, "running") == 0;
      if (!sweep_came_to(trial, r))
        continue;
      value = is_max ? fmax(value, trial->results[r]) : fmin(value, trial->results[r]);
      n++;
    }
    snprintf(step, sizeof step, "%" PRIu64, schedule->rungs[r]);
    snprintf(reached, sizeof reached, "%u", n);
    snprintf(coming, sizeof coming, "%u", on_the_way);
    table_row(&table, (const char *const[]){step, reached, coming, sweep_number(value, best)});
  }
  fputc('\n', file);
  table_print(&table, file);
  table_fini(&table);
}

const char *sweep_sparkline(const float *values, int n, bool is_unicode, char text[SWEEP_TRACE_MAX * 3 + 1]) {
  static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const char *const signs[] = {"_", ".", "-", "~", "=", "+", "*", "#"};
  float least = INFINITY, most = -INFINITY;
  char *end = text;
  *text = '\0';
  for (int i = 0; i < n; i++) {
    least = fminf(least, values[i]);
    most = fmaxf(most, values[i]);
  }
  for (int i = 0; i < n; i++) {
    int level = most > least && isfinite(most) ? (int)((values[i] - least) / (most - least) * 7.99F) : 0;
    end = stpcpy(end, (is_unicode ? blocks : signs)[level < 0 || level > 7 ? 7 : level]);
  }
  return text;
}

/* The step of the trial's run at an n_results-th result; 0: not known. */
static uint64_t step_at(const Weir__SweepInfo *info, const Weir__SweepTrial *trial,
                        const Weir__SweepProgress *progress, size_t n_results) {
  return sweep_unit_step(sweep_unit_of(info->spec->schedule), sweep_steps_at(info, n_results), trial->batch,
                         progress->train_samples);
}

/* The trial's way to its next rung, or to its end. */
static void progress_text(const Weir__SweepInfo *info, const Weir__SweepTrial *trial,
                          const Weir__SweepProgress *progress, const struct live_style *style,
                          char text[PROGRESS_BAR_MAX + 64]) {
  uint64_t from = step_at(info, trial, progress, trial->n_results);
  uint64_t to = step_at(info, trial, progress, trial->n_results + 1);
  char bar[PROGRESS_BAR_MAX];
  if (to == 0)
    to = progress->steps;
  progress_bar(to > from && progress->step > from ? (double)(progress->step - from) / (double)(to - from) : 0,
               ROW_BAR_WIDTH, style, bar);
  snprintf(text, PROGRESS_BAR_MAX + 64, "%s %" PRIu64 "/%" PRIu64, bar, progress->step, to);
}

/* What its run does, where it does not compute: in few words. */
static const char *note_text(const Weir__SweepProgress *progress, char text[OUTPUT_TEXT_MAX]) {
  if (progress->is_ready)
    return "to be decided";
  output_state(progress->state, text);
  if (*progress->message)
    snprintf(text, OUTPUT_TEXT_MAX, "%.*s", (int)strcspn(progress->message, ":;"), progress->message);
  output_clean(text);
  return text;
}

/* The table of the trials that run. */
struct running {
  const struct sweep_view *view;
  const Weir__SweepInfo *info;
  const struct live_style *style;
  const Weir__Dimension *varying[TABLE_COLUMNS_MAX];
  int n_varying;
  struct table table;
  struct arena arena;
};

static void running_row(struct running *running, const Weir__SweepProgress *progress) {
  const struct sweep_view *view = running->view;
  const Weir__SweepTrial *trial = sweep_find_trial(running->info, progress->trial);
  const char *cells[TABLE_COLUMNS_MAX];
  char way[PROGRESS_BAR_MAX + 64], loss[OUTPUT_TEXT_MAX], note[OUTPUT_TEXT_MAX];
  char spark[SWEEP_TRACE_MAX * 3 + 1] = "";
  int n = 0;
  if (!trial)
    return;
  progress_text(running->info, trial, progress, running->style, way);
  if (progress->trial < (uint32_t)view->n_traces)
    sweep_sparkline(view->traces[progress->trial].losses, view->traces[progress->trial].n,
                    running->style->is_unicode, spark);
  cells[n++] = arena_printf(&running->arena, "%u", progress->trial);
  cells[n++] = way;
  cells[n++] = output_loss(progress->loss, loss);
  cells[n++] =
      progress->state == WEIR__RUN_STATE__RUNNING && !progress->is_ready ? spark : note_text(progress, note);
  for (int d = 0; d < running->n_varying; d++)
    cells[n++] = sweep_cell(trial, running->varying[d], &running->arena);
  table_row(&running->table, cells);
}

/* At most so many rows. */
static void print_running(FILE *file, struct running *running, size_t most) {
  const Weir__SweepInfo *info = running->info;
  const char *headings[TABLE_COLUMNS_MAX + 1] = {">TRIAL", "PROGRESS", ">LOSS", ""};
  int n = 4;
  if (info->n_progress == 0)
    return;
  arena_init(&running->arena);
  running->n_varying = sweep_varying(info, running->varying, TABLE_COLUMNS_MAX - n);
  for (int d = 0; d < running->n_varying; d++)
    headings[n++] = sweep_heading(info, running->varying[d], &running->arena);
  headings[n] = NULL;
  table_init(&running->table, headings);
  for (size_t i = 0; i < info->n_progress && i < most; i++)
    running_row(running, info->progress[i]);
  fputc('\n', file);
  table_print(&running->table, file);
  table_fini(&running->table);
  arena_fini(&running->arena);
  if (info->n_progress > most)
    fprintf(file, "and %zu more\n", info->n_progress - most);
}

void sweep_view_print(FILE *file, const struct sweep_view *view, const Weir__SweepInfo *info,
                      double now_seconds, const struct live *live) {
  size_t n_rungs = info->spec->schedule->n_rungs;
  struct running running = {.view = view, .info = info, .style = &live->style};
  int room = live->lines - 4 - (n_rungs > 0 ? (int)n_rungs + 2 : 0) - 3 - (view->trouble != NULL);
  fprintf(file, "%s  %s, %s%s\n", info->sweep, info->spec->search->name, info->spec->schedule->name,
          view->waits >= WAITS_SHOWN ? "  waits for the store" : "");
  print_budget(file, view, info, now_seconds, &live->style);
  print_best(file, info, &live->style);
  print_counts(file, info);
  print_running(file, &running, (size_t)(room > RUNNING_LEAST ? room : RUNNING_LEAST));
  print_rungs(file, info);
  if (view->trouble)
    fprintf(file, "%s\n", view->trouble);
}
