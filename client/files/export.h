/* Trained weights as files: an ONNX model in inference form, or safetensors by initializer name. */
#ifndef WEIR_CLIENT_FILES_EXPORT_H
#define WEIR_CLIENT_FILES_EXPORT_H

#include "model/export_tensors.h"

/* Weights as they come: the flat parameter vector, then the running statistics. */
struct weights_source {
  /* The next ones to `to`. Errors: CORRUPT when fewer are left; those of where they come from. */
  int (*read)(void *user, float *to, uint64_t elems, struct err *err);
  /* After all: CORRUPT when there are more. */
  int (*end)(void *user, struct err *err);
  void (*close)(void *user);
  void *user;
};

/* Both read the weights from their begin to their end, and write `path` (a file beside it, then renamed, so
   that no half file is ever seen under that name). Errors: those of weights and pieces; IO naming the path.
 */
struct export_source {
  struct submitted_model model;
  struct weights_source weights;
  uint64_t bytes_max; /* of an ONNX file with everything in it; 0: 2 GiB */
};

/* The submitted model with its trained initializers and running statistics replaced, batch norm on the latter
   and dropout gone. Above 2 GiB, which no ONNX file can hold, its tensors lie in PATH.data, as external data;
   they are written as they come. */
int export_onnx(const struct export_source *source, const char *path, struct err *err);

/* Every f32 initializer that training changed, under its name, written as it comes. */
int export_safetensors(const struct export_source *source, const char *path, struct err *err);

#endif
