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

static const char *plural(uint32_t count) {
  return count == 1 ? "" : "s";
}

static char *state_text(Weir__RunState state, const char *message, struct arena *arena) {
  const char *name = coordinator_state_name(state);
  return *message ? arena_printf(arena, "%s: %s", name, message) : (char *)name;
}

/* What makes a state of the run another than the one before, which may be NULL. */
static void add_info(const Weir__RunInfo *before, const Weir__RunInfo *info, struct arena *arena,
                     Weir__Series *series) {
  bool is_other_state = !before || before->state != info->state;
  bool is_told = !before || strcmp(before->message, info->message) != 0;
  const char *message = info->message;
  size_t first = series->n_events;
  if (before && info->incarnation > before->incarnation)
    add_event(series, arena, info->step, "rollback")->message = (char *)message;
  else if (info->state == WEIR__RUN_STATE__RUNNING && *message && is_told)
    add_event(series, arena, info->step, info->tells_fault ? "fault" : "note")->message = (char *)message;
  if (is_other_state)
    add_event(series, arena, info->step, "state")->message = state_text(info->state, message, arena);
  if (info->view && info->workers > 0 && (!before || before->view != info->view))
    add_event(series, arena, info->step, "view")->message =
        arena_printf(arena, "%u worker%s, %u executor%s, %u server%s", info->workers, plural(info->workers),
                     info->executors, plural(info->executors), info->servers, plural(info->servers));
  for (size_t i = first; i < series->n_events; i++)
    series->events[i]->seconds = info->train_seconds;
}

struct placed {
  Weir__SeriesEvent *event;
  size_t order; /* among those of one step */
};

static int compare_placed(const void *a, const void *b) {
  const struct placed *x = a, *y = b;
  return x->event->step != y->event->step ? (x->event->step > y->event->step ? 1 : -1)
                                          : (x->order > y->order) - (x->order < y->order);
}

/* Those from that step on, by step: the last ones. */
static void keep_events(uint64_t since, struct arena *arena, Weir__Series *series) {
  struct placed *placed = arena_new(arena, series->n_events * sizeof *placed);
  size_t n = 0, first;
  for (size_t i = 0; i < series->n_events; i++)
    if (series->events[i]->step >= since) {
      placed[n] = (struct placed){series->events[i], n};
      n++;
    }
  if (n > 0)
    qsort(placed, n, sizeof *placed, compare_placed);
  first = n > SERIES_EVENTS_MAX ? n - SERIES_EVENTS_MAX : 0;
  for (size_t i = first; i < n; i++)
    series->events[i - first] = placed[i].event;
  series->n_events = n - first;
}

/* Kept checkpoints, and what the states that were told say. A result is told otherwise. */
static void fill_events(const struct run *run, uint64_t since, struct arena *arena, Weir__Series *series) {
  enum { EVENTS_AN_INFO = 3 };
  const struct event_list *others = &run->events.others;
  const Weir__RunInfo *before = NULL;
  series->events =
      arena_new(arena, ((size_t)run->events.infos * EVENTS_AN_INFO + (size_t)run->n_checkpoints + 1) *
                           sizeof *series->events);
  for (int i = 0; i < others->count; i++) {
    if (others->items[i].kind != WEIR__RUN_EVENT__EVENT_INFO)
      continue;
    add_info(before, others->items[i].info, arena, series);
    before = others->items[i].info;
  }
  if (coordinator_has_result(run) && !run->is_stop_awaited)
    add_event(series, arena, run->step, "state")->message = state_text(run->state, run->message, arena);
  for (int i = 0; i < run->n_checkpoints; i++)
    add_event(series, arena, run->checkpoints[i]->step, "checkpoint")->message =
        run->checkpoints[i]->unreadable ? "a server could not load it" : "";
  keep_events(since, arena, series);
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
