/* The meeting of a group: a run's workers of one host come together as a view tells, and part when their
   group has ended. Every function needs the run's lock. */
#ifndef WEIR_WORKER_TRAIN_GROUP_MEET_H
#define WEIR_WORKER_TRAIN_GROUP_MEET_H

#include "worker/train/run/run_state.h"

/* A view has come (run->newest). What is under way in a group that it changes ends at once. */
void run_read_group_locked(struct run *run, const char *worker);

/* That view becomes the applied one. False: the run has to be left first, because it works in another group
   than the view's, or in none. */
bool run_apply_group_locked(struct run *run);

/* While JOINING, before the servers are asked: whether the view has a group for us that we have no relay for.
 */
bool run_is_to_meet(const struct run *run);

/* Meets the group, or, where it was tried before, tells the coordinator and goes on alone. On the run's
   thread; gives the lock up. */
void run_meet_locked(struct run *run);

/* Raises run->lowest to the highest version that any member was told: servers do not wait for members that
   are joining, and may be one step further by now. False: the group has ended. On the run's thread; gives the
   lock up. */
bool run_agree_locked(struct run *run);

#endif
