/* What comes next in a sweep. */
#include "common/sweep/sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/message.h"
#include "common/base/text.h"
#include "common/sweep/explore.h"
#include "common/sweep/front.h"
#include "common/sweep/scheduler.h"
#include "common/sweep/sweep_order.h"
#include "common/sweep/sweep_spec.h"

/* So many trials with bad input, and no other: the space is wrong. */
enum { BAD_INPUTS_MAX = 4 };

static const char *reason_to_end(const struct sweep *sweep);
static bool fits_budget(const struct sweep *sweep, int rung);
static Weir__SweepRecord *decide_slot(const struct sweep *sweep);
static Weir__SweepRecord *suggest(const struct sweep *sweep);
static Weir__SweepRecord *record_fork(const struct sweep *sweep, const struct exploit *exploit);

/* Whether trials may take other times than the base: by these keys alone. */
static bool costs_differ(const struct space *space) {
  static const char *const paths[] = {"train", "train.batch", "train.steps", "train.epochs"};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
    if (space_find(space, paths[i]) >= 0)
      return true;
  return false;
}

int sweep_new(const Weir__SweepSpec *spec, const Weir__RunSpec *base, struct sweep **out, struct err *err) {
  struct sweep *sweep = mem_new(sizeof *sweep);
  const Weir__SweepSchedule *schedule = spec->schedule;
  *out = NULL;
  if (space_make(spec, &sweep->space, err)) {
    free(sweep);
    return err->code;
  }
  arena_init(&sweep->arena);
  sweep->spec = message_copy(spec);
  sweep->base = message_copy(base);
  sweep->is_max = sweep->are_max[0] = strcmp(spec->objective->goal, "max") == 0;
  sweep->n_objectives = spec->n_objectives ? (int)spec->n_objectives : 1;
  for (size_t i = 0; i < spec->n_objectives; i++)
    sweep->are_max[i] = strcmp(spec->objectives[i]->goal, "max") == 0;
  sweep->is_by_arrival = strcmp(spec->order, "arrival") == 0;
  sweep->unit = sweep_unit_of(schedule);
  sweep->n_rungs = schedule->n_rungs ? (int)schedule->n_rungs : 1;
  for (size_t i = 0; i < schedule->n_rungs; i++)
    sweep->rungs[i] = schedule->rungs[i];
  sweep->costs_differ = costs_differ(sweep->space);
  *out = sweep;
  return 0;
}

static void trial_fini(const struct sweep *sweep, struct sweep_trial *trial) {
  for (int i = 0; i < sweep->space->n; i++)
    free(trial->values[i]);
  free(trial->values);
  free(trial->point);
  free(trial->results);
  free(trial->others);
  free(trial->failure);
  free(trial->repeats);
  free(trial->known);
  free(trial->known_failure);
}

void sweep_free(struct sweep *sweep) {
  if (!sweep)
    return;
  for (int i = 0; i < sweep->n_trials; i++)
    trial_fini(sweep, &sweep->trials[i]);
  free(sweep->trials);
  free(sweep->front.trials);
  arena_fini(&sweep->arena);
  free(sweep->end);
  space_free(sweep->space);
  message_free(sweep->spec);
  message_free(sweep->base);
  free(sweep);
}

#define NEW_RECORD(record, field, type, init)                                                                \
  do {                                                                                                       \
    (record) = mem_new(sizeof *(record));                                                                    \
    weir__sweep_record__init(record);                                                                        \
    (record)->field = mem_new(sizeof(type));                                                                 \
    init((record)->field);                                                                                   \
  } while (0)

static Weir__SweepRecord *record_end(const char *reason) {
  Weir__SweepRecord *record;
  NEW_RECORD(record, end, Weir__SweepEnd, weir__sweep_end__init);
  record->end->reason = mem_strdup(reason);
  return record;
}

static Weir__SweepRecord *record_stop(int trial) {
  Weir__SweepRecord *record;
  NEW_RECORD(record, stop, Weir__SweepTrialStop, weir__sweep_trial_stop__init);
  record->stop->has_trial = true;
  record->stop->trial = (uint32_t)trial;
  return record;
}

