/* The plan of a run: what follows from its spec and the dataset's size alone, so that every process computes
   the same steps, epochs, boundaries and samples. */
#ifndef WEIR_COMMON_AGREE_PLAN_H
#define WEIR_COMMON_AGREE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "spec.pb-c.h"

/* So many versions can be named by eval.at, or by eval.at_epochs. */
enum { PLAN_EVAL_AT_MAX = 64, PLAN_EPOCHS_MAX = 1000000 };

struct plan {
  uint64_t train_samples, eval_samples; /* train_samples 0: no plan yet; eval_samples 0: no eval set */
  bool is_split;                        /* both are parts of one dataset, which has so many together */
  uint64_t steps;                       /* S: the run ends with version S; 0: it is only evaluated */
  uint32_t batch;                       /* samples a step */
  uint32_t microbatches;                /* V */
  uint32_t microbatch_samples;          /* batch / V */
  uint32_t replicas;                    /* of mode local; else 0 */
  uint32_t inner_steps;                 /* likewise: between two versions; else 0 */
  uint64_t eval_every_steps;            /* 0: after each epoch */
  uint64_t eval_at[PLAN_EVAL_AT_MAX];   /* [n_eval_at], the lowest first: evaluated besides */
  uint32_t n_eval_at;
  uint64_t checkpoint_every_steps; /* 0: not by steps */
  bool checkpoints_evaluated;      /* the best evaluated versions are kept */
  uint32_t eval_chunk_samples;     /* the last chunk may be short */
  uint32_t eval_chunks;
  uint64_t seed;       /* of all that is drawn, but for the split */
  uint64_t split_seed; /* where is_split */
};

/* How many samples each part gets of a dataset that data.split divides: the first floor(share * samples), the
   second the rest. */
void plan_split(const Weir__DataSpec *data, uint64_t samples, uint64_t *train, uint64_t *eval);

/* Errors: INVALID when there is nothing to train, or of a run without steps to evaluate, or when a part of a
   split has no sample; when eval.at names a version that there will not be, or eval.at_epochs or
   train.hold_epochs the end of too few epochs for a step; those of plan_check_hold for the spec's hold. The
   spec has passed spec_check. */
int plan_init(struct plan *plan, const Weir__RunSpec *spec, uint64_t train_samples, uint64_t eval_samples,
              struct err *err);

/* Samples of an eval chunk whose executions have so many: a multiple of that, at least 128. */
uint32_t plan_eval_chunk_samples(uint32_t microbatch_samples);

/* The last version that is made of so many epochs alone: of their samples those that fill no batch are left
   out. */
uint64_t plan_epochs_end(double epochs, uint64_t train_samples, uint32_t batch);

/* Puts train.hold in place of train.hold_epochs, if the spec has that. train: of the spec of which the plan
   is made. */
void plan_fix_hold(const struct plan *plan, Weir__TrainSpec *train);

bool plan_is_known(const struct plan *plan); /* false of a zeroed one */

/* What workers are given to compute of a step, and hand over parts of: microbatches; in mode local replicas.
 */
uint32_t plan_units(const struct plan *plan);
uint32_t plan_unit_microbatches(const struct plan *plan); /* of each unit, one after another */

/* The lowest version from `version` (0..S) on that there will be: itself, but in mode local. */
uint64_t plan_boundary(const struct plan *plan, uint64_t version);
/* Of a version (0..S) that a key names. Errors: INVALID, with the two around it, where there will be none. */
int plan_check_version(const struct plan *plan, const char *key, uint64_t version, struct err *err);

/* True if version v (0..S) is evaluated: S, or v > 0 that is floor(e * N / batch) for a whole epoch e, or a
   multiple of eval_every_steps, or one of eval_at; where there is no such version, the next that there is.
   False for every v without an eval set. */
bool plan_evaluates(const struct plan *plan, uint64_t version);
/* The lowest version from `from` on that is evaluated; UINT64_MAX: none is. */
uint64_t plan_next_evaluated(const struct plan *plan, uint64_t from);

/* Whether the run may be held at the version: not behind its end, where there is such a version and, with an
   eval set, only where it is evaluated. Errors: INVALID, naming train.hold and the versions around it. */
int plan_check_hold(const struct plan *plan, uint64_t hold, struct err *err);

uint64_t plan_epoch(const struct plan *plan, uint64_t step); /* of the step's first sample, from 0 */

/* Where sample `position` (0 .. batch-1) of a step lies in the run's stream of samples, which is epoch after
   epoch of train_samples each: the sampler (worker/data/sampler.h) says which sample comes there. */
void plan_place(const struct plan *plan, uint64_t step, uint32_t position, uint64_t *epoch, uint64_t *index);

/* The sample at that place of an epoch which is shuffled: a keyed permutation, so that every one comes once.
 */
uint64_t plan_shuffled(const struct plan *plan, uint64_t epoch, uint64_t index);

/* Where in its dataset sample i of the train part, or of the eval part, lies: i, or by a permutation that the
   split_seed keys where they are parts of one. */
uint64_t plan_train_index(const struct plan *plan, uint64_t i);
uint64_t plan_eval_index(const struct plan *plan, uint64_t i);

#endif
