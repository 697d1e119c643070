/* Replacing the values of initializers in an ONNX model. */
#include "client/onnx_patch.h"

#include <stdlib.h>
#include <string.h>

#include "common/unpack.h"

void onnx_replace(Onnx__GraphProto *graph, const struct trained_tensor *tensor) {
  size_t size = tensor->elems * sizeof(float);
  Onnx__TensorProto *found = NULL;
  for (size_t i = 0; i < graph->n_initializer && !found; i++)
    if (strcmp(graph->initializer[i]->name, tensor->name) == 0)
      found = graph->initializer[i];
  CHECK(found);
  free(found->float_data);
  found->float_data = NULL;
  found->n_float_data = 0;
  found->has_raw_data = 1;
  found->raw_data.len = size;
  found->raw_data.data = mem_resize(found->raw_data.data, size);
  memcpy(found->raw_data.data, tensor->data, size);
}

int onnx_patch(void **bytes, size_t *size, const struct trained_tensor *tensors, int n, struct err *err) {
  Onnx__ModelProto *model = message_unpack(&onnx__model_proto__descriptor, *bytes, *size, err);
  size_t patched_size;
  void *patched;
  if (!model)
    return err->code;
  for (int i = 0; i < n; i++)
    onnx_replace(model->graph, &tensors[i]);
  patched_size = onnx__model_proto__get_packed_size(model);
  patched = malloc(patched_size);
  if (patched) {
    onnx__model_proto__pack(model, patched);
    free(*bytes);
    *bytes = patched;
    *size = patched_size;
  } else {
    err_set(err, ERR_NO_MEMORY, "no memory for a model of %zu bytes", patched_size);
  }
  onnx__model_proto__free_unpacked(model, NULL);
  return err->code;
}
