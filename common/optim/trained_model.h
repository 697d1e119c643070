/* A model as a run trains it: with all blocks that its servers have. */
#ifndef WEIR_COMMON_OPTIM_TRAINED_MODEL_H
#define WEIR_COMMON_OPTIM_TRAINED_MODEL_H

#include "model/model.h"

/* model_open, and where replicas hand on what their optimizer keeps, BLOCK_KEPT of each value that it keeps
   of the weights of a parameter block: for whoever has to do with the run's blocks, and not just with its
   weights. Errors: those of model_open; INVALID, those of the optimizers. */
int trained_model_open(const struct model_source *source, struct model **out, struct err *err);

#endif
