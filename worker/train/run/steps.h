/* The steps of a run: which of them are computed, from which versions, which tasks have begun, and when the
   next version becomes the current one. The mode says which version a step is computed from. Up to the
   current version all are complete, and gradients of steps that are computed from them may be pushed: so many
   steps at a time as the mode has rounds, each with a reducer. The next version fills and may be read layer
   by layer; nothing that is computed from it is pushed before it is the current one. Every function needs the
   run's lock, except where this says otherwise. */
#ifndef WEIR_WORKER_TRAIN_RUN_STEPS_H
#define WEIR_WORKER_TRAIN_RUN_STEPS_H

#include "worker/train/run/run_state.h"

enum work_kind { WORK_MICROBATCH, WORK_CHUNK };

/* A begun task. It reads `set` until it is released. */
struct work {
  enum work_kind kind;
  uint32_t index;
  uint64_t step;    /* that the microbatch is of; of a chunk, the version that is evaluated */
  uint64_t version; /* that it is computed from */
  struct weights_set *set;
  bool is_for_device; /* its gradients are to stay on the device that they are computed on */
  bool is_extra;      /* each of its parts is pushed by itself, straight to the server */
};

void steps_init(struct run *run, const struct mode *mode); /* once loaded */
void steps_fini(struct run *run);

/* Begins anew with that step, the lowest that is not over: waits for every block of the version that it is
   computed from. Nothing is read. */
void steps_join(struct run *run, uint64_t step);

/* Forgets all versions and what is held. Nothing is read, nothing under way. */
void steps_clear(struct run *run);

/* run->share or run->hold has changed. Steps go on where the hold was raised; a version that was due before
   the hold came stays due, for its tasks may have been computed, and pushed, already. */
void steps_assign(struct run *run);

/* Where the bytes of an arriving block are to be written in host memory (then steps_landed), NULL if they are
   not wanted. */
float *steps_claim_block(struct run *run, uint64_t version, uint32_t block);
void steps_landed(struct run *run, uint32_t block);
/* The block is where executions read it. steps_landed says so itself, except for versions on a device. */
void steps_filled(struct run *run, uint32_t block);

/* Sends n parts or plain pulls (at most SENT_TOGETHER_MAX) to their blocks' servers, or through the group. A
   thread that has begun a task may call it without the lock. */
void steps_send(struct run *run, const struct transfer_item *items, int n);

/* True if a part that is to be sent lies on a device and has to be copied to host memory first. The lock: as
   for steps_send. */
bool steps_must_land(const struct run *run, const struct buffer *buffer);
/* A push that had to be given up as a part was no longer waited for, and must land before steps_send. False:
   there is none. */
bool steps_next_unsent(struct run *run, struct transfer_item *item);

/* A reader other than a task, which had counted itself among the set's readers, is done. Takes the lock. */
void steps_release(struct run *run, struct weights_set *set);

/* An order to compute more of a step: of one that is not over, or of one that comes later. Copied; it
   replaces the one before of that step. What it says of another incarnation or of a step that is over is
   void. */
void steps_reissue(struct run *run, const Weir__Reissue *order);

/* Sums that this worker made of the node's microbatches, all of them finite, overflowed: computes each of
   them anew, if the step is still the present one, so that each is pushed by itself. */
void steps_compute_alone(struct run *run, uint64_t step, struct tree_node node);

/* Begins the task that is needed first: extra tasks before our own, evaluation before gradients, earlier
   steps before later ones. beside: the set that it has to read; NULL: any. */
bool steps_begin(struct run *run, const struct weights_set *beside, struct work *work);
/* Begins the task that another worker of the team has begun: kind, index and step of the work say which.
   False: it is not owed, or not of a step that is here. */
bool steps_begin_at(struct run *run, struct work *work);
/* The tasks of a step that is here; NULL. */
struct step_tasks *steps_find(const struct run *run, uint64_t step);
/* Of a step whose gradients may be pushed. */
struct reducer *steps_reducer(const struct run *run, uint64_t step);
/* Which version a task of the step reads. */
uint64_t steps_version(const struct run *run, uint64_t step, enum work_kind kind);
/* Whether tasks are owed whose weights are all here, by which those of the version that fills are put off. */
bool steps_are_owed(const struct run *run);
void steps_end(struct run *run, const struct work *work, bool is_done);

/* False: nobody needs its result any more. */
bool steps_is_wanted(const struct run *run, const struct work *work);

/* True when its result may be pushed. */
bool steps_is_current(const struct run *run, const struct work *work);

/* True if the work waits for the next version while tasks are owed, and not begun, that need not wait. The
   caller drops the work for one of those. */
bool steps_should_yield(const struct run *run, const struct work *work);

#endif
