/* The name of what processes share where they read each other's segments. */
#ifndef WEIR_COMMON_SHARE_SHARE_HOST_H
#define WEIR_COMMON_SHARE_SHARE_HOST_H

/* Equal exactly for processes that can map each other's segments: it is made of the machine and the time it
   was started, the namespace of processes and the user (segment.h). Empty where shared memory is turned off,
   or it is not known. The caller frees it. */
char *share_host(void);

#endif
