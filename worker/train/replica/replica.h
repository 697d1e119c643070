/* A replica of mode `local`: weights that begin as a version of the run and take inner steps of their own.
   All of a worker's executors compute it together, and one replica after another: there is memory for one.

   An inner step is work in phases, cut into jobs that any executor may do: gradients of the replica's
   microbatches, which a reducer adds along the run's tree; the norm of all gradients, where the spec clips by
   it; the update of each block, by the optimizer that servers run in other modes. A phase begins when the one
   before is done.

   There is no lock of its own: the caller holds the run's over each call, except where this says otherwise.
 */
#ifndef WEIR_WORKER_TRAIN_REPLICA_REPLICA_H
#define WEIR_WORKER_TRAIN_REPLICA_REPLICA_H

#include "common/agree/plan.h"
#include "worker/train/block/block_pool.h"
#include "worker/train/block/reducer.h"
#include "worker/train/block/weights.h"

struct replica;

struct replica_options {
  const struct model *model;
  const Weir__TrainSpec *train; /* settled */
  const struct plan *plan;
  struct block_pool *pool;
  struct weights *weights; /* of which one set is the replica's: weights_set_apart */
};

enum replica_job_kind { REPLICA_BEGIN, REPLICA_MICROBATCH, REPLICA_NORM, REPLICA_UPDATE };

struct replica_job {
  enum replica_job_kind kind;
  uint32_t index;          /* of the microbatch in the step, or of the block */
  uint64_t step;           /* that the microbatch is of */
  struct weights_set *set; /* that it reads */
};

/* What options refer to outlives it. Errors: NO_MEMORY. */
int replica_new(const struct replica_options *options, struct replica **out, struct err *err);
void replica_free(struct replica *replica); /* NULL is ignored */
/* Of what the optimizer keeps: of the replica alone, or where it is handed on, of each of n_sets. */
uint64_t replica_state_bytes(const struct model *model, const Weir__TrainSpec *train, uint32_t n_sets);

/* The replica `index` takes `n_steps` steps from `step` on. start: of that version, complete, and kept until
   replica_end. None is under way. */
void replica_begin(struct replica *replica, uint32_t index, uint64_t step, uint32_t n_steps,
                   const struct weights_set *start);
/* A job that may be done now; false if there is none: others are at the rest of the phase, or all is done. */
bool replica_take(struct replica *replica, struct replica_job *job);
/* Does a job that is no microbatch. Without the lock. */
void replica_do(struct replica *replica, const struct replica_job *job);
/* The job that was taken is done. */
void replica_give(struct replica *replica);
/* Nobody wants it any more: no further job is given out. */
void replica_drop(struct replica *replica);
bool replica_is_busy(const struct replica *replica);      /* jobs that were taken are not done */
bool replica_is_complete(const struct replica *replica);  /* all steps are taken */
bool replica_is_under_way(const struct replica *replica); /* begun, and neither complete nor dropped */
void replica_end(struct replica *replica);

/* For what a microbatch delivers: where its parts are added. */
struct reducer *replica_reducer(struct replica *replica);
/* The sum over the replica's microbatches of a parameter block, or the row of one. Without the lock, by
   whoever is at a microbatch; the buffer is the replica's then. */
void replica_receive(struct replica *replica, uint32_t block, uint32_t microbatch, struct buffer *buffer);

/* What is pushed of a complete replica, f32[block_part_elems]: of a parameter block what its weights moved
   by, turned round, as a share of the mean over all replicas; of what is kept likewise a share of the mean;
   of a statistics block its row. Without the lock. */
void replica_part(const struct replica *replica, uint32_t block, float *out);

#endif
