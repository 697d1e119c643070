/* Curves as fine as they are asked for, and events beside them. */
#include "server/coordinator/overview/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/curves/run_curves.h"
#include "server/coordinator/state/event_log.h"
#include "server/coordinator/state/run.h"

/* Where the history has more events of the steps that are asked for, the run's curves will do if they have
   this part of the points that are wanted. */
enum { EVENTS_READ = EVENT_LOG_EXACT, ENOUGH_PART = 4 };

/* What is asked for. */
struct wanted {
  uint64_t since;
  int points;
  struct arena *arena;
};

static void fit_points(const struct curves *from, int first, const struct wanted *wanted,
                       struct curves *fitted) {
  struct curve_point point;
  curves_init_points(fitted, from->n_metrics, wanted->points);
  for (int i = first; i < from->n_points; i++) {
    curves_point(from, i, &point);
    curves_add(fitted, &point);
  }
}

/* False: the history has more than max events of these steps. */
static bool fit_events(const struct run *run, const struct wanted *wanted, int max, struct curves *fitted) {
  struct step_span *spans = mem_new(((size_t)max + 1) * sizeof *spans);
  int n = event_log_spans(&run->events, wanted->since, spans, max);
  curves_init_points(fitted, STEP_METRICS, wanted->points);
  for (int i = 0; i < n; i++) {
    struct curve_point point;
    step_point(spans[i].event, &point);
    point.last = spans[i].last;
    point.count = spans[i].last - spans[i].first + 1;
    curves_add(fitted, &point);
  }
  free(spans);
  return n >= 0;
}

static void fit_steps(const struct run *run, const struct wanted *wanted, struct curves *fitted) {
  const struct curves *steps = &run->events.curves.steps;
  int first = curves_find(steps, wanted->since), max = run->events.steps.count;
  bool are_enough = (steps->n_points - first) * ENOUGH_PART >= wanted->points;
  if (!fit_events(run, wanted, are_enough && max > EVENTS_READ ? EVENTS_READ : max, fitted))
    fit_points(steps, first, wanted, fitted);
}

static bool is_wanted(const Weir__SeriesRequest *request, const char *metric) {
  for (size_t i = 0; i < request->n_metrics; i++)
    if (strcmp(request->metrics[i], metric) == 0)
      return true;
  return request->n_metrics == 0;
}

/* One metric of the curves; NULL: it has no values. */
static Weir__Curve *curve_of(const struct curves *curves, int metric, struct arena *arena) {
  size_t n = (size_t)curves->n_points, values = 0;
  Weir__Curve *curve = arena_new(arena, sizeof *curve);
  bool is_exact = true;
  weir__curve__init(curve);
  curve->steps = arena_new(arena, n * sizeof *curve->steps);
  curve->mean = arena_new(arena, n * sizeof *curve->mean);
  curve->min = arena_new(arena, n * sizeof *curve->min);
  curve->max = arena_new(arena, n * sizeof *curve->max);
  for (int i = 0; i < curves->n_points; i++) {
    struct curve_point point;
    curves_point(curves, i, &point);
    if (isnan(point.values[metric].mean))
      continue;
    is_exact &= point.count == 1;
    curve->steps[values] = point.last;
    curve->mean[values] = point.values[metric].mean;
    curve->min[values] = point.values[metric].min;
    curve->max[values++] = point.values[metric].max;
  }
  curve->n_steps = curve->n_mean = values;
  curve->n_min = curve->n_max = is_exact ? 0 : values;
  return values ? curve : NULL;
}

static void add_curves(const struct curves *curves, const char *const *names,
                       const Weir__SeriesRequest *request, struct arena *arena, Weir__Series *series) {
  for (int m = 0; m < curves->n_metrics; m++) {
    Weir__Curve *curve = is_wanted(request, names[m]) ? curve_of(curves, m, arena) : NULL;
    if (!curve)
      continue;
    curve->metric = (char *)names[m];
    series->curves[series->n_curves++] = curve;
  }
}

static void fill_curves(const struct run *run, const Weir__SeriesRequest *request,
                        const struct wanted *wanted, Weir__Series *series) {
  const struct run_curves *curves = &run->events.curves;
  struct curves steps = {0}, evals = {0};
  series->curves = arena_new(wanted->arena, 2 * CURVES_METRICS_MAX * sizeof *series->curves);
  if (curves->steps.n_metrics)
    fit_steps(run, wanted, &steps);
  if (curves->evals.n_metrics)
    fit_points(&curves->evals, curves_find(&curves->evals, wanted->since), wanted, &evals);
  add_curves(&steps, step_metric_names, request, wanted->arena, series);
  add_curves(&evals, (const char *const *)curves->names, request, wanted->arena, series);
  curves_fini(&steps);
  curves_fini(&evals);
}

