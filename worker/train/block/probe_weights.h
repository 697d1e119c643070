/* The weights of the probe, which a worker computes before it has any of the run's. */
#ifndef WEIR_WORKER_TRAIN_BLOCK_PROBE_WEIGHTS_H
#define WEIR_WORKER_TRAIN_BLOCK_PROBE_WEIGHTS_H

#include "model/model.h"

/* Fills params (f32[param_elems]): with the initial values that the model's file holds, and where it has them
   in pieces with draws from counters. Those depend on the tensor's place and shape alone: uniform around 0,
   with variance 1 / fan-in where a row of the tensor is what one output is computed from. Those that are not
   wanted (bool[n_params]; NULL: all are) are left as they are. */
void probe_weights(const struct model *model, const bool *wanted, float *params);

#endif
