/* The name of the host: equal for processes that can share memory. */
#ifndef WEIR_WORKER_COLLECTIVE_HOST_H
#define WEIR_WORKER_COLLECTIVE_HOST_H

/* Equal exactly for processes that can open each other's shared memory. It is made of the machine and the
   time it was started, its /dev/shm (containers have one each, unless they are given the same), and the user.
   Where $WEIR_NODE is set, that takes its place. Empty when it is not known. The caller frees it. */
char *host_name(void);

#endif
