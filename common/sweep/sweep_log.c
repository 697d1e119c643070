/* What a sweep's records make of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/sweep/front.h"
#include "common/sweep/sweep_order.h"

static int apply_suggestion(struct sweep *sweep, const Weir__SweepSuggestion *suggestion, struct err *err);
static int apply_promotion(struct sweep *sweep, const Weir__SweepPromotion *promotion, struct err *err);
static int apply_result(struct sweep *sweep, const Weir__SweepResult *result, struct err *err);
static int apply_stop(struct sweep *sweep, const Weir__SweepTrialStop *stop, struct err *err);
static int apply_fork(struct sweep *sweep, const Weir__SweepFork *fork, struct err *err);
static void apply_end(struct sweep *sweep, const Weir__SweepEnd *end);
static int apply_earlier(struct sweep *sweep, const Weir__SweepEarlier *earlier, struct err *err);
static int apply_extension(struct sweep *sweep, const Weir__SweepExtension *extension, struct err *err);

int sweep_apply(struct sweep *sweep, const Weir__SweepRecord *record, struct err *err) {
  if (record->extension)
    apply_extension(sweep, record->extension, err);
  else if (sweep->end)
    err_set(err, ERR_CORRUPT, "the sweep has ended");
  else if (record->earlier)
    apply_earlier(sweep, record->earlier, err);
  else if (record->suggestion)
    apply_suggestion(sweep, record->suggestion, err);
  else if (record->promotion)
    apply_promotion(sweep, record->promotion, err);
  else if (record->result)
    apply_result(sweep, record->result, err);
  else if (record->stop)
    apply_stop(sweep, record->stop, err);
  else if (record->fork)
    apply_fork(sweep, record->fork, err);
  else if (record->end && record->end->reason)
    apply_end(sweep, record->end);
  else
    err_set(err, ERR_CORRUPT, "it says nothing");
  if (err->code)
    return err_prefix(err, "record %llu of the sweep's log", (unsigned long long)sweep->n_records);
  sweep->n_records++;
  return 0;
}

/* From now on it computes up to its next rung. */
static void trial_run(struct sweep *sweep, struct sweep_trial *trial) {
  int rung = trial->n_results;
  uint64_t steps = sweep->rungs[rung] - (rung > 0 ? sweep->rungs[rung - 1] : 0);
  trial->state = SWEEP_TRIAL_RUNNING;
  trial->began = sweep->now;
  trial->end = sweep->now + trial->cost * (double)(steps ? steps : 1) * sweep->spec->repeats;
  sweep->begun_steps += steps * sweep->spec->repeats;
  sweep->n_running++;
}

static int check_slot(const struct sweep *sweep, struct err *err) {
  return (uint32_t)sweep->n_running < sweep->spec->concurrency
             ? 0
             : err_set(err, ERR_CORRUPT, "more than %u trials run at a time", sweep->spec->concurrency);
}

/* The values of a record. */
struct values {
  Weir__SweepValue **values;
  size_t n;
};

static int read_point(const struct space *space, const struct values *values, double *point,
                      struct err *err) {
  for (int i = 0; i < space->n; i++)
    point[i] = NAN;
  for (size_t i = 0; i < values->n; i++) {
    const Weir__SweepValue *value = values->values[i];
    int at = value->path ? space_find(space, value->path) : -1;
    if (at < 0 || !value->value || !isnan(point[at]))
      return err_set(err, ERR_CORRUPT, "a value of no dimension of the space, or of one twice");
    if (space_position(&space->dimensions[at], value->value, &point[at], err)) {
      err->code = ERR_CORRUPT;
      return err->code;
    }
  }
  return space_holds(space, point)
             ? 0
             : err_set(err, ERR_CORRUPT, "a value is missing, or of a dimension that is not active");
}

