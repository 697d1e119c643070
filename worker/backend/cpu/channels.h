/* A tensor in blocks of channels (oneDNN's nChw16c and nChw8c) with a small one that belongs to its channels:
   broadcasts and sums that keep the large tensor's layout. oneDNN would take a hundred times longer for them.
 */
#ifndef WEIR_WORKER_BACKEND_CPU_CHANNELS_H
#define WEIR_WORKER_BACKEND_CPU_CHANNELS_H

#include "worker/backend/cpu/cpu.h"

/* binary.c: out = a op b, where input `whole` has the output's shape and is in such a layout, and the other
   one is broadcast to it. Add, Sub, Mul or Div. False, with nothing added, where the shapes are others. */
bool channels_prepare_broadcast(struct backend_program *program, const struct node *node, int whole);

/* reduce.c: input 0, in such a layout, summed to the output's shape, which has no spatial dimensions. The
 * same. */
bool channels_prepare_sum(struct backend_program *program, const struct node *node);

#endif
