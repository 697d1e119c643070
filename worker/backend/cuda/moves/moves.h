/* What ops that only move elements share. */
#ifndef WEIR_WORKER_BACKEND_CUDA_MOVES_MOVES_H
#define WEIR_WORKER_BACKEND_CUDA_MOVES_MOVES_H

#include "worker/backend/cuda/engine/cuda.h"

/* The layout for a node whose tensors are all of one rank: its input 0's. */
enum cuda_layout moves_layout(const struct backend_program *program, const struct node *node);

/* The attention room's answer: whether a value is best made CUDA_TURNED, because only attention by cuDNN
   reads it, as its keys. */
bool cuda_attention_wants_turned(struct backend_program *program, int value);

#endif