static int read_values(const struct space *space, const struct values *values, struct sweep_trial *trial,
                       struct err *err) {
  if (read_point(space, values, trial->point, err))
    return err->code;
  for (size_t i = 0; i < values->n; i++)
    trial->values[space_find(space, values->values[i]->path)] = mem_strdup(values->values[i]->value);
  return 0;
}

/* Of a step, its samples, or of a sample or an epoch one, as rungs count; where there are no rungs, of the
   whole trial, whose samples are counted in passes over the data where it is told by epochs. A trial whose
   values do not go together takes as long as one of the base. Where trials have several models, a sample is
   worth its multiply-adds. */
static double find_cost(const struct sweep *sweep, const struct sweep_trial *trial) {
  Weir__RunSpec *spec = NULL;
  struct err ignored = ERR_NONE;
  const Weir__TrainSpec *train = sweep->base->train;
  double cost;
  if (sweep->costs_differ && sweep_trial_spec(sweep, trial, &spec, &ignored) == 0)
    train = spec->train;
  cost = sweep->rungs[0] > 0 ? (sweep->unit == SWEEP_STEPS ? train->batch : 1)
         : train->has_steps  ? (double)train->steps * train->batch
                             : train->epochs;
  if (sweep->models)
    cost *= sweep->models[sweep_trial_model(sweep, trial)].multiply_adds;
  spec_free(spec);
  return cost;
}

/* Likewise. */
static uint32_t find_batch(const struct sweep *sweep, const struct sweep_trial *trial) {
  Weir__RunSpec *spec = NULL;
  struct err ignored = ERR_NONE;
  uint32_t batch = sweep->base->train->batch;
  if (sweep->unit != SWEEP_STEPS && sweep->costs_differ &&
      sweep_trial_spec(sweep, trial, &spec, &ignored) == 0)
    batch = spec->train->batch;
  spec_free(spec);
  return batch;
}

static size_t n_others(const struct sweep *sweep) {
  return (size_t)sweep->n_objectives - 1;
}

/* The next trial, which is not counted yet. NULL: its number or its values are wrong, and err is set. */
static struct sweep_trial *trial_new(struct sweep *sweep, uint32_t number, const struct values *values,
                                     struct err *err) {
  size_t n = (size_t)sweep->space->n;
  struct sweep_trial *trial;
  if (number != (uint32_t)sweep->n_trials || sweep->n_trials == SWEEP_TRIALS_MAX) {
    err_set(err, ERR_CORRUPT, "it begins trial %u, and there are %d", number, sweep->n_trials);
    return NULL;
  }
  array_reserve((void **)&sweep->trials, &sweep->capacity, sweep->n_trials, sizeof *sweep->trials);
  trial = &sweep->trials[sweep->n_trials];
  *trial = (struct sweep_trial){
      .number = number,
      .values = mem_new(n * sizeof *trial->values),
      .point = mem_new(n * sizeof *trial->point),
      .results = mem_new((size_t)sweep->n_rungs * sizeof *trial->results),
      .others = mem_new(n_others(sweep) * (size_t)sweep->n_rungs * sizeof *trial->others + 1),
      .parent = -1,
      .replaced = -1};
  if (read_values(sweep->space, values, trial, err) == 0)
    return trial;
  free(trial->values);
  free(trial->point);
  free(trial->results);
  free(trial->others);
  return NULL;
}

/* Of trials whose spec says so, or may. */
static bool may_end_early(const struct sweep *sweep) {
  static const char key[] = "train.early_stopping";
  bool may = sweep->base->train->early_stopping != NULL;
  for (int i = 0; i < sweep->space->n && !may; i++) {
    const char *path = sweep->space->dimensions[i].path;
    may = strcmp(path, "train") == 0 || strncmp(path, key, sizeof key - 1) == 0;
  }
  return may;
}

