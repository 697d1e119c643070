/* The weights of version 0: those that a model was submitted with. */
#ifndef WEIR_CLIENT_CLUSTER_INITIAL_WEIGHTS_H
#define WEIR_CLIENT_CLUSTER_INITIAL_WEIGHTS_H

#include "model/model.h"

/* As GetWeights sends them: the flat parameter vector, then the running statistics. *flat is the caller's.
   Errors: those of model_open; CORRUPT without a spec; NO_MEMORY. */
int initial_weights(const void *onnx, size_t onnx_size, const Weir__RunSpec *spec, struct buffer **flat,
                    struct err *err);

#endif
