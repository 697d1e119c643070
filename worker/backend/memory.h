/* The memory of programs. */
#ifndef WEIR_WORKER_BACKEND_MEMORY_H
#define WEIR_WORKER_BACKEND_MEMORY_H

#include <stddef.h>

#include "common/base/err.h"

/* Zeroed and 64-byte aligned. Its pages are touched at once, so that the next caller knows what is left, and
   no process is killed in the middle of a run for memory that it was promised. Freed with free. Any thread;
   one at a time. Errors (NULL): NO_MEMORY, with what is needed and what is available. */
void *backend_memory_new(size_t size_bytes, struct err *err);

/* Whole pages of their own, so that they can be pinned; not set. NULL when out of memory. Freed with free. */
void *backend_pages_new(size_t size_bytes);

#endif