static Weir__SeriesEvent *add_event(Weir__Series *series, struct arena *arena, uint64_t step,
                                    const char *kind) {
  Weir__SeriesEvent *event = series->events[series->n_events++] = arena_new(arena, sizeof *event);
  weir__series_event__init(event);
  event->step = step;
  event->kind = (char *)kind;
  return event;
}

/* What makes a state of the run another than the one before, which may be NULL. */
static void add_info(const Weir__RunInfo *before, const Weir__RunInfo *info, struct arena *arena,
                     Weir__Series *series) {
  bool is_other_state = !before || before->state != info->state;
  bool is_told = !before || strcmp(before->message, info->message) != 0;
  const char *message = *info->message ? info->message : "";
  size_t first = series->n_events;
  if (before && info->incarnation > before->incarnation)
    add_event(series, arena, info->step, "rollback")->message = (char *)message;
  else if (info->state == WEIR__RUN_STATE__RUNNING && *message && is_told)
    add_event(series, arena, info->step, "fault")->message = (char *)message;
  if (is_other_state)
    add_event(series, arena, info->step, "state")->message =
        *message ? arena_printf(arena, "%s: %s", coordinator_state_name(info->state), message)
                 : (char *)coordinator_state_name(info->state);
  if (info->view && info->workers > 0 && (!before || before->view != info->view))
    add_event(series, arena, info->step, "view")->message = arena_printf(
        arena, "%u worker%s, %u executors, %u server%s", info->workers, info->workers == 1 ? "" : "s",
        info->executors, info->servers, info->servers == 1 ? "" : "s");
  for (size_t i = first; i < series->n_events; i++)
    series->events[i]->seconds = info->train_seconds;
}

static int compare_events(const void *a, const void *b) {
  const Weir__SeriesEvent *x = *(Weir__SeriesEvent *const *)a, *y = *(Weir__SeriesEvent *const *)b;
  return (x->step > y->step) - (x->step < y->step);
}

/* Kept checkpoints, and what the states that were told say. */
static void fill_events(const struct run *run, uint64_t since, struct arena *arena, Weir__Series *series) {
  enum { EVENTS_AN_INFO = 3 };
  const struct event_list *others = &run->events.others;
  const Weir__RunInfo *before = NULL;
  size_t kept = 0;
  series->events =
      arena_new(arena, ((size_t)run->events.infos * EVENTS_AN_INFO + (size_t)run->n_checkpoints) *
                           sizeof *series->events);
  for (int i = 0; i < others->count; i++) {
    if (others->items[i].kind != WEIR__RUN_EVENT__EVENT_INFO)
      continue;
    add_info(before, others->items[i].info, arena, series);
    before = others->items[i].info;
  }
  for (int i = 0; i < run->n_checkpoints; i++)
    add_event(series, arena, run->checkpoints[i]->step, "checkpoint")->message =
        run->checkpoints[i]->unreadable ? "a server could not load it" : "";
  for (size_t i = 0; i < series->n_events; i++)
    if (series->events[i]->step >= since)
      series->events[kept++] = series->events[i];
  if (kept > 0)
    qsort(series->events, kept, sizeof *series->events, compare_events);
  series->n_events = kept < SERIES_EVENTS_MAX ? kept : SERIES_EVENTS_MAX;
  series->events += kept - series->n_events;
}

static int check_request(const struct run *run, const Weir__SeriesRequest *request, struct err *err) {
  const struct run_curves *curves = &run->events.curves;
  if (request->points > SERIES_POINTS_MAX)
    return err_set(err, ERR_INVALID, "points: %u: a curve has at most %d", request->points,
                   SERIES_POINTS_MAX);
  for (size_t i = 0; i < request->n_metrics; i++) {
    bool is_known = false;
    for (int m = 0; m < STEP_METRICS; m++)
      is_known |= strcmp(request->metrics[i], step_metric_names[m]) == 0;
    for (int m = 0; m < curves->evals.n_metrics; m++)
      is_known |= strcmp(request->metrics[i], curves->names[m]) == 0;
    if (!is_known)
      return err_set(err, ERR_INVALID, "run '%s' has no curve of '%.100s'", run->id, request->metrics[i]);
  }
  return 0;
}

int series_answer(const struct overview_question *question, const char *id,
                  const Weir__SeriesRequest *request, Weir__Series *series, struct err *err) {
  const struct run *run = coordinator_run(question->coordinator, id);
  struct wanted wanted = {request->since, request->points ? (int)request->points : SERIES_POINTS,
                          question->arena};
  weir__series__init(series);
  CHECK(run);
  if (check_request(run, request, err))
    return err->code;
  series->run = run->id;
  series->step = run->step;
  series->steps = run->plan.steps;
  series->incarnation = run->incarnation;
  fill_curves(run, request, &wanted, series);
  fill_events(run, request->since, question->arena, series);
  return 0;
}
