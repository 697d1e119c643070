/* Convolutions by Winograd's algorithm of tiles of 2 x 2: our transforms (tiles.h) around oneDNN's products
   of matrices, a range of tiles at a time, so that it stays in the cache. */
#ifndef WEIR_WORKER_BACKEND_CPU_CONV_TILED_H
#define WEIR_WORKER_BACKEND_CPU_CONV_TILED_H

#include "worker/backend/cpu/conv/winograd.h"
#include "worker/backend/cpu/cpu.h"

/* The node in any of the three ways. False, with nothing added, where its shape does not pay, or the
   processor is another. */
bool tiled_prepare(struct backend_program *program, const struct node *node, enum conv_way way,
                   const struct winograd_shape *shape);

#endif
