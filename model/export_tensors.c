/* The trained tensors of a model by name. */
#include "model/export_tensors.h"

#include <stdlib.h>

int trained_tensors_init(struct trained_tensors *trained, const struct trained_model *from, struct err *err) {
  const Weir__RunSpec *spec = from->spec;
  const struct trained_weights *weights = &from->weights;
  uint32_t samples = spec ? spec->train->batch / spec->train->microbatches : 1;
  struct model *model;
  *trained = (struct trained_tensors){0};
  if (model_open(
          &(struct model_source){
              .onnx = from->onnx, .size_bytes = from->onnx_size, .spec = spec, .samples = samples},
          &trained->model, err))
    return err->code;
  model = trained->model;
  if (weights->n_params != model->param_elems || weights->n_state != model->row_elems - METRICS)
    return err_set(
        err, ERR_INVALID,
        "the weights do not fit the model: %llu parameters and %llu statistics, it has %llu and %llu",
        (unsigned long long)weights->n_params, (unsigned long long)weights->n_state,
        (unsigned long long)model->param_elems, (unsigned long long)(model->row_elems - METRICS));
  trained->tensors = mem_new((size_t)model->n_initializers * sizeof *trained->tensors);
  for (int i = 0; i < model->n_initializers; i++) {
    const struct initializer *initializer = &model->initializers[i];
    struct trained_tensor *tensor = &trained->tensors[trained->n];
    if (initializer->param >= 0) {
      const struct param *param = &model->params[initializer->param];
      *tensor =
          (struct trained_tensor){param->name, &param->shape, weights->params + param->begin, param->elems};
      trained->n++;
    } else if (initializer->statistic >= 0) {
      const struct statistic *statistic = &model->statistics[initializer->statistic];
      *tensor = (struct trained_tensor){statistic->name, &statistic->shape,
                                        weights->state + statistic->begin - METRICS, statistic->elems};
      trained->n++;
    }
  }
  return 0;
}

void trained_tensors_fini(struct trained_tensors *trained) {
  model_close(trained->model);
  free(trained->tensors);
}
