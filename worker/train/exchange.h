/* What a group's members do with each other while they work: in each step every bucket of blocks is gathered
   by its owner, who adds the members' parts along the reduction tree and pushes the sums; the weights of the
   next version come back to the owner and are spread from there. So the network carries each gradient once a
   node, with the same bits as without.

   Two threads, two collectives: gradients go up and weights come down in the same order of buckets, that in
   which backward completes them, each bucket as soon as it is ready. */
#ifndef WEIR_WORKER_TRAIN_EXCHANGE_H
#define WEIR_WORKER_TRAIN_EXCHANGE_H

#include "worker/train/group.h"
#include "worker/train/run_state.h"

struct exchange;

/* Meets the others of the group; blocks until all are there. is_cancelled(user) ends that, see collective.h.
   Errors: those of the collective's open, and NOT_FOUND. The run's lock is not held. */
int exchange_open(struct run *run, const struct group *group, bool (*is_cancelled)(void *user), void *user,
                  struct exchange **out, struct err *err);

/* Every member learns the highest version that one of them gives. Blocks. Errors: those of the collective;
   CANCELLED after an abort. The lock is not held. */
int exchange_agree(struct exchange *exchange, uint64_t *version, struct err *err);

/* Begins with the step of this version, which the run works on. A failure makes the run rejoin. */
void exchange_start(struct exchange *exchange, uint64_t version);

/* A part of this member's: a push of a parameter block. Its buffer is the callee's. Any thread, with or
   without the lock; never blocks. */
void exchange_give(struct exchange *exchange, const struct transfer_item *item);

const struct group *exchange_group(const struct exchange *exchange);

/* Ends it for all members. Any thread, with the run's lock; never blocks; again is harmless. */
void exchange_abort_locked(struct exchange *exchange);

/* It came to an end that nobody here asked for: it is aborted, and the run rejoins. Takes the lock. */
void exchange_fail(struct exchange *exchange, const struct err *err);

/* Aborts, waits for the threads, frees. The lock is not held. NULL is ignored. */
void exchange_close(struct exchange *exchange);

#endif
