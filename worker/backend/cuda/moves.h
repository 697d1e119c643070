/* Steps that are made of fills and copies, for the ops that only move elements. */
#ifndef WEIR_WORKER_BACKEND_CUDA_MOVES_H
#define WEIR_WORKER_BACKEND_CUDA_MOVES_H

#include "worker/backend/cuda/copy.h"
#include "worker/backend/cuda/cuda.h"

struct move {
  int from, to; /* arguments of the step; from -1: `to` is filled with zeros */
  struct cuda_copy copy;
};

struct moves {
  int n;
  struct move move[];
};

/* A step of up to `n` moves. usage: moves_new, cuda_read and cuda_write, moves_add, moves_end. */
struct cuda_step *moves_new(struct backend_program *program, const struct node *node, int n);
/* The copy of another move, whose dimensions are the caller's to add. */
struct cuda_copy *moves_add(struct cuda_step *step, int from, int to);
void moves_add_zeros(struct cuda_step *step, int to);
void moves_end(struct backend_program *program, struct cuda_step *step);

/* The layout in which a node works whose tensors are all of one rank: that in which its input 0 is. */
enum cuda_layout moves_layout(const struct backend_program *program, const struct node *node);

#endif
