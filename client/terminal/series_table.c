/* The curves of a run as tables. */
#include "client/terminal/series_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/terminal/output.h"
#include "common/base/memory.h"

enum { CURVES_SHOWN = 32 };

/* Curves over one axis. */
struct axis {
  const Weir__Curve *curves[CURVES_SHOWN];
  int n;
  bool has_range; /* the first one's points are of several values */
};

static bool is_of_steps(const char *metric) {
  static const char *const names[] = {"loss", "lr", "samples_per_second", "workers"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(metric, names[i]) == 0)
      return true;
  return false;
}

static struct axis axis_of(const Weir__Series *series, bool of_steps) {
  struct axis axis = {.n = 0};
  for (size_t i = 0; i < series->n_curves && axis.n < CURVES_SHOWN; i++)
    if (is_of_steps(series->curves[i]->metric) == of_steps)
      axis.curves[axis.n++] = series->curves[i];
  axis.has_range = axis.n > 0 && axis.curves[0]->n_min == axis.curves[0]->n_mean;
  return axis;
}

/* The next position of any of the curves behind those that were shown. False: that was all. */
static bool axis_next(const struct axis *axis, const size_t *shown, uint64_t *step) {
  bool is_any = false;
  for (int c = 0; c < axis->n; c++) {
    const Weir__Curve *curve = axis->curves[c];
    if (shown[c] >= curve->n_steps || shown[c] >= curve->n_mean)
      continue;
    if (!is_any || curve->steps[shown[c]] < *step)
      *step = curve->steps[shown[c]];
    is_any = true;
  }
  return is_any;
}

static char *number_text(double value) {
  return isnan(value) ? mem_strdup("-") : mem_printf("%.6g", value);
}

/* Values at that position; those of the curves that have none are empty. */
static void axis_row(struct table *table, const struct axis *axis, size_t *shown, uint64_t step) {
  char *cells[CURVES_SHOWN + 3];
  int n = 0;
  cells[n++] = mem_printf("%" PRIu64, step);
  for (int c = 0; c < axis->n; c++) {
    const Weir__Curve *curve = axis->curves[c];
    size_t at = shown[c];
    bool is_there = at < curve->n_steps && at < curve->n_mean && curve->steps[at] == step;
    cells[n++] = is_there ? number_text(curve->mean[at]) : mem_strdup("-");
    if (c == 0 && axis->has_range) {
      cells[n++] = is_there ? number_text(curve->min[at]) : mem_strdup("-");
      cells[n++] = is_there && at < curve->n_max ? number_text(curve->max[at]) : mem_strdup("-");
    }
    shown[c] += is_there;
  }
  table_row(table, (const char *const *)cells);
  while (n > 0)
    free(cells[--n]);
}

static char *heading_of(const char *metric) {
  char *heading = mem_printf(">%s", metric);
  for (char *at = heading; *at; at++)
    *at = *at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at;
  output_clean(heading);
  return heading;
}

static void axis_print(FILE *file, const struct axis *axis, const char *position) {
  const char *headings[CURVES_SHOWN + 4] = {position};
  size_t shown[CURVES_SHOWN] = {0};
  char *names[CURVES_SHOWN];
  struct table table;
  uint64_t step = 0;
  int n = 1;
  if (axis->n == 0)
    return;
  for (int c = 0; c < axis->n; c++) {
    headings[n++] = names[c] = heading_of(axis->curves[c]->metric);
    if (c == 0 && axis->has_range) {
      headings[n++] = ">LEAST";
      headings[n++] = ">MOST";
    }
  }
  table_init(&table, headings);
  while (axis_next(axis, shown, &step))
    axis_row(&table, axis, shown, step);
  table_print(&table, file);
  table_fini(&table);
  for (int c = 0; c < axis->n; c++)
    free(names[c]);
}

static void events_print(FILE *file, const Weir__Series *series) {
  static const char *const headings[] = {">AT", "EVENT", "MESSAGE", NULL};
  struct table table;
  if (series->n_events == 0)
    return;
  table_init(&table, headings);
  for (size_t i = 0; i < series->n_events; i++) {
    const Weir__SeriesEvent *event = series->events[i];
    char *step = mem_printf("%" PRIu64, event->step), *message = mem_strdup(event->message);
    output_clean(message);
    table_row(&table, (const char *const[]){step, event->kind, message});
    free(step);
    free(message);
  }
  table_print(&table, file);
  table_fini(&table);
}

void series_print(FILE *file, const Weir__Series *series) {
  struct axis steps = axis_of(series, true), versions = axis_of(series, false);
  axis_print(file, &steps, ">STEP");
  if (steps.n && versions.n)
    fputc('\n', file);
  axis_print(file, &versions, ">VERSION");
  if ((steps.n || versions.n) && series->n_events)
    fputc('\n', file);
  events_print(file, series);
}
