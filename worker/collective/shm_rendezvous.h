/* How the members of a shm group find each other: by a name in /dev/shm, all or none.

   Member 0 makes the segment without a name, locks it, and gives it the name when it is ready. The others
   wait for the name. When all have joined, member 0 takes the name away, gives the file its memory and makes
   the group formed. A member that waits too long gives the group up; a group is either formed or given up,
   never both. The lock ends with its holder's life. So a name without a lock is left by a dead process, and
   the next process that finds it removes it. A file with a name has only a few pages, whenever a process
   dies. */
#ifndef WEIR_WORKER_COLLECTIVE_SHM_RENDEZVOUS_H
#define WEIR_WORKER_COLLECTIVE_SHM_RENDEZVOUS_H

#include "worker/collective/shm_segment.h"

/* options are checked. Errors as collective_def.open; then nothing is mapped. */
int shm_rendezvous(const struct collective_options *options, struct shm_segment *segment, struct err *err);

#endif
