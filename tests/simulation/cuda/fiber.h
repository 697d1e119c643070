/* Fibers: stacks between which one host thread changes. */
#ifndef WEIR_TESTS_SIMULATION_CUDA_FIBER_H
#define WEIR_TESTS_SIMULATION_CUDA_FIBER_H

#include <stddef.h>

struct fiber {
  void *at;    /* its stack pointer, while it is not the current one */
  char *stack; /* its lowest byte */
  size_t size;
  void *shadow; /* AddressSanitizer's */
};

/* A stack with a page below that faults. CHECKs. */
void fiber_init(struct fiber *fiber);
void fiber_fini(struct fiber *fiber);
/* The next change to it calls entry, which never returns. */
void fiber_reset(struct fiber *fiber, void (*entry)(void));
/* From the current fiber to another. */
void fiber_change(struct fiber *from, struct fiber *to);
/* The first thing that entry calls. */
void fiber_begin(struct fiber *fiber);

#endif
