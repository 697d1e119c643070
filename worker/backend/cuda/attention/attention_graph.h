/* ScaledAttention and its gradient as the graphs of operations that cuDNN's fused engines know: exactly these
   operations, in bf16 with sums in f32, in this order. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ATTENTION_ATTENTION_GRAPH_H
#define WEIR_WORKER_BACKEND_CUDA_ATTENTION_ATTENTION_GRAPH_H

#include "worker/backend/cuda/attention/dnn_graph.h"

struct attention_kind {
  int64_t batch, heads, t, s, d, e;
  float scale;
  bool is_causal; /* row i sees columns 0 to i */
  bool is_grad;
};

/* Tensors of batch * heads dense matrices, bf16 but for the last four. cuDNN wants keys with the elements of
   each side by side, so turned round. */
enum attention_role {
  ATTENTION_QUERY,      /* [t, d] */
  ATTENTION_KEY,        /* [s, d] */
  ATTENTION_VALUE,      /* [s, e] */
  ATTENTION_Y,          /* [t, e] */
  ATTENTION_DY,         /* [t, e] */
  ATTENTION_DQUERY,     /* [t, d] */
  ATTENTION_DKEY,       /* [s, d] */
  ATTENTION_DVALUE,     /* [s, e] */
  ATTENTION_SUMS,       /* f32[t]: logarithms of the sums */
  ATTENTION_ALONG,      /* f32[t]: scratch of the gradient */
  ATTENTION_DQUERY_SUM, /* f32[t, d]: scratch of a gradient that is_fast */
  ATTENTION_ROLES
};

struct attention_graph {
  struct dnn_graph *dnn;
  int tensors[ATTENTION_ROLES]; /* their numbers in the graph; -1: it has none */
};

/* is_fast: the gradient of queries may be added in any order, for less scratch. fini frees the graph. */
void attention_graph_init(struct attention_graph *graph, const struct attention_kind *kind, bool is_fast);
void attention_graph_fini(struct attention_graph *graph);

#endif
