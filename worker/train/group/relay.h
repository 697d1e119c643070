/* A relay between a group and the servers. Every member has one. In each step the owner of a bucket gathers
   the bucket's blocks: it adds the members' parts along the reduction tree and pushes the sums. The weights
   of the next version come back to the owner, who spreads them to the members. So the network carries each
   gradient once a host, with the same bits as without a group.

   A relay has two threads and two collectives: gradients go up and weights come down in the same order of
   buckets. That is the order in which backward completes them, and each bucket goes as soon as it is ready.
   Where the collective is made for devices, parts go up from device to device, and only what is pushed is
   copied to the host. */
#ifndef WEIR_WORKER_TRAIN_GROUP_RELAY_H
#define WEIR_WORKER_TRAIN_GROUP_RELAY_H

#include "worker/train/run/group.h"
#include "worker/train/run/run_state.h"

struct relay;

/* Meets the others of the run's group; blocks until all are there. is_cancelled(run) ends that, see
   collective.h. Errors: those of the collective's open, NOT_FOUND, and NO_MEMORY on the device. The run's
   lock is not held. No version is open. */
int relay_open(struct run *run, bool (*is_cancelled)(void *run), struct relay **out, struct err *err);

/* Every member learns the highest of the versions that the members give. Blocks. Errors: those of the
   collective; CANCELLED after an abort. The lock is not held. */
int relay_agree(struct relay *relay, uint64_t *version, struct err *err);

/* Begins with this step, which the run works on. A failure makes the run rejoin. */
void relay_start(struct relay *relay, uint64_t step);

const struct group *relay_group(const struct relay *relay);
/* Where the steps of the run give their parts. Good until relay_close. */
struct outlet *relay_outlet(struct relay *relay);

/* Ends the relays of all members. Any thread, with the run's lock; never blocks; a second call does nothing.
 */
void relay_abort_locked(struct relay *relay);

/* The relay has ended and nobody here asked for it: aborts it, and makes the run rejoin. Takes the lock. */
void relay_fail(struct relay *relay, const struct err *err);

/* Aborts, waits for the threads, frees. The lock is not held. NULL is ignored. */
void relay_close(struct relay *relay);

#endif
