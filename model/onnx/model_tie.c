/* Weights that the exporter copied are tied again: only in models of PyTorch's exporter since 2.5, which
   names what it computes itself "val_N". */
#include "model/onnx/model_tie.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

static bool is_matrix(const Onnx__TensorProto *tensor) {
  return tensor->name && tensor->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT && tensor->n_dims == 2 &&
         tensor->dims[0] > 1 && tensor->dims[1] > 1 && tensor->has_raw_data &&
         tensor->raw_data.len / sizeof(uint32_t) / (size_t)tensor->dims[0] == (size_t)tensor->dims[1] &&
         tensor->raw_data.len % (sizeof(uint32_t) * (size_t)tensor->dims[0]) == 0;
}

static bool is_exporters(const Onnx__TensorProto *tensor) {
  return strncmp(tensor->name, "val_", 4) == 0 && isdigit((unsigned char)tensor->name[4]);
}

/* Zeros are equal to the transpose of any other zeros. */
static bool is_uniform(const Onnx__TensorProto *tensor) {
  const uint8_t *bytes = tensor->raw_data.data;
  return memcmp(bytes, bytes + 4, tensor->raw_data.len - 4) == 0;
}

static bool is_transpose_of(const Onnx__TensorProto *copy, const Onnx__TensorProto *original) {
  const uint8_t *from = original->raw_data.data, *to = copy->raw_data.data;
  size_t rows = (size_t)copy->dims[0], cols = (size_t)copy->dims[1];
  if (copy->dims[0] != original->dims[1] || copy->dims[1] != original->dims[0])
    return false;
  for (size_t r = 0; r < rows; r++)
    for (size_t c = 0; c < cols; c++)
      if (memcmp(to + (r * cols + c) * 4, from + (c * rows + r) * 4, 4) != 0)
        return false;
  return true;
}

static const Onnx__TensorProto *find_original(const Onnx__GraphProto *graph, const Onnx__TensorProto *copy) {
  for (size_t i = 0; i < graph->n_initializer; i++) {
    const Onnx__TensorProto *other = graph->initializer[i];
    if (other != copy && is_matrix(other) && !is_exporters(other) && is_transpose_of(copy, other))
      return other;
  }
  return NULL;
}

/* A Transpose of the original whose result has the copy's name. */
static Onnx__NodeProto *transpose_new(const Onnx__TensorProto *original, const char *name) {
  Onnx__NodeProto *node = mem_new(sizeof *node);
  onnx__node_proto__init(node);
  node->name = mem_printf("tied_%s", name);
  node->op_type = mem_strdup("Transpose");
  node->n_input = node->n_output = 1;
  node->input = mem_new(sizeof *node->input);
  node->output = mem_new(sizeof *node->output);
  node->input[0] = mem_strdup(original->name);
  node->output[0] = mem_strdup(name);
  return node;
}

static void node_prepend(Onnx__GraphProto *graph, Onnx__NodeProto *node) {
  graph->node = mem_resize(graph->node, (graph->n_node + 1) * sizeof *graph->node);
  memmove(graph->node + 1, graph->node, graph->n_node * sizeof *graph->node);
  graph->node[0] = node;
  graph->n_node++;
}

bool model_tie(Onnx__GraphProto *graph) {
  size_t kept = 0, n = graph->n_initializer;
  bool *is_tied = mem_new(n + 1);
  for (size_t i = 0; i < n; i++) {
    const Onnx__TensorProto *tensor = graph->initializer[i], *original = NULL;
    if (is_matrix(tensor) && is_exporters(tensor) && !is_uniform(tensor))
      original = find_original(graph, tensor);
    if (original)
      node_prepend(graph, transpose_new(original, tensor->name));
    is_tied[i] = original != NULL;
  }
  for (size_t i = 0; i < n; i++)
    if (is_tied[i])
      onnx__tensor_proto__free_unpacked(graph->initializer[i], NULL);
    else
      graph->initializer[kept++] = graph->initializer[i];
  graph->n_initializer = kept;
  free(is_tied);
  return kept < n;
}
