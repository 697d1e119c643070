/* Reading and checking sweep specs. */
#include "common/sweep/sweep_spec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec_document.h"
#include "common/base/message.h"
#include "common/sweep/scheduler.h"
#include "common/sweep/searcher.h"
#include "common/sweep/sweep_unit.h"
#include "model/metrics/metric.h"

enum { NAME_LENGTH_MAX = 30, POINTS_MAX = 1000 };

static int check_schedule(const Weir__SweepSpec *spec, struct err *err);
static int check_budget(const Weir__SweepSpec *spec, struct err *err);
static int check_space(Weir__SweepSpec *spec, struct err *err);
static int make_rungs(Weir__SweepSpec *spec, const Weir__RunSpec *base, struct err *err);

int sweep_spec_read(const struct spec_source *source, Weir__SweepSpec **out, struct err *err) {
  struct spec_document document;
  ProtobufCMessage *message;
  *out = NULL;
  if (spec_document_open(source, &document, err))
    return err->code;
  spec_document_read(&document, &weir__sweep_spec__descriptor, &message, err);
  *out = (Weir__SweepSpec *)message;
  spec_document_fini(&document);
  return err->code;
}

static int check_name(const char *name, struct err *err) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
  if (!name || !*name)
    return err_set(err, ERR_INVALID, "name: the sweep has no name");
  if (strlen(name) > NAME_LENGTH_MAX || strspn(name, letters) != strlen(name))
    return err_set(err, ERR_INVALID, "name: '%.60s' must be at most %d of a-z, 0-9 and '-'", name,
                   NAME_LENGTH_MAX);
  return 0;
}

/* The sub-message, new where there is none. */
#define GIVE(field, type, init)                                                                              \
  if (!(field)) {                                                                                            \
    (field) = mem_new(sizeof(type));                                                                         \
    init(field);                                                                                             \
  }

static void give_defaults(Weir__SweepSpec *spec) {
  GIVE(spec->objective, Weir__SweepObjective, weir__sweep_objective__init);
  GIVE(spec->search, Weir__SweepSearch, weir__sweep_search__init);
  GIVE(spec->schedule, Weir__SweepSchedule, weir__sweep_schedule__init);
  GIVE(spec->budget, Weir__SweepBudget, weir__sweep_budget__init);
}

static int check_goal(Weir__SweepObjective *objective, const char *key, struct err *err) {
  const struct metric_def *metric = metric_find(objective->metric);
  bool is_min = strcmp(objective->metric, "loss") == 0 || (metric && metric->is_lower_better);
  if (!objective->goal)
    objective->goal = mem_strdup(is_min ? "min" : "max");
  return strcmp(objective->goal, "min") == 0 || strcmp(objective->goal, "max") == 0
             ? 0
             : err_set(err, ERR_INVALID, "%s.goal: '%.60s' is neither min nor max", key, objective->goal);
}

static int check_several(const Weir__SweepSpec *spec, struct err *err) {
  const struct searcher_def *searcher = searcher_find(spec->search->name);
  const struct scheduler_def *scheduler = scheduler_find(spec);
  if (spec->n_objectives > SWEEP_OBJECTIVES_MAX)
    return err_set(err, ERR_INVALID, "objective: %zu of them; at most %d", spec->n_objectives,
                   SWEEP_OBJECTIVES_MAX);
  for (size_t i = 0; i < spec->n_objectives; i++)
    for (size_t j = 0; j < i; j++)
      if (strcmp(spec->objectives[i]->metric, spec->objectives[j]->metric) == 0)
        return err_set(err, ERR_INVALID, "objective[%zu].metric: '%.60s' is there twice", i,
                       spec->objectives[i]->metric);
  if (spec->n_from > 0)
    return err_set(err, ERR_INVALID, "from: a sweep of several objectives learns from its own trials alone");
  if (searcher && !searcher->takes_several)
    return err_set(
        err, ERR_INVALID,
        "search.name: '%s' models the values of one objective: of several, take random, sobol, grid "
        "or tpe",
        searcher->name);
  if (scheduler && !scheduler->takes_several)
    return err_set(err, ERR_INVALID,
                   "schedule.name: '%s' ranks trials by one objective: of several, take none, and bound the "
                   "others by constraint where one is enough",
                   scheduler->name);
  return 0;
}

