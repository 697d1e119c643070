/* The values of a sweep's space, tried in the run spec. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/plan.h"
#include "common/settle/spec_settle.h"
#include "common/specs/spec_fork.h"
#include "common/specs/spec_with.h"
#include "common/sweep/scheduler.h"
#include "common/sweep/sweep_spec.h"
#include "common/sweep/sweep_unit.h"

enum { STEPS_MAX = 1000000000 };

/* Values of a dimension. */
struct attempt {
  const Weir__SweepSpec *spec;
  const struct space *space;
  int at; /* the dimension's index */
  const Weir__RunSpec *base;
};

static int check_not_early(const char *key, const Weir__RunSpec *spec, struct err *err);
static int check_apart(const Weir__SweepSpec *spec, const Weir__RunSpec *run, struct err *err);
static int check_dimension(const struct attempt *attempt, struct err *err);
static int spec_with_value(const struct attempt *attempt, double position, Weir__RunSpec **out,
                           struct err *err);
static int check_value(const struct attempt *attempt, double position, struct err *err);
static int check_forks(const struct attempt *attempt, struct err *err);

int sweep_check_values(const Weir__SweepSpec *spec, const Weir__RunSpec *base, struct err *err) {
  bool forks = scheduler_find(spec)->exploit != NULL;
  struct space *space;
  if (check_apart(spec, base, err) || (forks && check_not_early("spec", base, err)) ||
      space_make(spec, &space, err))
    return err->code;
  for (int i = 0; i < space->n && !err->code; i++)
    if (check_dimension(&(struct attempt){spec, space, i, base}, err) == 0 && forks)
      check_forks(&(struct attempt){spec, space, i, base}, err);
  space_free(space);
  return err->code;
}

int sweep_file_spec(const Weir__SweepSpec *spec, const Weir__RunSpec *base, uint32_t file,
                    Weir__RunSpec **out, struct err *err) {
  struct space *space;
  Weir__RunSpec *with;
  *out = NULL;
  if (space_make(spec, &space, err))
    return err->code;
  if (spec_with_value(&(struct attempt){spec, space, space_files(space), base}, file, &with, err) == 0)
    *out = sweep_model_spec(spec, with);
  spec_free(with);
  space_free(space);
  return err->code;
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

/* A run has no more steps, or epochs, than its spec may say. By samples, each rung is another step, of
   whatever batch. */
static int check_apart(const Weir__SweepSpec *spec, const Weir__RunSpec *run, struct err *err) {
  const Weir__SweepSchedule *schedule = spec->schedule;
  const enum sweep_unit unit = sweep_unit_of(schedule);
  const bool is_by_samples = unit == SWEEP_SAMPLES;
  uint64_t last = schedule->n_rungs ? schedule->rungs[schedule->n_rungs - 1] : 0;
  if (unit == SWEEP_EPOCHS)
    return last <= PLAN_EPOCHS_MAX
               ? 0
               : err_set(err, ERR_INVALID, "schedule.rungs: %llu epochs are more than the %d of a run",
                         (unsigned long long)last, PLAN_EPOCHS_MAX);
  if ((is_by_samples ? last / run->train->batch + (last % run->train->batch > 0) : last) > STEPS_MAX)
    return err_set(err, ERR_INVALID, "schedule.rungs: up to %s %llu a trial has more than %d steps",
                   is_by_samples ? "sample" : "step", (unsigned long long)last, STEPS_MAX);
  for (size_t i = 1; i < schedule->n_rungs && is_by_samples; i++)
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
