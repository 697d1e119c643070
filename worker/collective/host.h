/* Which processes can share memory. */
#ifndef WEIR_WORKER_COLLECTIVE_HOST_H
#define WEIR_WORKER_COLLECTIVE_HOST_H

/* Equal exactly for processes that can open each other's shared memory: the machine since it was started, its
   /dev/shm (containers have one each, unless they are given the same), the user. $WEIR_NODE instead, where
   that is set. Empty when it is not known. The caller frees it. */
char *host_name(void);

#endif