/* Those of a list; `objective` is the first of them then. */
static int check_objectives(Weir__SweepSpec *spec, struct err *err) {
  for (size_t i = 0; i < spec->n_objectives; i++) {
    char key[32];
    snprintf(key, sizeof key, "objective[%zu]", i);
    if (check_goal(spec->objectives[i], key, err))
      return err->code;
  }
  if (spec->n_objectives && !spec->objective)
    spec->objective = message_copy(spec->objectives[0]);
  give_defaults(spec);
  if (check_goal(spec->objective, "objective", err))
    return err->code;
  if (spec->n_objectives && !message_is_same(spec->objective, spec->objectives[0]))
    return err_set(err, ERR_INVALID, "objective: it is not the first of objectives: give one list");
  return spec->n_objectives > 1 ? check_several(spec, err) : 0;
}

static int check_constraint(const Weir__SweepConstraint *constraint, struct err *err) {
  if (!constraint)
    return 0;
  if (!constraint->metric)
    return err_set(err, ERR_INVALID, "constraint.metric: it is not given");
  if (!constraint->has_min && !constraint->has_max)
    return err_set(err, ERR_INVALID, "constraint: give min, max or both");
  if ((constraint->has_min && !isfinite(constraint->min)) ||
      (constraint->has_max && !isfinite(constraint->max)))
    return err_set(err, ERR_INVALID, "constraint: min and max are numbers");
  if (constraint->has_min && constraint->has_max && constraint->min > constraint->max)
    return err_set(err, ERR_INVALID, "constraint.min: %g is above constraint.max, %g", constraint->min,
                   constraint->max);
  return 0;
}

int sweep_spec_check(Weir__SweepSpec *spec, struct err *err) {
  if (check_name(spec->name, err))
    return err->code;
  if (check_objectives(spec, err))
    return err->code;
  if (strcmp(spec->order, "virtual") != 0 && strcmp(spec->order, "arrival") != 0)
    return err_set(err, ERR_INVALID, "order: '%.60s' is not known (known: virtual, arrival)", spec->order);
  if (check_constraint(spec->constraint, err))
    return err->code;
  if (spec->concurrency == 0 || spec->concurrency > SWEEP_CONCURRENCY_MAX)
    return err_set(err, ERR_INVALID, "concurrency: %u is not from 1 to %d", spec->concurrency,
                   SWEEP_CONCURRENCY_MAX);
  return sweep_check_repeats(spec, err) || check_schedule(spec, err) || check_budget(spec, err) ||
                 check_space(spec, err)
             ? (int)err->code
             : 0;
}

static int check_schedule(const Weir__SweepSpec *spec, struct err *err) {
  const Weir__SweepSchedule *schedule = spec->schedule;
  enum sweep_unit unit;
  if (!sweep_unit_find(schedule->unit, &unit))
    return err_set(err, ERR_INVALID, "schedule.unit: '%.60s' is not known (known: steps, samples, epochs)",
                   schedule->unit);
  if (schedule->n_rungs > SWEEP_RUNGS_MAX)
    return err_set(err, ERR_INVALID, "schedule.rungs: %zu rungs; at most %d", schedule->n_rungs,
                   SWEEP_RUNGS_MAX);
  for (size_t i = 0; i < schedule->n_rungs; i++)
    if (schedule->rungs[i] <= (i > 0 ? schedule->rungs[i - 1] : 0))
      return err_set(err, ERR_INVALID, "schedule.rungs: %llu is not above the rung before it",
                     (unsigned long long)schedule->rungs[i]);
  if (schedule->has_interval && schedule->n_rungs)
    return err_set(err, ERR_INVALID, "schedule.interval: schedule.rungs are given, too: give one of them");
  if (schedule->has_interval && schedule->interval == 0)
    return err_set(err, ERR_INVALID, "schedule.interval: it must be above 0");
  if (schedule->eta < 2 || schedule->eta > 1000)
    return err_set(err, ERR_INVALID, "schedule.eta: %u is not from 2 to 1000", schedule->eta);
  return scheduler_check(spec, err);
}

