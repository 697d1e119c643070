/* How the members of a shm group find each other: by a name in /dev/shm, all or none.

   Member 0 makes the segment without a name, locks it, and gives it the name when it is ready; the others
   wait for the name. The group is formed when all have joined; whoever waits too long makes it aborted, and
   of the two only one can happen. Member 0 then takes the name away and lets the lock go. The lock ends with
   its holder's life: so a name without a lock is what a dead process has left, and whoever finds it removes
   it. */
#ifndef WEIR_WORKER_COLLECTIVE_SHM_RENDEZVOUS_H
#define WEIR_WORKER_COLLECTIVE_SHM_RENDEZVOUS_H

#include "worker/collective/shm_segment.h"

/* options are checked. Errors as collective_def.open; then nothing is mapped. */
int shm_rendezvous(const struct collective_options *options, struct shm_segment *segment, struct err *err);

#endif
