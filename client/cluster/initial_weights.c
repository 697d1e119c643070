/* The weights of version 0. */
#include "client/cluster/initial_weights.h"

#include <stdlib.h>
#include <string.h>

int initial_weights(const void *onnx, size_t onnx_size, const Weir__RunSpec *spec, struct buffer **flat,
                    struct err *err) {
  struct model *model = NULL;
  uint64_t n_state;
  float *params, *row = NULL;
  if (!spec || !spec->train)
    return err_set(err, ERR_CORRUPT, "the run has no spec");
  if (model_open(&(struct model_source){.onnx = onnx,
                                        .size_bytes = onnx_size,
                                        .spec = spec,
                                        .samples = spec->train->batch / spec->train->microbatches},
                 &model, err))
    return err->code;
  n_state = model->row_elems - METRICS;
  *flat = buffer_new((model->param_elems + n_state) * sizeof(float));
  row = malloc(model->row_elems * sizeof(float));
  if (!*flat || !row) {
    err_set(err, ERR_NO_MEMORY, "no memory for the weights");
  } else {
    params = (*flat)->data;
    for (uint32_t b = 0; b < model->n_blocks; b++)
      model_initial_block(model, b, (b < model->n_param_blocks ? params : row) + model->blocks[b].begin);
    memcpy(params + model->param_elems, row + METRICS, n_state * sizeof(float));
  }
  free(row);
  model_close(model);
  return err->code;
}
