/* What a sweep learns of other sweeps' trials. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/message.h"
#include "common/base/text.h"
#include "common/specs/spec_with.h"
#include "common/sweep/sweep.h"

/* So that a record fits a reply with others. */
enum { FROM_MAX = 16, EARLIER_TRIALS_MAX = 1000, EARLIER_BYTES_MAX = 512 * 1024 };

/* A sweep that learns of another one. */
struct learning {
  const struct sweep *sweep;
  const struct sweep_other *other;
  uint32_t from;                  /* which it is */
  Weir__RunSpec *base;            /* of the sweep, as it is with no setting */
  int rungs[SWEEP_RUNGS_MAX];     /* the sweep's for each of the other's; -1: none */
  Weir__SweepEarlierTrial *trial; /* under way */
};

int sweep_check_from(const Weir__SweepSpec *spec, struct err *err) {
  if (spec->n_from > FROM_MAX)
    return err_set(err, ERR_INVALID, "from: %zu sweeps; at most %d", spec->n_from, FROM_MAX);
  if (spec->n_from > 0 && !searcher_find(spec->search->name)->learns)
    return err_set(
        err, ERR_INVALID,
        "from: the searcher '%s' does not learn of other sweeps' trials; grid, tpe, bohb and gp do",
        spec->search->name);
  for (size_t i = 0; i < spec->n_from; i++) {
    if (!*spec->from[i])
      return err_set(err, ERR_INVALID, "from: a sweep is to be named by its id");
    for (size_t other = 0; other < i; other++)
      if (strcmp(spec->from[i], spec->from[other]) == 0)
        return err_set(err, ERR_INVALID, "from: '%.60s' is there twice", spec->from[i]);
  }
  return 0;
}

static int check_objective(const struct learning *learning, struct err *err) {
  const Weir__SweepObjective *own = learning->sweep->spec->objective;
  const Weir__SweepObjective *its = learning->other->sweep->spec->objective;
  if (strcmp(own->metric, its->metric) == 0 && strcmp(own->goal, its->goal) == 0)
    return 0;
  return err_set(err, ERR_INVALID, "from: the objective of sweep '%s' is %s, %s, and not %s, %s",
                 learning->other->id, its->metric, its->goal, own->metric, own->goal);
}

/* How long a trial is that goes on to a rung. */
struct length {
  enum sweep_unit unit;
  double count; /* 0: its values say that */
};

static struct length rung_length(const struct sweep *sweep, int rung) {
  const Weir__TrainSpec *train = sweep->base->train;
  if (sweep->rungs[rung] > 0)
    return (struct length){sweep->unit, (double)sweep->rungs[rung]};
  if (space_find(sweep->space, "train") >= 0 || space_find(sweep->space, "train.steps") >= 0 ||
      space_find(sweep->space, "train.epochs") >= 0)
    return (struct length){SWEEP_STEPS, 0};
  return train->has_steps ? (struct length){SWEEP_STEPS, (double)train->steps}
                          : (struct length){SWEEP_EPOCHS, train->epochs};
}

static bool are_as_long(struct length a, struct length b) {
  return a.unit == b.unit && a.count == b.count;
}

static void match_rungs(struct learning *learning) {
  const struct sweep *own = learning->sweep, *its = learning->other->sweep;
  for (int i = 0; i < its->n_rungs; i++) {
    learning->rungs[i] = -1;
    for (int r = 0; r < own->n_rungs; r++)
      if (are_as_long(rung_length(own, r), rung_length(its, i)))
        learning->rungs[i] = r;
  }
}

/* Whether the sweep's trials all have this value, from the run spec. */
static bool is_of_base(const struct learning *learning, const char *path, const char *value) {
  char *setting = mem_printf("%s=%s", path, value);
  const struct spec_source source = {
      .file = "the run spec", .settings = (const char *const *)&setting, .n_settings = 1};
  Weir__RunSpec *with = NULL;
  struct err ignored = ERR_NONE;
  bool is_same = spec_with(learning->sweep->base, &source, &with, &ignored) == 0 &&
                 message_is_same(with, learning->base);
  spec_free(with);
  free(setting);
  return is_same;
}

static void add_value(Weir__SweepEarlierTrial *trial, const char *path, const char *text) {
  Weir__SweepValue *value = mem_new(sizeof *value);
  weir__sweep_value__init(value);
  value->path = mem_strdup(path);
  value->value = mem_strdup(text);
  trial->values = mem_resize(trial->values, (trial->n_values + 1) * sizeof(Weir__SweepValue *));
  trial->values[trial->n_values++] = value;
}

/* Whether a trial of the other sweep has the model that its value of this space names; true where that is not
   known. */
static bool has_model(const struct learning *learning, const struct sweep_trial *trial, double position) {
  const struct sweep *own = learning->sweep, *its = learning->other->sweep;
  uint32_t model = sweep_trial_model(its, trial);
  return !own->models || !its->models || !model ||
         strcmp(own->models[1 + (uint32_t)position].sha256, its->models[model].sha256) == 0;
}

