/* Reading and checking sweep specs. */
#include "common/sweep/sweep_spec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec_document.h"
#include "common/base/message.h"
#include "common/settle/spec_settle.h"
#include "common/specs/spec_fork.h"
#include "common/specs/spec_with.h"
#include "common/sweep/scheduler.h"
#include "common/sweep/searcher.h"
#include "model/metrics/metric.h"

enum { NAME_LENGTH_MAX = 30, POINTS_MAX = 1000, STEPS_MAX = 1000000000 };

/* Values of a dimension, tried in the run spec. */
struct attempt {
  const Weir__SweepSpec *spec;
  const struct space *space;
  int at; /* the dimension's index */
  const Weir__RunSpec *base;
};

static int check_not_there(const Weir__SweepSpec *spec, struct err *err);
static int check_schedule(const Weir__SweepSpec *spec, struct err *err);
static int check_budget(const Weir__SweepSpec *spec, struct err *err);
static int check_space(Weir__SweepSpec *spec, struct err *err);
static int make_rungs(Weir__SweepSpec *spec, const Weir__RunSpec *base, struct err *err);
static int check_apart(const Weir__SweepSpec *spec, const Weir__RunSpec *run, struct err *err);
static int check_dimension(const struct attempt *attempt, struct err *err);
static int check_value(const struct attempt *attempt, double position, struct err *err);
static int check_forks(const struct attempt *attempt, struct err *err);

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
  return check_not_there(spec, err) || sweep_check_repeats(spec, err) || check_schedule(spec, err) ||
                 check_budget(spec, err) || check_space(spec, err)
             ? (int)err->code
             : 0;
}

static bool is_by_samples(const Weir__SweepSpec *spec) {
  return strcmp(spec->schedule->unit, "samples") == 0;
}

/* What users of other programs may look for. */
static int check_not_there(const Weir__SweepSpec *spec, struct err *err) {
  if (strcmp(spec->schedule->unit, "epochs") == 0)
    return err_set(
        err, ERR_INVALID,
        "schedule.unit: how many samples an epoch has, only the data tells: give rungs in samples");
  if (strcmp(spec->schedule->unit, "steps") != 0 && !is_by_samples(spec))
    return err_set(err, ERR_INVALID, "schedule.unit: '%.60s' is not known (known: steps, samples)",
                   spec->schedule->unit);
  return 0;
}