static void trial_begin(struct sweep *sweep, struct sweep_trial *trial) {
  sweep->n_trials++;
  trial->may_end_early = may_end_early(sweep);
  trial->batch = find_batch(sweep, trial);
  trial->cost = find_cost(sweep, trial);
  trial_run(sweep, trial);
}

static int apply_suggestion(struct sweep *sweep, const Weir__SweepSuggestion *suggestion, struct err *err) {
  const struct values values = {suggestion->values, suggestion->n_values};
  struct sweep_trial *trial;
  if (check_slot(sweep, err) || !(trial = trial_new(sweep, suggestion->trial, &values, err)))
    return err->code;
  trial_begin(sweep, trial);
  return 0;
}

static int read_earlier(const struct sweep *sweep, const Weir__SweepEarlierTrial *from,
                        struct sweep_earlier *to, struct err *err) {
  const struct values values = {from->values, from->n_values};
  int rung = -1;
  if (read_point(sweep->space, &values, to->point, err))
    return err->code;
  for (size_t i = 0; i < from->n_results; i++) {
    const Weir__SweepEarlierResult *result = from->results[i];
    double value = result->value ? strtod(result->value, NULL) : NAN;
    if (result->rung >= (uint32_t)sweep->n_rungs || (int)result->rung <= rung || !isfinite(value))
      return err_set(err, ERR_CORRUPT, "a result of another sweep's trial is none of this one");
    rung = (int)result->rung;
    to->results[to->n_results++] =
        (struct sweep_result){.steps = sweep->rungs[rung], .value = sweep->is_max ? -value : value};
  }
  to->has_failed = from->failed;
  return 0;
}

static int apply_earlier(struct sweep *sweep, const Weir__SweepEarlier *earlier, struct err *err) {
  if (sweep->n_records > 0)
    return err_set(err, ERR_CORRUPT, "trials of other sweeps come behind its own");
  sweep->earlier = arena_new(&sweep->arena, earlier->n_trials * sizeof *sweep->earlier + 1);
  for (size_t i = 0; i < earlier->n_trials && !err->code; i++) {
    struct sweep_earlier *to = &sweep->earlier[i];
    *to = (struct sweep_earlier){
        .point = arena_new(&sweep->arena, (size_t)sweep->space->n * sizeof *to->point),
        .results = arena_new(&sweep->arena, earlier->trials[i]->n_results * sizeof *to->results + 1)};
    read_earlier(sweep, earlier->trials[i], to, err);
  }
  sweep->n_earlier = err->code ? 0 : (int)earlier->n_trials;
  return err->code;
}

/* The trial of a record, which is to be in that state. NULL: it is not, and err is set. */
static struct sweep_trial *find_trial(struct sweep *sweep, uint32_t number, enum sweep_trial_state state,
                                      struct err *err) {
  struct sweep_trial *trial = number < (uint32_t)sweep->n_trials ? &sweep->trials[number] : NULL;
  if (!trial)
    err_set(err, ERR_CORRUPT, "there is no trial %u", number);
  else if (trial->state != state)
    err_set(err, ERR_CORRUPT, "trial %u is %s, not %s", number, sweep_state_name(trial->state),
            sweep_state_name(state));
  return err->code ? NULL : trial;
}

static int apply_promotion(struct sweep *sweep, const Weir__SweepPromotion *promotion, struct err *err) {
  struct sweep_trial *trial = find_trial(sweep, promotion->trial, SWEEP_TRIAL_WAITING, err);
  if (!trial || check_slot(sweep, err))
    return err->code;
  if (promotion->rung != (uint32_t)trial->n_results)
    return err_set(err, ERR_CORRUPT, "trial %u goes on to rung %d, not %u", promotion->trial,
                   trial->n_results, promotion->rung);
  trial_run(sweep, trial);
  return 0;
}

static void forget_known(struct sweep_trial *trial) {
  free(trial->repeats);
  free(trial->known);
  free(trial->known_failure);
  trial->repeats = NULL;
  trial->known = trial->known_failure = NULL;
  trial->known_spared = 0;
  trial->is_known = trial->known_bad_input = false;
}

