/* Multi-head attention (Vaswani et al., 2017). */
#ifndef WEIR_CLIENT_MODELS_ATTENTION_H
#define WEIR_CLIENT_MODELS_ATTENTION_H

#include "client/models/layers.h"

struct attention {
  int64_t width, heads; /* width is a multiple of heads */
  const char *mask;     /* f32[tokens,tokens], added to the scores; NULL: none */
  double dropout;       /* share of the weights that a training step drops */
};

/* The part without weights: f32[batch,tokens,3*width], query, key and value beside each other, ->
   f32[batch,tokens,width]. Weir trains it as one node where there is no dropout. */
const char *layer_attention(struct onnx_writer *writer, const char *name, const char *input,
                            const struct attention *attention);

/* f32[tokens,tokens]: 0 where a token may look, at itself and before, and minus infinity behind. Computed in
   the graph, so that the file stays small. */
const char *layer_causal_mask(struct onnx_writer *writer, const char *name, int64_t tokens);

#endif
