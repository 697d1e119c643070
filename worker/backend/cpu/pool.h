/* The pool over all spatial dimensions, for means over them. */
#ifndef WEIR_WORKER_BACKEND_CPU_POOL_H
#define WEIR_WORKER_BACKEND_CPU_POOL_H

#include "worker/backend/cpu/cpu.h"

/* X [n,c,...] -> Y [n,c,1,...], or [n,c] where the node drops the 1s. As a kernel's prepare. */
bool pool_prepare_global(struct backend_program *program, const struct node *node);

#endif