static int check_budget(const Weir__SweepSpec *spec, struct err *err) {
  const Weir__SweepBudget *budget = spec->budget;
  const Weir__SweepSchedule *schedule = spec->schedule;
  uint64_t first = schedule->n_rungs ? schedule->rungs[0] : schedule->interval;
  if (budget->has_trials && (budget->trials == 0 || budget->trials > SWEEP_TRIALS_MAX))
    return err_set(err, ERR_INVALID, "budget.trials: %u is not from 1 to %d", budget->trials,
                   SWEEP_TRIALS_MAX);
  if (budget->has_seconds && !(budget->seconds > 0 && isfinite(budget->seconds)))
    return err_set(err, ERR_INVALID, "budget.seconds: it must be above 0");
  if (budget->has_steps && first == 0)
    return err_set(err, ERR_INVALID,
                   "budget.steps: without schedule.rungs steps are not counted: use budget.trials");
  if (budget->has_steps && budget->steps / spec->repeats < first)
    return err_set(err, ERR_INVALID, "budget.steps: %llu %s do not reach the first rung, at %.*s %llu%s",
                   (unsigned long long)budget->steps, schedule->unit, (int)strlen(schedule->unit) - 1,
                   schedule->unit, (unsigned long long)first, spec->repeats > 1 ? ", in all repeats" : "");
  if (!budget->has_trials && !budget->has_steps && !budget->has_seconds &&
      strcmp(spec->search->name, "grid") != 0)
    return err_set(err, ERR_INVALID, "budget: it would never end: give trials, steps or seconds");
  return 0;
}

static int check_points(const Weir__SweepSpec *spec, const struct space *space, struct err *err) {
  double *point = mem_new((size_t)space->n * sizeof *point);
  if (spec->n_points > POINTS_MAX)
    err_set(err, ERR_INVALID, "points: %zu points; at most %d", spec->n_points, POINTS_MAX);
  for (size_t i = 0; i < spec->n_points && !err->code; i++)
    sweep_point(spec, space, (int)i, point, err);
  free(point);
  return err->code;
}

static int check_space(Weir__SweepSpec *spec, struct err *err) {
  struct space *space;
  if (space_make(spec, &space, err))
    return err->code;
  for (int i = 0; i < space->n && !err->code; i++) {
    const char *path = space->dimensions[i].path;
    bool is_model = strcmp(path, "model.onnx") == 0, is_files = space->dimensions[i].is_files;
    if (is_model && !is_files)
      err_set(err, ERR_INVALID, "space.%s: name the models' files: {files: [a.onnx, b.onnx]}", path);
    else if (is_files && !is_model)
      err_set(err, ERR_INVALID, "space.%s: files: only model.onnx is a file", path);
    else if (strcmp(path, "name") == 0 || strcmp(path, "model") == 0)
      err_set(err, ERR_INVALID, "space.%s: it is the same for all trials", path);
    else if (strcmp(path, "train.hold") == 0 || strcmp(path, "train.hold_epochs") == 0 ||
             strcmp(path, "eval.at") == 0 || strcmp(path, "eval.at_epochs") == 0)
      err_set(err, ERR_INVALID, "space.%s: schedule.rungs say where trials are held and evaluated", path);
    else if ((spec->schedule->n_rungs > 0 || spec->schedule->has_interval) &&
             (strcmp(path, "train.steps") == 0 || strcmp(path, "train.epochs") == 0))
      err_set(err, ERR_INVALID, "space.%s: a trial ends at the last of schedule.rungs", path);
  }
  if (!err->code && searcher_settle(spec->search, space, err) == 0 && check_points(spec, space, err) == 0)
    sweep_check_from(spec, err);
  space_free(space);
  return err->code;
}