/* Whether the trial has a value of each dimension that is active, and else what the run spec says. */
static bool take_values(const struct learning *learning, const struct sweep_trial *trial) {
  const struct space *own = learning->sweep->space, *its = learning->other->sweep->space;
  double point[SPACE_DIMENSIONS_MAX];
  bool is_in;
  for (int d = 0; d < own->n; d++) { /* as far as it has them */
    int at = space_find(its, own->dimensions[d].path);
    struct err ignored = ERR_NONE;
    point[d] = NAN;
    if (at >= 0 && trial->values[at] &&
        space_position(&own->dimensions[d], trial->values[at], &point[d], &ignored) == 0 &&
        own->dimensions[d].is_files && !has_model(learning, trial, point[d]))
      point[d] = NAN;
  }
  space_activate(own, point);
  is_in = space_holds(own, point);
  for (int i = 0; i < its->n && is_in; i++) {
    const char *path = its->dimensions[i].path;
    int at = trial->values[i] ? space_find(own, path) : -1;
    if (at >= 0 && !isnan(point[at]))
      add_value(learning->trial, path, trial->values[i]);
    else if (trial->values[i])
      is_in = is_of_base(learning, path, trial->values[i]);
  }
  return is_in;
}

/* Its own ones: those of a fork's parent are of other values. */
static void take_results(const struct learning *learning, const struct sweep_trial *trial) {
  Weir__SweepEarlierTrial *to = learning->trial;
  to->results = mem_new((size_t)trial->n_results * sizeof(Weir__SweepEarlierResult *) + 1);
  for (int i = trial->begin; i < trial->n_results; i++) {
    Weir__SweepEarlierResult *result;
    char text[TEXT_NUMBER_SIZE];
    if (learning->rungs[i] < 0)
      continue;
    result = to->results[to->n_results++] = mem_new(sizeof *result);
    weir__sweep_earlier_result__init(result);
    result->has_rung = true;
    result->rung = (uint32_t)learning->rungs[i];
    result->value = mem_strdup(text_number(sweep_value(learning->other->sweep, trial, i), text));
  }
}

static bool is_over(const struct sweep_trial *trial) {
  return trial->state == SWEEP_TRIAL_DONE || trial->state == SWEEP_TRIAL_STOPPED ||
         (trial->state == SWEEP_TRIAL_FAILED && !trial->is_bad_input);
}

/* NULL: it says nothing of this sweep. */
static Weir__SweepEarlierTrial *take_trial(struct learning *learning, const struct sweep_trial *trial) {
  Weir__SweepEarlierTrial *to = learning->trial = mem_new(sizeof *to);
  weir__sweep_earlier_trial__init(to);
  to->has_from = to->has_number = to->has_failed = true;
  to->from = learning->from;
  to->number = trial->number;
  to->failed = trial->state == SWEEP_TRIAL_FAILED;
  take_results(learning, trial);
  if ((to->n_results > 0 || to->failed) && take_values(learning, trial))
    return to;
  message_free(to);
  return NULL;
}

static int learn_of(struct learning *learning, Weir__SweepEarlier *earlier, struct err *err) {
  const struct sweep *other = learning->other->sweep;
  size_t before = earlier->n_trials;
  int first = other->n_trials > EARLIER_TRIALS_MAX ? other->n_trials - EARLIER_TRIALS_MAX : 0;
  if (check_objective(learning, err))
    return err->code;
  match_rungs(learning);
  earlier->trials = mem_resize(
      earlier->trials, (before + (size_t)(other->n_trials - first)) * sizeof(Weir__SweepEarlierTrial *) + 1);
  for (int i = first; i < other->n_trials; i++) {
    Weir__SweepEarlierTrial *trial =
        is_over(&other->trials[i]) ? take_trial(learning, &other->trials[i]) : NULL;
    if (trial)
      earlier->trials[earlier->n_trials++] = trial;
  }
  return earlier->n_trials > before
             ? 0
             : err_set(
                   err, ERR_INVALID,
                   "from: sweep '%s' has no trial that is over, has values in this space, and a result at "
                   "a rung of this sweep",
                   learning->other->id);
}

/* Leaves the last ones, as many as a record may have. */
static void cut_first(Weir__SweepEarlier *earlier) {
  size_t bytes = 0, first = earlier->n_trials;
  while (first > 0 && earlier->n_trials - first < EARLIER_TRIALS_MAX && bytes < EARLIER_BYTES_MAX)
    bytes += weir__sweep_earlier_trial__get_packed_size(earlier->trials[--first]);
  for (size_t i = 0; i < first; i++)
    message_free(earlier->trials[i]);
  earlier->n_trials -= first;
  memmove(earlier->trials, earlier->trials + first, earlier->n_trials * sizeof *earlier->trials);
}

int sweep_learn(const struct sweep *sweep, const struct sweep_other *others, int n,
                Weir__SweepRecord **record, struct err *err) {
  const struct spec_source none = {.file = "the run spec"};
  struct learning learning = {.sweep = sweep};
  Weir__SweepEarlier *earlier = mem_new(sizeof *earlier);
  weir__sweep_earlier__init(earlier);
  *record = NULL;
  spec_with(sweep->base, &none, &learning.base, err);
  for (int i = 0; i < n && !err->code; i++) {
    learning.other = &others[i];
    learning.from = (uint32_t)i;
    learn_of(&learning, earlier, err);
  }
  spec_free(learning.base);
  if (err->code) {
    message_free(earlier);
    return err->code;
  }
  cut_first(earlier);
  *record = mem_new(sizeof **record);
  weir__sweep_record__init(*record);
  (*record)->earlier = earlier;
  return 0;
}
