/* What a model needs: memory, and multiply-adds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/graph/liveness.h"
#include "model/graph/op.h"
#include "model/model.h"

/* Forward and backward each want the filters of a convolution in a layout of their own. */
enum { FILTER_COPIES = 2 };

static uint64_t value_bytes(const struct value *value) {
  return (uint64_t)shape_elems(&value->shape) * dtype_size(value->dtype);
}

/* Bytes of the trained filters of convolutions. */
static uint64_t filter_bytes(const struct model *model) {
  bool *is_filter = mem_new((size_t)model->n_params);
  uint64_t bytes = 0;
  for (int n = 0; n < model->eval->n_nodes; n++) {
    const struct node *node = model->eval->nodes[n];
    const struct value *filter = node_input(model->eval, node, 1);
    bool is_conv = strcmp(node->op->name, "Conv") == 0 || strcmp(node->op->name, "ConvTranspose") == 0;
    if (!is_conv || !filter || filter->param < 0 || is_filter[filter->param])
      continue;
    is_filter[filter->param] = true;
    bytes += value_bytes(filter);
  }
  free(is_filter);
  return bytes;
}

void model_memory(const struct model *model, struct model_memory *out) {
  *out = (struct model_memory){.train_bytes = graph_memory_bytes(model->train),
                               .eval_bytes = graph_memory_bytes(model->eval),
                               .kept_bytes = FILTER_COPIES * filter_bytes(model),
                               .gradients_bytes = model->param_elems * sizeof(float)};
  for (int v = 0; v < model->train->n_values; v++) {
    const struct value *value = &model->train->values[v];
    if (value->kind != VALUE_INITIALIZER)
      continue;
    out->weights_bytes += value_bytes(value);
    out->file_bytes += value->param < 0 || !value->pieces ? value_bytes(value) : 0;
  }
}

uint64_t model_multiply_adds(const struct model *model, int64_t samples) {
  double all = 0;
  for (int n = 0; n < model->eval->n_nodes; n++) {
    const struct node *node = model->eval->nodes[n];
    all += node->op->multiply_adds ? node->op->multiply_adds(model->eval, node) : 0;
  }
  return (uint64_t)fmin(fmax(all / (double)samples, 1), 0x1p53);
}
