/* A sweep: what its log has made of it, and what comes next. Pure: no clock, no cluster. The log is the
   state; whoever keeps it appends what sweep_next decides, applies it, and only then acts.

   Decisions depend on the order in which results come, so they are taken in virtual time, as if `concurrency`
   executors of one speed computed one trial each: a trial takes its samples, those that it computes where it
   ends early. A result that comes early waits until everything that ends before it in virtual time is known.
   So a log has the same bytes on any cluster.
   With `order: arrival` results are decided upon as they come: no trial waits, and the log is that order.
 */
#ifndef WEIR_COMMON_SWEEP_SWEEP_H
#define WEIR_COMMON_SWEEP_SWEEP_H

#include "common/base/err.h"
#include "common/sweep/searcher.h"
#include "common/sweep/sweep_unit.h"
#include "spec.pb-c.h"
#include "sweep.pb-c.h"

enum {
  SWEEP_RUNGS_MAX = 64,
  SWEEP_CONCURRENCY_MAX = 256,
  SWEEP_TRIALS_MAX = 10000,
  SWEEP_OBJECTIVES_MAX = 8,
  SWEEP_REPEATS_MAX = 100
};

enum sweep_trial_state {
  SWEEP_TRIAL_RUNNING,
  SWEEP_TRIAL_WAITING, /* at a rung, whether it goes on is open */
  SWEEP_TRIAL_STOPPED, /* it did not go on, or was replaced; also where the sweep has ended meanwhile */
  SWEEP_TRIAL_DONE,    /* it has come to its end */
  SWEEP_TRIAL_FAILED,
};

/* What became of one of a trial's runs up to a rung. */
struct sweep_outcome {
  uint32_t repeat;                         /* which of them, from 0 */
  double value;                            /* of the objective, */
  double others[SWEEP_OBJECTIVES_MAX - 1]; /* and of those behind the first */
  double bounded;                          /* of the constraint's metric, where there is a constraint */
  uint64_t train_samples;                  /* of an epoch of the run's data */
  double spared;       /* the share of its way to the rung that it left out, as it ended early; else 0 */
  const char *failure; /* in its place: why there is none, a literal that any cluster would say; else NULL */
  bool is_bad_input;   /* with failure: the trial's values cannot be used */
};

struct sweep_trial {
  uint32_t number;
  char **values;                /* [space->n] texts; NULL: not active */
  double *point;                /* [space->n] */
  struct sweep_result *results; /* at rungs 0, 1, ...; values as searchers see them: lower is better */
  int n_results;                /* those of a fork begin with its parent's */
  double *others;               /* [n_rungs, n_objectives - 1] values of the objectives behind the first */
  int parent;                   /* the number of the trial that it was forked from; -1: none */
  int begin;                    /* the first rung that it runs to itself */
  int replaced;                 /* the rung at which another one took its place; -1: none did */
  bool is_cut;                  /* the sweep's end stopped it */
  bool was_running;             /* where is_cut: while it ran, not while it waited */
  bool is_revived;              /* it went on when the sweep was extended */
  char *failure;                /* NULL: it has not failed */
  bool is_bad_input;
  enum sweep_trial_state state;
  uint32_t batch;         /* samples of a step */
  uint64_t train_samples; /* of an epoch, by epochs; 0: it has no result yet */
  double cost;            /* in virtual time, of a step; of the whole trial where there are no rungs */
  bool may_end_early;     /* before it comes to its rung, by itself */
  double began, end;      /* in virtual time, of what it computes now; `end` as if it did not end early */
  struct sweep_repeat *repeats; /* [spec->repeats] what was told of that; NULL: nothing */
  bool is_known; /* the outcome of that follows from what was told, and is not in the log yet */
  uint64_t told; /* how many outcomes the sweep knew before this one */
  char *known;   /* the value's text; NULL: it has failed */
  double known_others[SWEEP_OBJECTIVES_MAX - 1];
  uint64_t known_samples; /* train_samples */
  double known_spared;    /* of all its runs together */
  char *known_failure;
  bool known_bad_input;
};

/* What was told of one of a trial's runs. */
struct sweep_repeat {
  double left; /* of one that may end early: the share of its way to the rung that it may leave out yet */
  bool is_told;
  struct sweep_outcome outcome;
};

/* A trial of another sweep, of which this one learns. */
struct sweep_earlier {
  double *point;
  struct sweep_result *results; /* as a trial's, of the rungs that it has */
  int n_results;
  bool has_failed;
};

/* A model of a sweep whose space has several. */
struct sweep_model {
  double multiply_adds; /* of a sample */
  const char *sha256;
};

/* Of a sweep of several objectives: among the trials that have come furthest and have not failed, those that
   none of them dominates. */
struct sweep_front {
  int *trials; /* [n] their numbers, ascending */
  int n, capacity;
  int rung;          /* at which they are compared */
  uint64_t compared; /* pairs of trials, so far */
};

