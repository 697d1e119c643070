/* The trained tensors of a model by name: what every export format writes. */
#ifndef WEIR_MODEL_EXPORT_TENSORS_H
#define WEIR_MODEL_EXPORT_TENSORS_H

#include "model/model.h"

/* One f32 initializer that training changed. data points into the caller's vectors. */
struct trained_tensor {
  const char *name;
  const struct shape *shape;
  const float *data;
  uint64_t elems;
};

struct trained_tensors {
  struct model *model;
  struct trained_tensor *tensors; /* in the model's initializer order */
  int n;
};

/* Arguments and errors as in export.h. Released with trained_tensors_fini, also after an error. */
int trained_tensors_init(struct trained_tensors *trained, const void *onnx, size_t onnx_size,
                         const Weir__RunSpec *spec, const float *params, uint64_t n_params,
                         const float *state, uint64_t n_state, struct err *err);
void trained_tensors_fini(struct trained_tensors *trained);

#endif
