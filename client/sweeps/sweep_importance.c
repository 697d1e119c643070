/* Which keys of a sweep's space matter. */
#include "client/sweeps/sweep_importance.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "client/sweeps/sweep_table.h"
#include "client/sweeps/sweep_view.h"
#include "client/terminal/progress_text.h"
#include "common/base/memory.h"

enum { TRIALS_LEAST = 8, BAR_WIDTH = 14 };

/* Whether the result there was computed under the trial's own values: what a fork has from its parent says
   nothing of them. */
static bool has_own(const Weir__SweepTrial *trial, size_t rung) {
  return sweep_came_to(trial, rung) && (!trial->has_parent || rung > trial->parent_rung);
}

static size_t count_at(const Weir__SweepInfo *info, size_t rung) {
  size_t n = 0;
  for (size_t i = 0; i < info->n_trials; i++)
    n += has_own(info->trials[i], rung);
  return n;
}

static int find_rung(const Weir__SweepInfo *info, uint64_t steps, size_t *rung, struct err *err) {
  const Weir__SweepSchedule *schedule = info->spec->schedule;
  *rung = 0;
  for (size_t r = 1; r < schedule->n_rungs; r++)
    if (steps == 0 && 2 * count_at(info, r) >= count_at(info, 0))
      *rung = r;
  for (size_t r = 0; steps && r < schedule->n_rungs; r++)
    if (schedule->rungs[r] == steps)
      *rung = r;
  return steps && sweep_steps_at(info, *rung + 1) != steps
             ? err_set(err, ERR_INVALID, "--step %" PRIu64 ": it is none of the sweep's rungs", steps)
             : 0;
}

/* Where a trial lies: f64[n]. */
static int place(const struct space *space, const Weir__SweepTrial *trial, double *x, struct err *err) {
  for (int d = 0; d < space->n; d++)
    x[d] = -1;
  for (size_t i = 0; i < trial->n_values; i++) {
    int d = space_find(space, trial->values[i]->path);
    const struct dimension *dimension = &space->dimensions[d < 0 ? 0 : d];
    if (d < 0 || space_position(dimension, trial->values[i]->value, &x[d], err))
      return err->code ? (int)err->code : err_set(err, ERR_CORRUPT, "trial %u has other keys", trial->number);
    if (dimension->kind == DIMENSION_CHOICE)
      x[d] = (x[d] + 0.5) / dimension->n_values;
  }
  return 0;
}

/* The newest trials that have come to the rung. x: f64[n, d], y: f64[n]. Returns n. */
static int collect(const struct sweep_importance *own, size_t rung, double *x, double *y, struct err *err) {
  const Weir__SweepInfo *info = own->info;
  int n = 0;
  for (size_t i = info->n_trials; i-- > 0 && n < IMPORTANCE_SAMPLES_MAX && !err->code;) {
    const Weir__SweepTrial *trial = info->trials[i];
    if (!has_own(trial, rung) || place(own->space, trial, x + n * own->space->n, err))
      continue;
    y[n++] = trial->results[rung];
  }
  return n;
}

static void find(struct sweep_importance *own, const double *x, const double *y) {
  int d = own->space->n;
  double *absent = mem_new((size_t)d * sizeof *absent + 1);
  struct importance_data data = {.n = own->n_trials, .d = d, .x = x, .y = y, .absent = absent};
  for (int i = 0; i < own->n_trials * d; i++)
    absent[i % d] += (x[i] < 0) / (double)own->n_trials;
  importance_find(&data, own->dimensions);
  free(absent);
}

int sweep_importance_init(struct sweep_importance *own, const Weir__SweepInfo *info, uint64_t steps,
                          struct err *err) {
  size_t rung, most = info->n_trials < IMPORTANCE_SAMPLES_MAX ? info->n_trials : IMPORTANCE_SAMPLES_MAX;
  double *x, *y;
  *own = (struct sweep_importance){.info = info};
  if (space_make(info->spec, &own->space, err) || find_rung(info, steps, &rung, err))
    return err->code;
  own->steps = sweep_steps_at(info, rung + 1);
  own->dimensions = mem_new((size_t)own->space->n * sizeof *own->dimensions + 1);
  x = mem_new(most * (size_t)own->space->n * sizeof *x + 1);
  y = mem_new(most * sizeof *y + 1);
  own->n_trials = collect(own, rung, x, y, err);
  if (!err->code && own->n_trials < TRIALS_LEAST)
    err_set(err, ERR_INVALID, "%d trials of sweep '%s' have a result there: it takes %d to tell what matters",
            own->n_trials, info->sweep, TRIALS_LEAST);
  if (!err->code)
    find(own, x, y);
  free(x);
  free(y);
  return err->code;
}

void sweep_importance_fini(struct sweep_importance *own) {
  space_free(own->space);
  free(own->dimensions);
}

/* The marginal by value: of a choice one for each, of a number one for each part of its range. Returns how
   many. */