static void add_others(const struct sweep_trial *trial, int n, Weir__SweepResult *result) {
  char text[TEXT_NUMBER_SIZE];
  if (n == 0)
    return;
  result->others = mem_new((size_t)n * sizeof *result->others);
  for (int i = 0; i < n; i++)
    result->others[result->n_others++] = mem_strdup(text_number(trial->known_others[i], text));
}

static Weir__SweepRepeat *repeat_result(const struct sweep_outcome *outcome, int n_others) {
  Weir__SweepRepeat *repeat = mem_new(sizeof *repeat);
  char text[TEXT_NUMBER_SIZE];
  weir__sweep_repeat__init(repeat);
  repeat->value = mem_strdup(text_number(outcome->value, text));
  repeat->others = mem_new((size_t)n_others * sizeof *repeat->others + 1);
  for (int i = 0; i < n_others; i++)
    repeat->others[repeat->n_others++] = mem_strdup(text_number(outcome->others[i], text));
  return repeat;
}

static void add_repeats(const struct sweep *sweep, const struct sweep_trial *trial,
                        Weir__SweepResult *result) {
  if (sweep->spec->repeats == 1)
    return;
  result->repeats = mem_new(sweep->spec->repeats * sizeof *result->repeats);
  for (uint32_t r = 0; r < sweep->spec->repeats; r++)
    result->repeats[result->n_repeats++] = repeat_result(&trial->repeats[r].outcome, sweep->n_objectives - 1);
}

static Weir__SweepRecord *record_result(const struct sweep *sweep, const struct sweep_trial *trial) {
  Weir__SweepRecord *record;
  char text[TEXT_NUMBER_SIZE];
  NEW_RECORD(record, result, Weir__SweepResult, weir__sweep_result__init);
  record->result->has_trial = record->result->has_rung = true;
  record->result->trial = trial->number;
  record->result->rung = (uint32_t)trial->n_results;
  if (trial->known) {
    record->result->value = mem_strdup(trial->known);
    record->result->has_train_samples = sweep->unit == SWEEP_EPOCHS;
    record->result->train_samples = trial->known_samples;
    if (trial->known_spared > 0)
      record->result->spared = mem_strdup(text_number(trial->known_spared, text));
    add_others(trial, sweep->n_objectives - 1, record->result);
    add_repeats(sweep, trial, record->result);
  } else {
    record->result->failure = mem_strdup(trial->known_failure);
    record->result->has_bad_input = record->result->bad_input = trial->known_bad_input;
  }
  return record;
}

static Weir__SweepRecord *record_promotion(const struct sweep_trial *trial) {
  Weir__SweepRecord *record;
  NEW_RECORD(record, promotion, Weir__SweepPromotion, weir__sweep_promotion__init);
  record->promotion->has_trial = record->promotion->has_rung = true;
  record->promotion->trial = trial->number;
  record->promotion->rung = (uint32_t)trial->n_results;
  return record;
}

enum sweep_turn sweep_next(const struct sweep *sweep, Weir__SweepRecord **record) {
  const struct scheduler_def *scheduler = scheduler_find(sweep->spec);
  const struct sweep_trial *earliest;
  const char *reason;
  int stopped;
  *record = NULL;
  if (sweep->end)
    return SWEEP_OVER;
  if ((reason = reason_to_end(sweep)))
    *record = record_end(reason);
  else if (scheduler->stop && (stopped = scheduler->stop(sweep)) >= 0)
    *record = record_stop(stopped);
  else if ((uint32_t)sweep->n_running < sweep->spec->concurrency)
    *record = decide_slot(sweep);
  if (*record)
    return SWEEP_DECIDED;
  earliest = sweep_find_earliest(sweep);
  if (!earliest)
    *record = record_end("nothing is left to do");
  else if (earliest->is_known)
    *record = record_result(sweep, earliest);
  return *record ? SWEEP_DECIDED : SWEEP_WAITS;
}

