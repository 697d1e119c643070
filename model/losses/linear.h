/* Scores that a linear layer computes, for losses that take it in. */
#ifndef WEIR_MODEL_LOSSES_LINEAR_H
#define WEIR_MODEL_LOSSES_LINEAR_H

#include "model/graph/graph.h"

/* From so many scores on (4 MiB) it is worth it: the product of a chunk of rows is slower than of all. */
enum { LINEAR_SCORES_LEAST = 1 << 20 };

/* hidden f32[...,features] x weight f32[features,classes] + bias, as values; bias -1: none. */
struct linear {
  int hidden, weight, bias;
  bool is_transposed; /* weight f32[classes,features] */
};

/* Whether the value is MatMul or Gemm, plus a bias, through reshapes that keep the last dimension; none of
   what lies between is read by anything else, so that it need not be computed. */
bool linear_find(const struct graph *graph, int scores, struct linear *found);

#endif