/* Of the objectives behind the first. */
static int read_others(const struct sweep *sweep, const Weir__SweepResult *result, double *out,
                       struct err *err) {
  if (!result->failure && result->n_others != n_others(sweep))
    return err_set(err, ERR_CORRUPT, "the result of trial %u has %zu values more, not %zu", result->trial,
                   result->n_others, n_others(sweep));
  for (size_t i = 0; i < n_others(sweep) && !result->failure; i++) {
    out[i] = strtod(result->others[i], NULL);
    if (!isfinite(out[i]))
      return err_set(err, ERR_CORRUPT, "the result of trial %u is no number", result->trial);
  }
  return 0;
}

static int check_result(const struct sweep *sweep, const struct sweep_trial *trial,
                        const Weir__SweepResult *result, struct err *err) {
  uint32_t repeats = sweep->spec->repeats;
  if (result->rung != (uint32_t)trial->n_results)
    return err_set(err, ERR_CORRUPT, "trial %u runs to rung %d, not %u", result->trial, trial->n_results,
                   result->rung);
  if (!result->failure && result->n_repeats != (repeats > 1 ? repeats : 0))
    return err_set(err, ERR_CORRUPT, "the result of trial %u has %zu repeats, of %u", result->trial,
                   result->n_repeats, repeats);
  if (!result->failure && sweep->unit == SWEEP_EPOCHS && result->train_samples == 0)
    return err_set(err, ERR_CORRUPT, "the result of trial %u does not say of how many samples its epochs are",
                   result->trial);
  return 0;
}

static int apply_result(struct sweep *sweep, const Weir__SweepResult *result, struct err *err) {
  struct sweep_trial *trial = find_trial(sweep, result->trial, SWEEP_TRIAL_RUNNING, err);
  double value = NAN, spared = result->spared ? strtod(result->spared, NULL) : 0;
  double others[SWEEP_OBJECTIVES_MAX];
  if (!trial || check_result(sweep, trial, result, err))
    return err->code;
  if (result->value)
    value = strtod(result->value, NULL);
  if (!result->failure && !isfinite(value))
    return err_set(err, ERR_CORRUPT, "the result of trial %u is no number", result->trial);
  if (!(spared >= 0 && spared <= 1))
    return err_set(err, ERR_CORRUPT, "the result of trial %u is of no part of its way", result->trial);
  if (read_others(sweep, result, others, err))
    return err->code;
  forget_known(trial);
  trial->end = sweep_end_of(trial, spared);
  sweep->now = trial->end > sweep->now ? trial->end : sweep->now;
  sweep->n_running--;
  if (result->failure) {
    trial->state = SWEEP_TRIAL_FAILED;
    trial->failure = mem_strdup(result->failure);
    trial->is_bad_input = result->bad_input;
    front_take_failure(sweep, trial);
    return 0;
  }
  trial->train_samples = result->train_samples;
  trial->results[trial->n_results] =
      (struct sweep_result){.steps = sweep->rungs[trial->n_results], .value = sweep->is_max ? -value : value};
  memcpy(trial->others + (size_t)trial->n_results * n_others(sweep), others,
         n_others(sweep) * sizeof *others);
  trial->n_results++;
  front_take_result(sweep, trial);
  trial->state = trial->n_results == sweep->n_rungs ? SWEEP_TRIAL_DONE : SWEEP_TRIAL_WAITING;
  return 0;
}

static int apply_stop(struct sweep *sweep, const Weir__SweepTrialStop *stop, struct err *err) {
  struct sweep_trial *trial = find_trial(sweep, stop->trial, SWEEP_TRIAL_WAITING, err);
  if (trial)
    trial->state = SWEEP_TRIAL_STOPPED;
  return err->code;
}

