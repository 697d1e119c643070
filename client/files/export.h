/* Trained weights as files: an ONNX model in inference form, or safetensors by initializer name. */
#ifndef WEIR_CLIENT_FILES_EXPORT_H
#define WEIR_CLIENT_FILES_EXPORT_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "spec.pb-c.h"

/* Both write `path` (a file beside it, then renamed, so that no half file is ever seen under that name).
   onnx, spec: as submitted. params f32[n_params]: the flat parameter vector. state f32[n_state]: the
   running statistics, without the metrics before them. They are as the coordinator's GetWeights sends them,
   see model/model.h for their order. Errors: INVALID when the lengths do not fit the model; IO naming
   the path. */

/* The submitted model with its trained initializers and running statistics replaced, batch norm on the latter
   and dropout gone. */
int export_onnx(const void *onnx, size_t onnx_size, const Weir__RunSpec *spec, const float *params,
                uint64_t n_params, const float *state, uint64_t n_state, const char *path, struct err *err);

/* Every f32 initializer that training changed, under its name. */
int export_safetensors(const void *onnx, size_t onnx_size, const Weir__RunSpec *spec, const float *params,
                       uint64_t n_params, const float *state, uint64_t n_state, const char *path,
                       struct err *err);

#endif