int sweep_point(const Weir__SweepSpec *spec, const struct space *space, int i, double *point,
                struct err *err) {
  const Weir__SweepPoint *given = spec->points[i];
  for (int d = 0; d < space->n; d++)
    point[d] = NAN;
  for (size_t v = 0; v < given->n_values; v++) {
    const Weir__SweepValue *value = given->values[v];
    int d = value->path && value->value ? space_find(space, value->path) : -1;
    if (d < 0)
      return err_set(err, ERR_INVALID, "points[%d]: the space has no '%.100s'", i,
                     value->path ? value->path : "");
    if (space_position(&space->dimensions[d], value->value, &point[d], err))
      return err_prefix(err, "points[%d]", i);
  }
  if (space_holds(space, point))
    return 0;
  return err_set(err, ERR_INVALID,
                 "points[%d]: it has to have a value of each dimension of the space that is active with the "
                 "others, and of no other",
                 i);
}

static Weir__RunSpec *spec_keeping_best(const Weir__RunSpec *base, const char *metric) {
  Weir__RunSpec *copy = spec_copy(base);
  if (!copy->checkpoint) {
    copy->checkpoint = mem_new(sizeof *copy->checkpoint);
    weir__checkpoint_spec__init(copy->checkpoint);
  }
  free(copy->checkpoint->keep_best);
  copy->checkpoint->keep_best = mem_strdup(metric);
  return copy;
}

/* Of a model only accuracy asks for something. */
Weir__RunSpec *sweep_model_spec(const Weir__SweepSpec *spec, const Weir__RunSpec *base) {
  const char *metric = spec->objective->metric;
  for (size_t i = 0; i < spec->n_objectives; i++)
    if (strcmp(spec->objectives[i]->metric, "accuracy") == 0)
      metric = "accuracy";
  return spec_keeping_best(base, metric);
}

/* Whether a metric is one that checkpoint.keep_best may be. */
static int check_metric(const char *key_of_it, const char *metric, const Weir__RunSpec *base,
                        struct err *err) {
  static const char key[] = "checkpoint.keep_best: ";
  Weir__RunSpec *copy = spec_keeping_best(base, metric);
  if (spec_check(copy, err) && strncmp(err->text, key, sizeof key - 1) == 0) {
    char *why = mem_strdup(err->text + sizeof key - 1);
    err_set(err, ERR_INVALID, "%s: %s", key_of_it, why);
    free(why);
  }
  spec_free(copy);
  return err->code;
}

static int check_metrics(const Weir__SweepSpec *spec, const Weir__RunSpec *base, struct err *err) {
  if (spec->n_objectives == 0)
    return check_metric("objective.metric", spec->objective->metric, base, err);
  for (size_t i = 0; i < spec->n_objectives; i++) {
    char key[40];
    snprintf(key, sizeof key, "objective[%zu].metric", i);
    if (check_metric(key, spec->objectives[i]->metric, base, err))
      return err->code;
  }
  return 0;
}

/* In mode local trials can only be held where there are versions. */
static int check_local_rungs(const Weir__SweepSchedule *schedule, const Weir__LocalSpec *local,
                             struct err *err) {
  if (schedule->n_rungs > 1 && sweep_unit_of(schedule) != SWEEP_STEPS)
    return err_set(err, ERR_INVALID, "schedule.unit: of runs of mode local rungs are counted in steps");
  for (size_t i = 0; i + 1 < schedule->n_rungs; i++)
    if (schedule->rungs[i] % local->inner_steps)
      return err_set(err, ERR_INVALID,
                     "schedule.rungs: %llu is no multiple of the run spec's train.local.inner_steps, %u",
                     (unsigned long long)schedule->rungs[i], local->inner_steps);
  return 0;
}