static int marginal_of(const struct sweep_importance *own, int d, float out[IMPORTANCE_BUCKETS]) {
  const struct dimension *dimension = &own->space->dimensions[d];
  int n = dimension->kind == DIMENSION_CHOICE && dimension->n_values < IMPORTANCE_BUCKETS
              ? (int)dimension->n_values
              : IMPORTANCE_BUCKETS;
  for (int i = 0; i < n; i++)
    out[i] = (float)own->dimensions[d].marginal[(int)((i + 0.5) / n * IMPORTANCE_BUCKETS)];
  return n;
}

/* The value where the marginal is best; returns `text` or the choice's own. */
static const char *best_of(const struct sweep_importance *own, int d, char text[SPACE_NUMBER_SIZE]) {
  const struct dimension *dimension = &own->space->dimensions[d];
  float marginal[IMPORTANCE_BUCKETS];
  int n = marginal_of(own, d, marginal), best = 0;
  for (int i = 1; i < n; i++)
    if (sweep_is_max(own->info) ? marginal[i] > marginal[best] : marginal[i] < marginal[best])
      best = i;
  if (dimension->kind == DIMENSION_CHOICE)
    return space_text(dimension, (int)((best + 0.5) / n * dimension->n_values), text);
  space_text(dimension, (best + 0.5) / n, text);
  if (dimension->step == 0) /* two digits are what a sixteenth of the range tells */
    snprintf(text, SPACE_NUMBER_SIZE, "%.2g", strtod(text, NULL));
  return text;
}

/* The indexes of all dimensions, the most important first; freed by the caller. */
static int *order_of(const struct sweep_importance *own) {
  int *order = mem_new((size_t)own->space->n * sizeof *order + 1);
  for (int i = 0; i < own->space->n; i++) {
    int at = i;
    for (; at > 0 && own->dimensions[order[at - 1]].share < own->dimensions[i].share; at--)
      order[at] = order[at - 1];
    order[at] = i;
  }
  return order;
}

static double together(const struct sweep_importance *own) {
  double left = 1;
  for (int d = 0; d < own->space->n; d++)
    left -= own->dimensions[d].share;
  return left > 0 && left < 1 ? left : 0;
}

void sweep_importance_print(FILE *file, const struct sweep_importance *own, bool is_unicode) {
  static const char *const headings[] = {"KEY", ">IMPORTANCE", "", "FROM LOW TO HIGH", "BEST NEAR", NULL};
  const struct live_style style = {.width = 80, .is_unicode = is_unicode};
  char share[OUTPUT_TEXT_MAX];
  int *order = order_of(own);
  struct table table;
  fprintf(file, "%s", own->info->spec->objective->metric);
  if (own->steps)
    fprintf(file, " at %s %" PRIu64, sweep_unit(own->info), own->steps);
  fprintf(file, " of %d trials\n", own->n_trials);
  table_init(&table, headings);
  for (int i = 0; i < own->space->n; i++) {
    int d = order[i];
    char bar[PROGRESS_BAR_MAX], spark[SWEEP_TRACE_MAX * 3 + 1], best[SPACE_NUMBER_SIZE];
    float marginal[IMPORTANCE_BUCKETS];
    int n = marginal_of(own, d, marginal);
    progress_bar(own->dimensions[d].share, BAR_WIDTH, &style, bar);
    table_row(&table, (const char *const[]){
                          own->space->dimensions[d].path, output_percent(own->dimensions[d].share, share),
                          bar, sweep_sparkline(marginal, n, is_unicode, spark), best_of(own, d, best)});
  }
  table_row(&table,
            (const char *const[]){"several together", output_percent(together(own), share), "", "", ""});
  table_print(&table, file);
  table_fini(&table);
  free(order);
}

void sweep_importance_print_json(FILE *file, const struct sweep_importance *own) {
  json_t *dimensions = json_array(), *json;
  int *order = order_of(own);
  for (int i = 0; i < own->space->n; i++) {
    const struct importance *dimension = &own->dimensions[order[i]];
    char best[SPACE_NUMBER_SIZE];
    json_t *marginal = json_array();
    for (int b = 0; b < IMPORTANCE_BUCKETS; b++)
      json_array_append_new(marginal, json_real(dimension->marginal[b]));
    json_array_append_new(dimensions,
                          json_pack("{s:s, s:f, s:s, s:o}", "path", own->space->dimensions[order[i]].path,
                                    "importance", dimension->share, "best_near", best_of(own, order[i], best),
                                    "marginal", marginal));
  }
  json = json_pack("{s:s, s:s, s:I, s:i, s:o, s:f}", "sweep", own->info->sweep, "metric",
                   own->info->spec->objective->metric, "step", (json_int_t)own->steps, "trials",
                   own->n_trials, "dimensions", dimensions, "together", together(own));
  json_dumpf(json, file, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
  fputc('\n', file);
  json_decref(json);
  free(order);
}
