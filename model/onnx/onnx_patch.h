/* Replacing the values of initializers in an ONNX model. */
#ifndef WEIR_MODEL_ONNX_ONNX_PATCH_H
#define WEIR_MODEL_ONNX_ONNX_PATCH_H

#include "model/export_tensors.h"
#include "onnx.pb-c.h"

/* Replaces *bytes (freed) by the model with the tensors' values in place of its initializers', which all are
   there. Errors: INVALID when it is not ONNX, NO_MEMORY; *bytes stay then. */
int onnx_patch(void **bytes, size_t *size, const struct trained_tensor *tensors, int n, struct err *err);

#endif