/* What trials are given by the sweep. */
static int check_own(const Weir__SweepSpec *spec, const Weir__RunSpec *base, struct err *err) {
  if (base->train->has_hold || base->train->has_hold_epochs)
    return err_set(err, ERR_INVALID,
                   "spec: the run spec has %s, and trials are held by schedule.rungs alone: take it away",
                   base->train->has_hold ? "train.hold" : "train.hold_epochs");
  if (spec->schedule->n_rungs > 0 && base->eval && base->eval->n_at + base->eval->n_at_epochs > 0)
    return err_set(err, ERR_INVALID,
                   "spec: the run spec has %s, and trials are evaluated by schedule.rungs: take it away",
                   base->eval->n_at ? "eval.at" : "eval.at_epochs");
  return base->train->local ? check_local_rungs(spec->schedule, base->train->local, err) : 0;
}

int sweep_spec_check_base(Weir__SweepSpec *spec, const Weir__RunSpec *base, struct err *err) {
  if (make_rungs(spec, base, err) || check_own(spec, base, err) || check_metrics(spec, base, err) ||
      (spec->constraint && check_metric("constraint.metric", spec->constraint->metric, base, err)))
    return err->code;
  return sweep_check_values(spec, base, err);
}

/* Where a run ends, in the unit of rungs. */
static int find_last(enum sweep_unit unit, const Weir__TrainSpec *train, uint64_t *last, struct err *err) {
  if (unit == SWEEP_EPOCHS && !train->has_epochs)
    return err_set(
        err, ERR_INVALID,
        "schedule.interval: the run spec has train.steps, whose epochs only the data tells: give it "
        "train.epochs, or give schedule.rungs");
  if (unit == SWEEP_EPOCHS && train->epochs != floor(train->epochs))
    return err_set(
        err, ERR_INVALID,
        "schedule.interval: the run spec has train.epochs %g, and rungs are whole epochs: give it a "
        "whole number, or give schedule.rungs",
        train->epochs);
  if (unit != SWEEP_EPOCHS && !train->has_steps)
    return err_set(
        err, ERR_INVALID,
        "schedule.interval: the run spec has train.epochs, whose steps only the data tells: give it "
        "train.steps, give schedule.rungs, or say schedule.unit: epochs");
  *last = unit == SWEEP_EPOCHS ? (uint64_t)train->epochs : train->steps;
  if (unit == SWEEP_SAMPLES && __builtin_mul_overflow(*last, train->batch, last))
    *last = UINT64_MAX;
  return 0;
}

/* One at each multiple of the interval, and one where the run ends. */
static int make_rungs(Weir__SweepSpec *spec, const Weir__RunSpec *base, struct err *err) {
  Weir__SweepSchedule *schedule = spec->schedule;
  const enum sweep_unit unit = sweep_unit_of(schedule);
  uint64_t last = 0, n;
  if (!schedule->has_interval)
    return 0;
  if (find_last(unit, base->train, &last, err))
    return err->code;
  if (schedule->interval > last)
    return err_set(err, ERR_INVALID, "schedule.interval: a trial ends at %s %llu, that of the run spec",
                   sweep_unit_one(unit), (unsigned long long)last);
  n = last / schedule->interval + (last % schedule->interval > 0);
  if (n > SWEEP_RUNGS_MAX)
    return err_set(err, ERR_INVALID, "schedule.interval: %llu rungs up to %s %llu; at most %d",
                   (unsigned long long)n, sweep_unit_one(unit), (unsigned long long)last, SWEEP_RUNGS_MAX);
  schedule->rungs = mem_new(n * sizeof *schedule->rungs);
  for (; schedule->n_rungs < n; schedule->n_rungs++)
    schedule->rungs[schedule->n_rungs] =
        schedule->n_rungs + 1 < n ? (schedule->n_rungs + 1) * schedule->interval : last;
  schedule->has_interval = false;
  return 0;
}