static const char *reason_to_end(const struct sweep *sweep) {
  int bad = 0;
  for (int i = 0; i < sweep->n_trials; i++) {
    if (sweep->trials[i].n_results > 0)
      return NULL;
    bad += sweep->trials[i].is_bad_input;
  }
  return bad >= BAD_INPUTS_MAX ? "no trial has a result, and the input of several was bad" : NULL;
}

/* Whether a trial may go on to a rung, with all its runs. */
static bool fits_budget(const struct sweep *sweep, int rung) {
  const Weir__SweepBudget *budget = sweep->spec->budget;
  uint64_t steps = sweep->rungs[rung] - (rung > 0 ? sweep->rungs[rung - 1] : 0);
  if (!budget->has_steps)
    return true;
  return !__builtin_mul_overflow(steps, sweep->spec->repeats, &steps) &&
         !__builtin_add_overflow(steps, sweep->begun_steps, &steps) && steps <= budget->steps;
}

/* What a free slot does; NULL: nothing. */
static Weir__SweepRecord *decide_slot(const struct sweep *sweep) {
  const Weir__SweepBudget *budget = sweep->spec->budget;
  const struct scheduler_def *scheduler = scheduler_find(sweep->spec);
  struct exploit exploit;
  int promoted;
  if (scheduler->exploit && sweep->n_trials < SWEEP_TRIALS_MAX && scheduler->exploit(sweep, &exploit))
    return fits_budget(sweep, exploit.rung + 1) ? record_fork(sweep, &exploit) : NULL;
  promoted = sweep->n_trials > 0 ? scheduler->promote(sweep) : -1;
  if (promoted >= 0 && fits_budget(sweep, sweep->trials[promoted].n_results))
    return record_promotion(&sweep->trials[promoted]);
  if (sweep->n_trials == SWEEP_TRIALS_MAX || !fits_budget(sweep, 0) ||
      (budget->has_trials && (uint32_t)sweep->n_trials >= budget->trials))
    return NULL;
  return suggest(sweep);
}

/* The texts of a point's values. */
static Weir__SweepValue **point_values(const struct space *space, const double *point, size_t *n) {
  Weir__SweepValue **values = mem_new((size_t)space->n * sizeof(Weir__SweepValue *));
  char text[SPACE_NUMBER_SIZE];
  *n = 0;
  for (int i = 0; i < space->n; i++) {
    Weir__SweepValue *value;
    if (isnan(point[i]))
      continue;
    value = values[(*n)++] = mem_new(sizeof *value);
    weir__sweep_value__init(value);
    value->path = mem_strdup(space->dimensions[i].path);
    value->value = mem_strdup(space_text(&space->dimensions[i], point[i], text));
  }
  return values;
}

static Weir__SweepRecord *record_fork(const struct sweep *sweep, const struct exploit *exploit) {
  double point[SPACE_DIMENSIONS_MAX];
  Weir__SweepRecord *record;
  Weir__SweepFork *fork;
  NEW_RECORD(record, fork, Weir__SweepFork, weir__sweep_fork__init);
  fork = record->fork;
  fork->has_trial = fork->has_parent = fork->has_rung = fork->has_replaced = true;
  fork->trial = (uint32_t)sweep->n_trials;
  fork->parent = (uint32_t)exploit->parent;
  fork->rung = (uint32_t)exploit->rung;
  fork->replaced = (uint32_t)exploit->replaced;
  explore(sweep, fork->trial, &sweep->trials[exploit->parent], point);
  fork->values = point_values(sweep->space, point, &fork->n_values);
  return record;
}

/* Of the trials so far, behind those of other sweeps; the points are theirs. placed: in place of the results
   of these trials; NULL: nothing. */
