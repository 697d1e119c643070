/* Consistency modes: how late a gradient may be. A mode is a pure policy: a row of mode.def, whose functions
   answer a few questions by the run's spec alone. Workers and servers ask them, and so agree without a
   message.

   A step is a batch of the run's stream, and the update that makes version step + 1 of the weights of version
   `step`. Which version the gradients of a step are taken at is the mode's to say: they are two numbers. */
#ifndef WEIR_COMMON_MODES_MODE_H
#define WEIR_COMMON_MODES_MODE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "spec.pb-c.h"

/* Of so many versions before it a version has the weights with it, at most (mode_before). ROUNDS: of the
   bounds'. */
enum { MODE_BEFORE_MAX = 16, MODE_ROUNDS_MAX = MODE_BEFORE_MAX + 1 };

/* What a part does to its block. */
enum mode_arrival {
  MODE_PART_IS_LATE,    /* nothing: the update of its step was made, so it is covered */
  MODE_PART_IS_ADDED,   /* it joins the parts of its step. The update is made once all of them are there, and
                           the updates of all steps before */
  MODE_PART_IS_APPLIED, /* it is an update by itself, now, unless that was made: blocks mark what they have */
  MODE_PART_IS_EARLY    /* it is refused: nobody can have the weights that its step is computed from */
};

/* A training part that comes to a server. */
struct mode_part {
  uint64_t step;
  uint64_t version; /* the newest of its block */
  uint64_t lowest;  /* of the newest versions of all blocks of the run here */
};

/* How much is kept at a time, where all are as far apart as the mode lets them be. */
struct mode_bounds {
  uint32_t versions;     /* of a block, on its server */
  uint32_t rounds;       /* steps that are not over: a server takes parts of them, a worker computes them */
  uint32_t sums;         /* of them a server keeps gradients */
  uint32_t sets;         /* versions of all weights, on a worker: the one that fills included */
  uint32_t replica_sets; /* of all weights, on a worker, that are no versions */
};

struct mode_def {
  const char *name;
  const char *option; /* the field of TrainSpec that no other mode has; NULL: there is none */
  /* Each microbatch is an update by itself: its gradient is that of its own mean, it is pushed by itself, and
     computed from the newest weights that its worker has, of its step's version or a later one. A version
     then is what a block has once all of the steps before it were applied, whatever else was. */
  bool applies_units;
  bool has_groups; /* workers of one host may reduce among themselves */

  /* The mode's own option, and what it cannot be together with. Errors: INVALID naming the key by its path.
     May be NULL. */
  int (*check)(const Weir__RunSpec *spec, struct err *err);

  /* Whose version a worker computes the step's gradients from. It hands them over once it has all of that
     version, so a part proves what the version does (`proves`). Never lower than for the step before. */
  uint64_t (*version)(const Weir__TrainSpec *train, uint64_t step);
  /* Which version is complete on every server where somebody has all of `version`. NULL: that one. */
  uint64_t (*proves)(const Weir__TrainSpec *train, uint64_t version);
  enum mode_arrival (*arrive)(const Weir__TrainSpec *train, const struct mode_part *part);
  /* The highest version that calls are answered with by a block whose newest is `newest`. NULL: that one. */
  uint64_t (*horizon)(const Weir__TrainSpec *train, uint64_t newest);
  /* Which version answers a call that waits for `wanted`, once the block's horizon is no lower. */
  uint64_t (*answer)(const Weir__TrainSpec *train, uint64_t wanted, uint64_t newest);
  /* The lowest version that somebody may still need when `complete` is known to be complete on every server:
     steps from `complete` on may have to be computed again, because a worker died. */
  uint64_t (*oldest)(const Weir__TrainSpec *train, uint64_t complete);
  /* The first version from `version` on at which a run may stand, be written into a checkpoint, or be
     evaluated. */
  uint64_t (*boundary)(const Weir__TrainSpec *train, uint64_t version);
  /* How many steps one update of the servers is worth: versions are multiples of it, and the run's last.
     NULL: one. A step then is the update of the version of its number. */
  uint64_t (*stride)(const Weir__TrainSpec *train);
  struct mode_bounds (*bounds)(const Weir__TrainSpec *train);
  /* What its user ought to know, in a sentence; NULL: nothing. May be NULL. */
  const char *(*note)(const Weir__TrainSpec *train);
};

/* The mode of a run, and what it goes by. */
struct mode {
  const struct mode_def *def;
  const Weir__TrainSpec *train; /* which outlives it */
  uint64_t last;                /* the run's last version; 0: not known yet */
};

/* The name is known, the mode accepts the spec, and the spec has no other mode's option. Errors: INVALID, for
   an unknown name with those known. */
int mode_check(const Weir__RunSpec *spec, struct err *err);

/* Of a spec that was checked: what its user ought to know of the mode, in a sentence; NULL: nothing. */
const char *mode_note(const Weir__RunSpec *spec);

struct mode mode_of(const Weir__RunSpec *spec); /* of a spec that was checked */

/* The questions of struct mode_def. */
uint64_t mode_version(const struct mode *mode, uint64_t step);
uint64_t mode_proves(const struct mode *mode, uint64_t version);
uint64_t mode_horizon(const struct mode *mode, uint64_t newest);
enum mode_arrival mode_arrive(const struct mode *mode, const struct mode_part *part);
uint64_t mode_answer(const struct mode *mode, uint64_t wanted, uint64_t newest);
uint64_t mode_oldest(const struct mode *mode, uint64_t complete);
uint64_t mode_boundary(const struct mode *mode, uint64_t version);
struct mode_bounds mode_bounds(const struct mode *mode);

/* The version after that one. */
uint64_t mode_next(const struct mode *mode, uint64_t version);
/* How many versions are made until that one is there: its place among all. */
uint64_t mode_count(const struct mode *mode, uint64_t version);
/* Whether there is, or will be, a version of that number. */
bool mode_makes(const struct mode *mode, uint64_t version);

/* The version that the last part of a step brings to its worker: what the step after it is computed from. */
uint64_t mode_reply(const struct mode *mode, uint64_t step);
/* Whether that is another version than the worker has: else the worker begins the next step without it. */
bool mode_brings_version(const struct mode *mode, uint64_t step);

/* Of so many versions before it, one after another, the weights are kept with a version that is complete
   everywhere, where a run stands at it and in a checkpoint: what steps from it on may be computed from. At
   most MODE_BEFORE_MAX. */
uint64_t mode_before(const struct mode *mode, uint64_t version);

const struct mode_def *mode_at(int index); /* in the table's order; NULL past the last */

#endif
