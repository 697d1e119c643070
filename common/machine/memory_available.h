/* How much memory this process may still take. */
#ifndef WEIR_COMMON_MACHINE_MEMORY_AVAILABLE_H
#define WEIR_COMMON_MACHINE_MEMORY_AVAILABLE_H

#include <stdint.h>

/* Bytes: what the kernel could give without swapping, or less where the limit of a control group (version 2
   or 1) of this process comes first; caches that it would drop count as free. UINT64_MAX where nothing says.
   root: before the paths of /proc and /sys; "" but in tests. */
uint64_t memory_available_bytes(const char *root);

/* Bytes of memory that this process has and that are no file's; 0 where nothing says. root: likewise. */
uint64_t memory_own_bytes(const char *root);

#endif