static struct sweep_observation *observe(const struct sweep *sweep, const struct sweep_result *placed) {
  struct sweep_observation *all = mem_new((size_t)(sweep->n_earlier + sweep->n_trials) * sizeof *all + 1);
  for (int i = 0; i < sweep->n_earlier; i++) {
    const struct sweep_earlier *earlier = &sweep->earlier[i];
    all[i] = (struct sweep_observation){.point = earlier->point,
                                        .state = earlier->has_failed ? SWEEP_FAILED : SWEEP_DONE,
                                        .results = earlier->results,
                                        .n_results = earlier->n_results};
  }
  for (int i = 0; i < sweep->n_trials; i++) {
    const struct sweep_trial *trial = &sweep->trials[i];
    all[sweep->n_earlier + i] = (struct sweep_observation){
        .point = trial->point,
        .state = trial->state == SWEEP_TRIAL_FAILED                                           ? SWEEP_FAILED
                 : trial->state == SWEEP_TRIAL_RUNNING || trial->state == SWEEP_TRIAL_WAITING ? SWEEP_PENDING
                                                                                              : SWEEP_DONE,
        .results = placed ? placed + i * sweep->n_rungs : trial->results,
        .n_results = trial->n_results};
  }
  return all;
}

/* Of several objectives, what takes the place of the results; else NULL. */
static struct sweep_result *place(const struct sweep *sweep) {
  struct sweep_result *placed;
  if (sweep->n_objectives == 1)
    return NULL;
  placed = mem_new((size_t)sweep->n_trials * (size_t)sweep->n_rungs * sizeof *placed + 1);
  front_results(sweep, placed);
  return placed;
}

/* The next of the points that were given, or the searcher's; NULL: it has no more. */
static Weir__SweepRecord *suggest(const struct sweep *sweep) {
  const struct space *space = sweep->space;
  double *point = mem_new((size_t)space->n * sizeof *point);
  struct sweep_result *placed = place(sweep);
  struct sweep_observation *observations = observe(sweep, placed);
  struct search search = {.space = space,
                          .options = sweep->spec->search,
                          .trial = (uint32_t)sweep->n_trials,
                          .observations = observations,
                          .n_observations = sweep->n_earlier + sweep->n_trials,
                          .first_rung = sweep->n_rungs > 1 ? sweep->rungs[0] : 0};
  Weir__SweepRecord *record = NULL;
  struct err none_left = ERR_NONE;
  if ((size_t)sweep->n_trials < sweep->spec->n_points)
    sweep_point(sweep->spec, space, sweep->n_trials, point, &none_left);
  else
    search_suggest(&search, point, &none_left);
  if (!none_left.code) {
    NEW_RECORD(record, suggestion, Weir__SweepSuggestion, weir__sweep_suggestion__init);
    record->suggestion->has_trial = true;
    record->suggestion->trial = (uint32_t)sweep->n_trials;
    record->suggestion->values = point_values(space, point, &record->suggestion->n_values);
  }
  free(point);
  free(observations);
  free(placed);
  return record;
}

/* Why a trial that has come to its end does not count; NULL: it does. */
static const char *constraint_failure(const struct sweep *sweep, double value) {
  const Weir__SweepConstraint *constraint = sweep->spec->constraint;
  if (constraint->has_max && !(value <= constraint->max))
    return "it does not meet the constraint: above max";
  return constraint->has_min && !(value >= constraint->min) ? "it does not meet the constraint: below min"
                                                            : NULL;
}

/* What a trial's runs come to; false: that is open. */
static bool find_outcome(const struct sweep *sweep, const struct sweep_trial *trial,
                         struct sweep_outcome *out) {
  double n = sweep->spec->repeats;
  *out = (struct sweep_outcome){.train_samples = trial->repeats[0].outcome.train_samples};
  for (uint32_t r = 0; r < sweep->spec->repeats; r++) {
    const struct sweep_outcome *outcome = &trial->repeats[r].outcome;
    if (!trial->repeats[r].is_told)
      return false;
    if (outcome->failure) {
      *out = *outcome;
      return true;
    }
    out->value += outcome->value;
    out->bounded += outcome->bounded;
    out->spared += outcome->spared;
    for (int i = 0; i < sweep->n_objectives - 1; i++)
      out->others[i] += outcome->others[i];
  }
  out->value /= n;
  out->bounded /= n;
  out->spared /= n;
  for (int i = 0; i < sweep->n_objectives - 1; i++)
    out->others[i] /= n;
  return true;
}