/* Whether a trial may be replaced at a rung: it waits there, or has failed there or before. */
static bool is_replaceable(const struct sweep_trial *trial, uint32_t rung) {
  if (trial->state == SWEEP_TRIAL_FAILED)
    return trial->replaced < 0 && (uint32_t)trial->n_results <= rung;
  return trial->state == SWEEP_TRIAL_WAITING && (uint32_t)trial->n_results == rung + 1;
}

static int apply_fork(struct sweep *sweep, const Weir__SweepFork *fork, struct err *err) {
  const struct values values = {fork->values, fork->n_values};
  const struct sweep_trial *parent = find_trial(sweep, fork->parent, SWEEP_TRIAL_WAITING, err);
  struct sweep_trial *trial, *replaced;
  if (!parent || check_slot(sweep, err))
    return err->code;
  if ((uint32_t)parent->n_results != fork->rung + 1)
    return err_set(err, ERR_CORRUPT, "trial %u does not wait at rung %u", fork->parent, fork->rung);
  if (fork->replaced >= (uint32_t)sweep->n_trials || fork->replaced == fork->parent ||
      !is_replaceable(&sweep->trials[fork->replaced], fork->rung))
    return err_set(err, ERR_CORRUPT, "trial %u cannot be replaced at rung %u", fork->replaced, fork->rung);
  trial = trial_new(sweep, fork->trial, &values, err);
  if (!trial)
    return err->code;
  parent = &sweep->trials[fork->parent]; /* they may lie elsewhere now */
  replaced = &sweep->trials[fork->replaced];
  if (replaced->state == SWEEP_TRIAL_WAITING)
    replaced->state = SWEEP_TRIAL_STOPPED;
  replaced->replaced = (int)fork->rung;
  trial->parent = (int)fork->parent;
  trial->begin = trial->n_results = parent->n_results;
  trial->train_samples = parent->train_samples;
  memcpy(trial->results, parent->results, (size_t)parent->n_results * sizeof *trial->results);
  trial_begin(sweep, trial);
  return 0;
}

static void apply_end(struct sweep *sweep, const Weir__SweepEnd *end) {
  sweep->end = mem_strdup(end->reason);
  sweep->n_running = 0;
  for (int i = 0; i < sweep->n_trials; i++) {
    struct sweep_trial *trial = &sweep->trials[i];
    forget_known(trial);
    if (trial->state != SWEEP_TRIAL_RUNNING && trial->state != SWEEP_TRIAL_WAITING)
      continue;
    trial->is_cut = true;
    trial->was_running = trial->state == SWEEP_TRIAL_RUNNING;
    trial->state = SWEEP_TRIAL_STOPPED;
  }
}

/* As if it had not ended. */
static void end_undo(struct sweep *sweep) {
  free(sweep->end);
  sweep->end = NULL;
  for (int i = 0; i < sweep->n_trials; i++) {
    struct sweep_trial *trial = &sweep->trials[i];
    if (!trial->is_cut)
      continue;
    trial->is_cut = false;
    trial->is_revived = true;
    trial->state = trial->was_running ? SWEEP_TRIAL_RUNNING : SWEEP_TRIAL_WAITING;
    sweep->n_running += trial->was_running;
  }
}

static int apply_extension(struct sweep *sweep, const Weir__SweepExtension *extension, struct err *err) {
  Weir__SweepBudget *budget = sweep->spec->budget;
  const Weir__SweepBudget *more = extension->budget;
  if (!more || sweep_check_extension(sweep, more, err)) {
    err_set(err, ERR_CORRUPT, "it extends the sweep by nothing");
    return err->code;
  }
  if (more->has_trials)
    budget->trials = more->trials;
  if (more->has_steps)
    budget->steps = more->steps;
  if (more->has_seconds) {
    budget->seconds = more->seconds;
    sweep->from_unix_ms = extension->from_unix_ms;
  }
  end_undo(sweep);
  return 0;
}
