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

/* What training changes, as the coordinator's GetWeights sends it; model/model.h has the order. */
struct trained_weights {
  float *params; /* f32[n_params]: the flat parameter vector */
  uint64_t n_params;
  float *state; /* f32[n_state]: the running statistics, without the metrics before them */
  uint64_t n_state;
};

/* A model and its spec as submitted. */
struct submitted_model {
  const void *onnx;
  size_t onnx_size;
  const Weir__RunSpec *spec;  /* NULL: none, the file alone says what is trained */
  struct piece_source pieces; /* that the file names; read NULL where it names none */
};

/* A model and its spec as submitted, and what training made of its weights. */
struct trained_model {
  const void *onnx;
  size_t onnx_size;
  const Weir__RunSpec *spec; /* NULL: none, the file alone says what is trained */
  struct trained_weights weights;
  struct piece_source pieces; /* as in submitted_model */
};

struct trained_tensors {
  struct model *model;
  struct trained_tensor *tensors; /* in the model's initializer order */
  int n;
};

/* from outlives the tensors. Errors: those of model_open; INVALID when the weights' lengths do not fit the
   model. Released with trained_tensors_fini, also after an error. */
int trained_tensors_init(struct trained_tensors *trained, const struct trained_model *from, struct err *err);
void trained_tensors_fini(struct trained_tensors *trained);

#endif