static void trial_know(struct sweep *sweep, struct sweep_trial *trial, const struct sweep_outcome *outcome) {
  const char *failure = outcome->failure;
  char text[TEXT_NUMBER_SIZE];
  trial->is_known = true;
  trial->told = sweep->n_told++;
  for (int i = 0; i < sweep->n_objectives && !failure; i++)
    if (!isfinite(i ? outcome->others[i - 1] : outcome->value))
      failure = "its value is not finite";
  if (!failure && sweep->spec->constraint && trial->n_results == sweep->n_rungs - 1)
    failure = constraint_failure(sweep, outcome->bounded);
  if (failure) {
    trial->known_failure = mem_strdup(failure);
    trial->known_bad_input = outcome->is_bad_input;
  } else {
    trial->known = mem_strdup(text_number(outcome->value, text));
    trial->known_samples = outcome->train_samples;
    trial->known_spared = outcome->spared;
    memcpy(trial->known_others, outcome->others, sizeof trial->known_others);
  }
}

void sweep_tell(struct sweep *sweep, uint32_t number, int rung, const struct sweep_outcome *outcome) {
  struct sweep_trial *trial = number < (uint32_t)sweep->n_trials ? &sweep->trials[number] : NULL;
  uint32_t n = sweep->spec->repeats;
  struct sweep_outcome all;
  if (!trial || trial->state != SWEEP_TRIAL_RUNNING || rung != trial->n_results || trial->is_known ||
      outcome->repeat >= n || sweep_is_told(trial, outcome->repeat))
    return;
  sweep_trial_repeats(sweep, trial)[outcome->repeat] =
      (struct sweep_repeat){.is_told = true, .outcome = *outcome};
  if (find_outcome(sweep, trial, &all))
    trial_know(sweep, trial, &all);
}

struct sweep_repeat *sweep_trial_repeats(const struct sweep *sweep, struct sweep_trial *trial) {
  if (!trial->repeats) {
    trial->repeats = mem_new(sweep->spec->repeats * sizeof *trial->repeats);
    for (uint32_t r = 0; r < sweep->spec->repeats; r++)
      trial->repeats[r].left = 1;
  }
  return trial->repeats;
}

bool sweep_is_told(const struct sweep_trial *trial, uint32_t repeat) {
  return trial->repeats && trial->repeats[repeat].is_told;
}

double sweep_value(const struct sweep *sweep, const struct sweep_trial *trial, int rung) {
  double value = trial->results[rung].value;
  return sweep->is_max ? -value : value;
}

double sweep_value_of(const struct sweep *sweep, const struct sweep_trial *trial, int rung, int objective) {
  return objective == 0 ? sweep_value(sweep, trial, rung)
                        : trial->others[rung * (sweep->n_objectives - 1) + objective - 1];
}

/* Whether a has come further than b or, as far, is better there. */
static bool is_better(const struct sweep *sweep, const struct sweep_trial *a, const struct sweep_trial *b) {
  int rung = a->n_results - 1;
  if (a->n_results != b->n_results)
    return a->n_results > b->n_results;
  for (int i = 0; i < sweep->n_objectives; i++) {
    double of_a = sweep_value_of(sweep, a, rung, i), of_b = sweep_value_of(sweep, b, rung, i);
    if (of_a != of_b)
      return (of_a > of_b) == sweep->are_max[i];
  }
  return false;
}

const struct sweep_trial *sweep_best(const struct sweep *sweep) {
  const struct sweep_trial *best = NULL;
  for (int i = 0; i < sweep->n_trials; i++) {
    const struct sweep_trial *trial = &sweep->trials[i];
    if (trial->n_results > 0 && trial->state != SWEEP_TRIAL_FAILED &&
        (!best || is_better(sweep, trial, best)))
      best = trial;
  }
  return best;
}

const char *sweep_state_name(enum sweep_trial_state state) {
  static const char *const names[] = {"running", "waiting", "stopped", "done", "failed"};
  return names[state];
}
