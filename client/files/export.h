/* Trained weights as files: an ONNX model in inference form, or safetensors by initializer name. */
#ifndef WEIR_CLIENT_FILES_EXPORT_H
#define WEIR_CLIENT_FILES_EXPORT_H

#include "model/export_tensors.h"

/* Both write `path` (a file beside it, then renamed, so that no half file is ever seen under that name).
   Errors: INVALID when the weights' lengths do not fit the model; IO naming the path. */

/* The submitted model with its trained initializers and running statistics replaced, batch norm on the latter
   and dropout gone. */
int export_onnx(const struct trained_model *model, const char *path, struct err *err);

/* Every f32 initializer that training changed, under its name. */
int export_safetensors(const struct trained_model *model, const char *path, struct err *err);

#endif