struct sweep {
  Weir__SweepSpec *spec;
  Weir__RunSpec *base;
  struct space *space;
  int n_objectives;
  bool are_max[SWEEP_OBJECTIVES_MAX]; /* their goals */
  bool is_max;                        /* the first one's */
  bool costs_differ;                  /* between trials, by their spec alone */
  struct sweep_model *models; /* [1 + files of the space] the run spec's first; NULL: they were not told */
  enum sweep_unit unit;       /* of rungs */
  uint64_t rungs[SWEEP_RUNGS_MAX]; /* ascending; a single 0: the end of the run, whatever step that is */
  int n_rungs;
  struct sweep_trial *trials;
  int n_trials, capacity;
  struct sweep_earlier *earlier; /* before trial 0 */
  int n_earlier;
  struct arena arena; /* of `earlier` and `models` */
  struct sweep_front front;
  int n_running;
  double now;           /* virtual */
  bool is_by_arrival;   /* order: arrival */
  uint64_t n_told;      /* outcomes of trials that it has known */
  uint64_t begun_steps; /* of all trials, those that run included, in the unit of rungs */
  uint64_t n_records;   /* in the log */
  int64_t from_unix_ms; /* since when budget.seconds count; 0: since it was submitted */
  char *end;            /* why it has ended; NULL: it has not */
};

/* Both specs have been checked (sweep_spec.h), and are copied. Errors: INVALID. */
int sweep_new(const Weir__SweepSpec *spec, const Weir__RunSpec *base, struct sweep **out, struct err *err);
void sweep_free(struct sweep *sweep); /* NULL is ignored */
/* Tells of the models of a space that has files, before the first record: [1 + files], which are copied, the
   run spec's first. Trials then take time by their own model. */
void sweep_set_models(struct sweep *sweep, const struct sweep_model *models);
/* Which of them is the trial's. */
uint32_t sweep_trial_model(const struct sweep *sweep, const struct sweep_trial *trial);

enum sweep_turn {
  SWEEP_DECIDED, /* there is a record: to be kept, then applied */
  SWEEP_WAITS,   /* for the result of a trial */
  SWEEP_OVER,
};

/* *record, of SWEEP_DECIDED, is freed with message_free. The sweep is not changed. */
enum sweep_turn sweep_next(const struct sweep *sweep, Weir__SweepRecord **record);

/* What can be checked of `from` without the sweeps that it names. Errors: INVALID, "from: ...". */
int sweep_check_from(const Weir__SweepSpec *spec, struct err *err);

/* A sweep of which another one learns. */
struct sweep_other {
  const char *id;
  const struct sweep *sweep;
};

/* The first record of a sweep with `from`: what it learns of others, in their order. It takes trials that are
   over, have values in this space, the run spec's own for keys that this sweep does not vary, and results at
   a rung of this sweep; at most 1,000, the last ones. *record is freed with message_free. Errors: INVALID,
   "from: ...", where another has another objective, or no trial to take. */
int sweep_learn(const struct sweep *sweep, const struct sweep_other *others, int n,
                Weir__SweepRecord **record, struct err *err);

/* The log's next record. Errors: CORRUPT for one that cannot follow on those before; the sweep is as it was.
 */
int sweep_apply(struct sweep *sweep, const Weir__SweepRecord *record, struct err *err);

/* Whether the sweep, ended or not, may have this budget in place of what it has of it. Errors: INVALID,
   naming the key. */
int sweep_check_extension(const struct sweep *sweep, const Weir__SweepBudget *budget, struct err *err);

/* Tells what became of a run of the trial that runs to a rung (trial->n_results). Others, and what was told
   before, are ignored. The trial's outcome is known once all its runs have one, and is the mean; or the first
   failure, as soon as all runs before that one have come to the rung. A value that is not finite is a
   failure, and so is, at the last rung, one that does not meet the constraint. */
void sweep_tell(struct sweep *sweep, uint32_t trial, int rung, const struct sweep_outcome *outcome);

/* Tells what share of its way to the rung a run may leave out yet by ending early, at most: never more than
   was told before. Returns whether a result that waited may be decided upon by that. */
bool sweep_tell_left(struct sweep *sweep, uint32_t trial, int rung, uint32_t repeat, double left);

/* Whether that was told of the rung to which the trial runs. */
bool sweep_is_told(const struct sweep_trial *trial, uint32_t repeat);

/* The spec of a trial's run: the base with the trial's values, held at its next rung. *out is checked, and
   freed with spec_free. Errors: INVALID, of values that do not go together. */
int sweep_trial_spec(const struct sweep *sweep, const struct sweep_trial *trial, Weir__RunSpec **out,
                     struct err *err);
/* Of several repeats, each has another seed, and the split of the first. */
int sweep_repeat_spec(const struct sweep *sweep, const struct sweep_trial *trial, uint32_t repeat,
                      Weir__RunSpec **out, struct err *err);
/* Errors: INVALID, naming what does not go with several repeats. */
int sweep_check_repeats(const Weir__SweepSpec *spec, struct err *err);

/* The version of the trial's run at a rung (sweep_unit.h). train_samples: of an epoch of the run's data,
   which only rungs in epochs ask for. 0: the run's last, where there are no rungs. */
uint64_t sweep_rung_step(const struct sweep *sweep, const struct sweep_trial *trial, int rung,
                         uint64_t train_samples);

/* The trial that is best so far: among those that have come furthest and have not failed, the one with the
   best value there; of several objectives by the first, then by the next. NULL: none has a result. */
const struct sweep_trial *sweep_best(const struct sweep *sweep);
double sweep_value(const struct sweep *sweep, const struct sweep_trial *trial,
                   int rung); /* of the objective, the first */
double sweep_value_of(const struct sweep *sweep, const struct sweep_trial *trial, int rung,
                      int objective);                       /* from 0 */
const char *sweep_state_name(enum sweep_trial_state state); /* "running" */

#endif
