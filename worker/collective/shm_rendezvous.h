/* How the members of a shm group find each other: by a name in /dev/shm, all or none.

   Member 0 makes the segment without a name, locks it, and gives it the name when it is ready; the others
   wait for the name. When all have joined, member 0 takes the name away, gives the file its memory and makes
   the group formed; whoever waits too long gives it up, and of the two only one can happen. The lock
   ends with its holder's life: so a name without a lock is what a dead process has left, and whoever finds it
   removes it. A file with a name has a few pages, whoever dies when. */
#ifndef WEIR_WORKER_COLLECTIVE_SHM_RENDEZVOUS_H
#define WEIR_WORKER_COLLECTIVE_SHM_RENDEZVOUS_H

#include "worker/collective/shm_segment.h"

/* options are checked. Errors as collective_def.open; then nothing is mapped. */
int shm_rendezvous(const struct collective_options *options, struct shm_segment *segment, struct err *err);

#endif
