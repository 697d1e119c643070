/* Weights that the exporter copied are tied again. */
#ifndef WEIR_MODEL_ONNX_MODEL_TIE_H
#define WEIR_MODEL_ONNX_MODEL_TIE_H

#include <stdbool.h>

#include "model/onnx/external_data.h"

/* PyTorch's exporter stores the transpose of a weight as an initializer of its own where it can, which unties
   weights that two layers share (a token embedding and the output layer). Each initializer f32[n,m] that
   holds the transpose, bit for bit, of another one f32[m,n] which nodes read too becomes the result of a
   Transpose node under the same name. True if there was one. The model's data is in it (raw), or in
   external; of external data at most two tensors are in memory at a time. */
bool model_tie(Onnx__GraphProto *graph, struct external_data *external);

#endif
