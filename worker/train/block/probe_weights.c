/* The weights of the probe. */
#include "worker/train/block/probe_weights.h"

#include <math.h>
#include <string.h>

#include "common/agree/random.h"

void probe_weights(const struct model *model, const bool *wanted, float *params) {
  for (int p = 0; p < model->n_params; p++) {
    const struct param *param = &model->params[p];
    const struct value *value = &model->train->values[param->train_value];
    uint64_t key = random_key((uint64_t)p, param->elems, 0, 0), row = param->elems;
    float *to = params + param->begin, width;
    if (wanted && !wanted[p])
      continue;
    if (value->data) {
      memcpy(to, value->data, param->elems * sizeof *to);
      continue;
    }
    row /= (uint64_t)param->shape.dim[0];
    width = sqrtf(12.0f / (float)row);
    for (uint64_t i = 0; i < param->elems; i++)
      to[i] = (random_uniform(key, i) - 0.5f) * width;
  }
}
