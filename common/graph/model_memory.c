/* What a model needs in memory. */
#include "common/graph/liveness.h"
#include "common/graph/model.h"

/* A forward and a backward node may each want the weights of a layer in a layout of its own. */
enum { KEPT_COPIES = 2 };

void model_memory(const struct model *model, struct model_memory *out) {
  *out = (struct model_memory){.train_bytes = graph_memory_bytes(model->train),
                               .eval_bytes = graph_memory_bytes(model->eval),
                               .kept_bytes = KEPT_COPIES * model->param_elems * sizeof(float),
                               .gradients_bytes = model->param_elems * sizeof(float)};
  for (int v = 0; v < model->train->n_values; v++) {
    const struct value *value = &model->train->values[v];
    if (value->kind == VALUE_INITIALIZER)
      out->weights_bytes += (uint64_t)shape_elems(&value->shape) * dtype_size(value->dtype);
  }
}
