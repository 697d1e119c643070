/* Weights that the exporter copied are tied again: only in models of PyTorch's exporter since 2.5, which
   names what it computes itself "val_N". */
#include "model/onnx/model_tie.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

/* A matrix of f32 and its data. */
struct matrix {
  size_t rows, cols;
  const uint8_t *data;
  uint8_t *loaded; /* data, where it came from an external file */
};

/* All but the data. */
static bool matrix_find(struct external_data *external, const Onnx__TensorProto *tensor, struct matrix *out) {
  struct external_range range;
  struct err err = ERR_NONE;
  size_t size = tensor->raw_data.len;
  if (!tensor->name || tensor->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT || tensor->n_dims != 2 ||
      tensor->dims[0] <= 1 || tensor->dims[1] <= 1)
    return false;
  if (tensor_is_external(tensor)) {
    if (external_data_find(external, tensor, &range, &err))
      return false;
    size = range.size_bytes;
  } else if (!tensor->has_raw_data) {
    return false;
  }
  *out = (struct matrix){.rows = (size_t)tensor->dims[0], .cols = (size_t)tensor->dims[1]};
  return size / sizeof(uint32_t) / out->rows == out->cols && size % (sizeof(uint32_t) * out->rows) == 0;
}

/* What cannot be read is not tied: that it cannot be read is found later. */
static bool matrix_load(struct external_data *external, const Onnx__TensorProto *tensor, struct matrix *out) {
  struct external_range range;
  struct err err = ERR_NONE;
  if (!matrix_find(external, tensor, out))
    return false;
  out->data = tensor->raw_data.data;
  if (!tensor_is_external(tensor))
    return true;
  external_data_find(external, tensor, &range, &err);
  out->data = out->loaded = malloc(range.size_bytes);
  if (out->loaded && external_data_read(external, range, out->loaded, &err) == 0)
    return true;
  free(out->loaded);
  out->loaded = NULL;
  return false;
}

static bool is_exporters(const Onnx__TensorProto *tensor) {
  return strncmp(tensor->name, "val_", 4) == 0 && isdigit((unsigned char)tensor->name[4]);
}

/* Zeros are equal to the transpose of any other zeros. */
static bool is_uniform(const struct matrix *matrix) {
  return memcmp(matrix->data, matrix->data + 4, matrix->rows * matrix->cols * sizeof(uint32_t) - 4) == 0;
}

static bool is_transpose_of(const struct matrix *copy, const struct matrix *original) {
  for (size_t r = 0; r < copy->rows; r++)
    for (size_t c = 0; c < copy->cols; c++)
      if (memcmp(copy->data + (r * copy->cols + c) * 4, original->data + (c * copy->rows + r) * 4, 4) != 0)
        return false;
  return true;
}

static const Onnx__TensorProto *find_original(struct external_data *external, const Onnx__GraphProto *graph,
                                              const Onnx__TensorProto *tensor) {
  const Onnx__TensorProto *found = NULL;
  struct matrix copy, original;
  if (!matrix_load(external, tensor, &copy))
    return NULL;
  for (size_t i = 0; i < graph->n_initializer && !found && !is_uniform(&copy); i++) {
    const Onnx__TensorProto *other = graph->initializer[i];
    if (other == tensor || !matrix_find(external, other, &original) || is_exporters(other) ||
        original.rows != copy.cols || original.cols != copy.rows || !matrix_load(external, other, &original))
      continue;
    found = is_transpose_of(&copy, &original) ? other : NULL;
    free(original.loaded);
  }
  free(copy.loaded);
  return found;
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

bool model_tie(Onnx__GraphProto *graph, struct external_data *external) {
  size_t kept = 0, n = graph->n_initializer;
  bool *is_tied = mem_new(n + 1);
  for (size_t i = 0; i < n; i++) {
    const Onnx__TensorProto *tensor = graph->initializer[i], *original = NULL;
    if (tensor->name && is_exporters(tensor))
      original = find_original(external, graph, tensor);
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
