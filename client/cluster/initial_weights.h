/* The weights of version 0: those that a model was submitted with. */
#ifndef WEIR_CLIENT_CLUSTER_INITIAL_WEIGHTS_H
#define WEIR_CLIENT_CLUSTER_INITIAL_WEIGHTS_H

#include "model/export_tensors.h"

/* As GetWeights sends them: the flat parameter vector, then the running statistics. *flat is the caller's.
   Errors: those of model_open and of the model's pieces; CORRUPT without a spec; NO_MEMORY. */
int initial_weights(const struct submitted_model *model, struct buffer **flat, struct err *err);

#endif
