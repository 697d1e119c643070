/* Broadcasts and sums between a tensor in blocks of channels (oneDNN's nChw16c and nChw8c) and a small one
   with an element for each channel. They keep the large tensor's layout; oneDNN would take a hundred times
   longer. */
#ifndef WEIR_WORKER_BACKEND_CPU_CHANNELS_H
#define WEIR_WORKER_BACKEND_CPU_CHANNELS_H

#include "worker/backend/cpu/cpu.h"

/* binary.c: out = a op b, where input `whole` has the output's shape and is in such a layout, and the other
   one is broadcast to it. Add, Sub, Mul or Div. False, with nothing added, where the shapes are others. */
bool channels_prepare_broadcast(struct backend_program *program, const struct node *node, int whole);

/* reduce.c: input 0, in such a layout, summed over the spatial dimensions at least. False as above. */
bool channels_prepare_sum(struct backend_program *program, const struct node *node);

#endif
