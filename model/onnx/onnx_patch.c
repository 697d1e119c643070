/* Replacing the values of initializers in an ONNX model. */
#include "model/onnx/onnx_patch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/half.h"
#include "common/base/unpack.h"
#include "model/onnx/onnx_pieces.h"

/* A 16-bit initializer keeps its type, which the file's other types agree with. */
static void tensor_fill(Onnx__TensorProto *to, const struct trained_tensor *tensor) {
  bool is_f16 = to->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16;
  bool is_half = is_f16 || to->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16;
  size_t size = tensor->elems * (is_half ? sizeof(uint16_t) : sizeof(float));
  uint8_t *data = mem_resize(NULL, size);
  if (!is_half)
    memcpy(data, tensor->data, size);
  for (uint64_t i = 0; is_half && i < tensor->elems; i++) {
    uint16_t bits = is_f16 ? f16_of_f32(tensor->data[i]) : bf16_of_f32(tensor->data[i]);
    memcpy(data + i * sizeof bits, &bits, sizeof bits);
  }
  onnx_tensor_put(to, data, size);
}

static void replace(Onnx__GraphProto *graph, const struct trained_tensor *tensor) {
  Onnx__TensorProto *found = NULL;
  for (size_t i = 0; i < graph->n_initializer && !found; i++)
    if (strcmp(graph->initializer[i]->name, tensor->name) == 0)
      found = graph->initializer[i];
  CHECK(found);
  tensor_fill(found, tensor);
}

int onnx_patch(void **bytes, size_t *size, const struct trained_tensor *tensors, int n, struct err *err) {
  Onnx__ModelProto *model = message_unpack(&onnx__model_proto__descriptor, *bytes, *size, err);
  size_t patched_size;
  void *patched;
  if (!model)
    return err->code;
  for (int i = 0; i < n; i++)
    replace(model->graph, &tensors[i]);
  patched_size = onnx__model_proto__get_packed_size(model);
  patched = patched_size <= INT_MAX ? malloc(patched_size) : NULL;
  if (patched_size > INT_MAX) {
    err_set(err, ERR_UNSUPPORTED, "with these weights the model has %zu bytes: at most 2 GiB are possible",
            patched_size);
  } else if (patched) {
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