static int check_schedule(const Weir__SweepSpec *spec, struct err *err) {
  const Weir__SweepSchedule *schedule = spec->schedule;
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
  for (size_t i = 0; i < spec->n_space; i++)
    if (spec->space[i]->n_files)
      return err_set(err, ERR_INVALID, "space.%.100s: files: one sweep has one model: submit one for each",
                     spec->space[i]->path);
  if (space_make(spec, &space, err))
    return err->code;
  for (int i = 0; i < space->n && !err->code; i++) {
    const char *path = space->dimensions[i].path;
    if (strcmp(path, "name") == 0 || strcmp(path, "model") == 0 || strcmp(path, "model.onnx") == 0)
      err_set(err, ERR_INVALID, "space.%s: it is the same for all trials", path);
    else if (strcmp(path, "train.hold") == 0 || strcmp(path, "eval.at") == 0)
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

/* A fork begins at the rung of its parent, where a parent that has ended early does not stand. */
static int check_not_early(const char *key, const Weir__RunSpec *spec, struct err *err) {
  if (!spec->train->early_stopping)
    return 0;
  return err_set(err, ERR_INVALID,
                 "%s: the run spec has train.early_stopping, and trials of this schedule are forked at their "
                 "rungs, where one that ended early does not stand: take it away",
                 key);
}

/* What trials are given by the sweep. */
static int check_own(const Weir__SweepSpec *spec, const Weir__RunSpec *base, struct err *err) {
  if (base->train->has_hold)
    return err_set(
        err, ERR_INVALID,
        "spec: the run spec has train.hold, and trials are held by schedule.rungs alone: take it away");
  if (spec->schedule->n_rungs > 0 && base->eval && base->eval->n_at > 0)
    return err_set(
        err, ERR_INVALID,
        "spec: the run spec has eval.at, and trials are evaluated by schedule.rungs: take it away");
  return 0;
}

int sweep_spec_check_base(Weir__SweepSpec *spec, const Weir__RunSpec *base, struct err *err) {
  bool forks = scheduler_find(spec)->exploit != NULL;
  struct space *space;
  if (make_rungs(spec, base, err) || check_apart(spec, base, err) || check_own(spec, base, err) ||
      (forks && check_not_early("spec", base, err)) || check_metrics(spec, base, err) ||
      (spec->constraint && check_metric("constraint.metric", spec->constraint->metric, base, err)) ||
      space_make(spec, &space, err))
    return err->code;
  for (int i = 0; i < space->n && !err->code; i++)
    if (check_dimension(&(struct attempt){spec, space, i, base}, err) == 0 && forks)
      check_forks(&(struct attempt){spec, space, i, base}, err);
  space_free(space);
  return err->code;
}

/* One at each multiple of the interval, and the run's last step. */
static int make_rungs(Weir__SweepSpec *spec, const Weir__RunSpec *base, struct err *err) {
  Weir__SweepSchedule *schedule = spec->schedule;
  uint64_t last = base->train->steps, n;
  if (is_by_samples(spec) && __builtin_mul_overflow(last, base->train->batch, &last))
    last = UINT64_MAX;
  if (!schedule->has_interval)
    return 0;
  if (!base->train->has_steps)
    return err_set(
        err, ERR_INVALID,
        "schedule.interval: the run spec has train.epochs, whose steps only the data tells: give it "
        "train.steps, or give schedule.rungs");
  if (schedule->interval > last)
    return err_set(err, ERR_INVALID, "schedule.interval: a trial ends at %.*s %llu, that of the run spec",
                   (int)strlen(schedule->unit) - 1, schedule->unit, (unsigned long long)last);
  n = last / schedule->interval + (last % schedule->interval > 0);
  if (n > SWEEP_RUNGS_MAX)
    return err_set(err, ERR_INVALID, "schedule.interval: %llu rungs up to %.*s %llu; at most %d",
                   (unsigned long long)n, (int)strlen(schedule->unit) - 1, schedule->unit,
                   (unsigned long long)last, SWEEP_RUNGS_MAX);
  schedule->rungs = mem_new(n * sizeof *schedule->rungs);
  for (; schedule->n_rungs < n; schedule->n_rungs++)
    schedule->rungs[schedule->n_rungs] =
        schedule->n_rungs + 1 < n ? (schedule->n_rungs + 1) * schedule->interval : last;
  schedule->has_interval = false;
  return 0;
}

/* All values of a choice, and the least and the greatest number. */
static int check_dimension(const struct attempt *attempt, struct err *err) {
  const struct dimension *dimension = &attempt->space->dimensions[attempt->at];
  uint32_t n = dimension->kind == DIMENSION_CHOICE ? dimension->n_values : 0;
  for (uint32_t i = 0; i < n && !err->code; i++)
    check_value(attempt, i, err);
  if (n == 0 && check_value(attempt, 0, err) == 0)
    check_value(attempt, nextafter(1, 0), err);
  return err->code;
}

/* The settings of the values by which the dimension is active, and of its own, which is the last. They are
   freed by the caller. settings: [space->n]. */
static int make_settings(const struct space *space, int at, double position, char **settings) {
  bool is_needed[SPACE_DIMENSIONS_MAX] = {false};
  double positions[SPACE_DIMENSIONS_MAX];
  char text[SPACE_NUMBER_SIZE];
  int n = 0;
  is_needed[at] = true;
  for (int i = space->n - 1; i >= 0; i--) { /* who has conditions comes before those that they name */
    const struct dimension *dimension = &space->dimensions[space->order[i]];
    for (int c = 0; is_needed[space->order[i]] && c < dimension->n_conditions; c++) {
      is_needed[dimension->conditions[c].dimension] = true;
      positions[dimension->conditions[c].dimension] = dimension->conditions[c].choice;
    }
  }
  for (int i = 0; i < space->n; i++)
    if (is_needed[i] && i != at)
      settings[n++] = mem_printf("%s=%s", space->dimensions[i].path,
                                 space_text(&space->dimensions[i], positions[i], text));
  settings[n++] =
      mem_printf("%s=%s", space->dimensions[at].path, space_text(&space->dimensions[at], position, text));
  return n;
}

/* The base with a dimension's value, and with those by which the dimension is active. */
static int spec_with_value(const struct attempt *attempt, double position, Weir__RunSpec **out,
                           struct err *err) {
  char *settings[SPACE_DIMENSIONS_MAX];
  int n = make_settings(attempt->space, attempt->at, position, settings);
  struct spec_source source = {
      .file = "the run spec", .settings = (const char *const *)settings, .n_settings = n};
  *out = NULL;
  if (spec_with(attempt->base, &source, out, err) || spec_check(*out, err) || spec_settle_check(*out, err)) {
    char *why = mem_strdup(err->text);
    err_set(err, ERR_INVALID, "space.%s: with %s: %s", attempt->space->dimensions[attempt->at].path,
            settings[n - 1], why);
    free(why);
    spec_free(*out);
    *out = NULL;
  }
  for (int i = 0; i < n; i++)
    free(settings[i]);
  return err->code;
}

/* A run has no more steps than train.steps may be. By samples, each rung is another step, of whatever batch.
 */
static int check_apart(const Weir__SweepSpec *spec, const Weir__RunSpec *run, struct err *err) {
  const Weir__SweepSchedule *schedule = spec->schedule;
  uint64_t last = schedule->n_rungs ? schedule->rungs[schedule->n_rungs - 1] : 0;
  if ((is_by_samples(spec) ? last / run->train->batch + (last % run->train->batch > 0) : last) > STEPS_MAX)
    return err_set(err, ERR_INVALID, "schedule.rungs: up to %s %llu a trial has more than %d steps",
                   is_by_samples(spec) ? "sample" : "step", (unsigned long long)last, STEPS_MAX);
  for (size_t i = 1; i < schedule->n_rungs && is_by_samples(spec); i++)
    if (schedule->rungs[i] - schedule->rungs[i - 1] < run->train->batch)
      return err_set(err, ERR_INVALID,
                     "schedule.rungs: from %llu to %llu there are fewer samples than train.batch, %u, has",
                     (unsigned long long)schedule->rungs[i - 1], (unsigned long long)schedule->rungs[i],
                     run->train->batch);
  return 0;
}

static int check_value(const struct attempt *attempt, double position, struct err *err) {
  Weir__RunSpec *spec;
  if (spec_with_value(attempt, position, &spec, err) == 0)
    check_apart(attempt->spec, spec, err);
  spec_free(spec);
  return err->code;
}

/* A fork may have another of the values than its parent. */
static int check_forks(const struct attempt *attempt, struct err *err) {
  const struct dimension *dimension = &attempt->space->dimensions[attempt->at];
  uint32_t n = dimension->kind == DIMENSION_CHOICE ? dimension->n_values : 2;
  Weir__RunSpec *first, *other;
  char *key = mem_printf("space.%s", dimension->path);
  if (spec_with_value(attempt, 0, &first, err) == 0)
    check_not_early(key, first, err);
  for (uint32_t i = 1; i < n && !err->code; i++) {
    double position = dimension->kind == DIMENSION_CHOICE ? i : nextafter(1, 0);
    if (spec_with_value(attempt, position, &other, err) == 0 && check_not_early(key, other, err) == 0 &&
        spec_fork_check(first, other, err)) {
      char *why = mem_strdup(err->text);
      err_set(err, ERR_INVALID, "%s: trials of this schedule are forked: %s", key, why);
      free(why);
    }
    spec_free(other);
  }
  spec_free(first);
  free(key);
  return err->code;
}
