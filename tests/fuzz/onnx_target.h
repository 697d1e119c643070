/* What a hostile model file goes through on its way to training, in one process: reading, inference, both
   graphs, differentiation, and one execution of each by the reference kernels. */
#ifndef WEIR_TESTS_FUZZ_ONNX_TARGET_H
#define WEIR_TESTS_FUZZ_ONNX_TARGET_H

#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "worker/backend/backend.h"

extern const struct backend_def backend_ref;

enum { TARGET_SAMPLES = 2, TARGET_ELEMS_MAX = 1 << 18, TARGET_PAIRS_MAX = 1 << 28 };

/* Bytes that fit any type: small f32, integers 0 and 1. */
static void *target_bytes(const struct value *value) {
  int64_t elems = shape_elems(&value->shape);
  void *bytes = calloc((size_t)elems + 1, 8);
  if (!bytes)
    abort();
  for (int64_t i = 0; i < elems; i++)
    switch (value->dtype) {
    case DTYPE_F32:
      ((float *)bytes)[i] = (float)(i % 13 - 6) / 4;
      break;
    case DTYPE_I64:
      ((int64_t *)bytes)[i] = i & 1;
      break;
    case DTYPE_I32:
      ((int32_t *)bytes)[i] = i & 1;
      break;
    default:
      ((uint8_t *)bytes)[i] = i & 1;
    }
  return bytes;
}

static int64_t target_elems_max(const struct graph *graph, const int *values, int n) {
  int64_t max = 0;
  for (int i = 0; i < n; i++)
    if (values[i] >= 0 && shape_elems(&graph->values[values[i]].shape) > max)
      max = shape_elems(&graph->values[values[i]].shape);
  return max;
}

/* Whether an execution is a matter of milliseconds. */
static bool target_is_small(const struct graph *graph) {
  int64_t elems = 0, pairs = 0;
  for (int v = 0; v < graph->n_values; v++) {
    int64_t own = shape_elems(&graph->values[v].shape);
    elems += own;
    if (own < 0 || elems > TARGET_ELEMS_MAX)
      return false;
  }
  for (int n = 0; n < graph->n_nodes; n++) {
    const struct node *node = graph->nodes[n];
    pairs += target_elems_max(graph, node->inputs, node->n_inputs) *
             target_elems_max(graph, node->outputs, node->n_outputs);
    if (pairs > TARGET_PAIRS_MAX)
      return false;
  }
  return true;
}

static void target_execute(const struct graph *graph, int watched) {
  struct backend_program *program = NULL;
  struct err err = ERR_NONE;
  void **inputs;
  if (!target_is_small(graph) ||
      backend_ref.prepare(&(struct backend_request){.graph = graph, .watched = &watched, .n_watched = 1},
                          &program, &err))
    return;
  inputs = calloc((size_t)graph->n_inputs + 1, sizeof *inputs);
  for (int i = 0; i < graph->n_inputs; i++)
    inputs[i] = target_bytes(&graph->values[graph->inputs[i]]);
  backend_ref.run(program, &(struct backend_run){.inputs = (const void *const *)inputs}, &err);
  for (int i = 0; i < graph->n_inputs; i++)
    free(inputs[i]);
  free(inputs);
  backend_ref.release(program);
}

static inline void onnx_target(const uint8_t *bytes, size_t size) {
  struct err err = ERR_NONE;
  struct model *model;
  if (model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .samples = TARGET_SAMPLES}, &model,
                 &err))
    return;
  target_execute(model->train, model->train_loss.loss_sum);
  target_execute(model->eval, model->eval_loss.loss_sum);
  model_close(model);
}

#endif
