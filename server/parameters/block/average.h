/* The exponential moving average of the weights (train.average), to the bit what
   torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(decay) holds in f32 when it is updated after
   each step. It begins as the weights of version 0, and its first update is a copy. */
#ifndef WEIR_SERVER_PARAMETERS_BLOCK_AVERAGE_H
#define WEIR_SERVER_PARAMETERS_BLOCK_AVERAGE_H

#include <stdint.h>

#include "spec.pb-c.h"

struct average_update {
  uint64_t version; /* > 0, of the weights */
  uint32_t elems;
  const float *weights; /* f32[elems] */
  const float *average; /* f32[elems] of the version before */
  float *next;          /* f32[elems] of this version; may be `average` */
};

void average_update(const Weir__AverageSpec *spec, const struct average_update *update);

#endif
