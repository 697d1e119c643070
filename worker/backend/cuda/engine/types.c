/* Forms of tensors: types and layouts, and which values are kept in which. */
#include <string.h>

#include "worker/backend/cuda/engine/program.h"

enum cuda_type cuda_type_of_dtype(enum dtype dtype) {
  static const enum cuda_type types[] = {
      [DTYPE_F32] = CUDA_F32, [DTYPE_F64] = CUDA_F64, [DTYPE_I32] = CUDA_I32,
      [DTYPE_I64] = CUDA_I64, [DTYPE_U8] = CUDA_U8,   [DTYPE_BOOL] = CUDA_U8};
  CHECK((size_t)dtype < sizeof types / sizeof *types && types[dtype] != CUDA_ANY_TYPE);
  return types[dtype];
}

size_t cuda_type_size(enum cuda_type type) {
  static const size_t sizes[] = {
      [CUDA_F32] = 4, [CUDA_BF16] = 2, [CUDA_F64] = 8, [CUDA_I32] = 4, [CUDA_I64] = 8, [CUDA_U8] = 1};
  return sizes[type];
}

bool cuda_layout_suits(const struct shape *shape, enum cuda_layout layout) {
  if (layout == CUDA_TURNED)
    return shape->rank >= 2;
  return layout == CUDA_DENSE || (shape->rank >= 3 && shape->rank <= 5);
}

bool cuda_layout_is_same(const struct shape *shape, enum cuda_layout a, enum cuda_layout b) {
  int64_t places = 1;
  for (int d = 2; d < shape->rank; d++)
    places *= shape->dim[d];
  if (a == CUDA_TURNED || b == CUDA_TURNED)
    return a == b;
  return a == b || shape->rank < 3 || shape->dim[1] == 1 || places == 1;
}

/* Of results: in bf16 if the program may, and it is worth it. */
static bool is_reduced(const struct backend_program *program, int value) {
  const struct value *v = &program->graph->values[value];
  const struct cuda_value *known = &program->values[value];
  return program->view.options.precision == PRECISION_BF16 && v->kind == VALUE_RESULT &&
         v->dtype == DTYPE_F32 && v->shape.rank >= 2 && !known->is_watched && !known->is_exact;
}

enum cuda_type cuda_type_of(const struct backend_program *program, int value) {
  int buffer = program->values[value].buffer;
  if (buffer >= 0)
    return program->buffers[buffer].type;
  return is_reduced(program, value) ? CUDA_BF16 : cuda_type_of_dtype(program->graph->values[value].dtype);
}

enum cuda_layout cuda_layout_of(const struct backend_program *program, int value) {
  int buffer = program->values[value].buffer;
  return buffer < 0 ? CUDA_DENSE : program->buffers[buffer].layout;
}

static bool is_sum(const struct node *node) {
  return strcmp(node->op->name, "Add") == 0 || strcmp(node->op->name, "Sum") == 0;
}

static bool has_weights_shape(const struct graph *graph, const struct shape *shape) {
  for (int v = 0; v < graph->n_values; v++)
    if (graph->values[v].kind == VALUE_INITIALIZER && graph->values[v].dtype == DTYPE_F32 &&
        shape_is_same(&graph->values[v].shape, shape))
      return true;
  return false;
}

/* Of weights that are read twice the gradient is a sum: what it is made of is one, too. */
void cuda_values_survey(struct backend_program *program) {
  const struct graph *graph = program->graph;
  if (program->view.options.precision != PRECISION_BF16)
    return;
  for (int n = graph->n_nodes - 1; n >= 0; n--) {
    const struct node *node = graph->nodes[n];
    const struct value *out = node_output(graph, node, 0);
    if (!out || !is_sum(node))
      continue;
    const struct cuda_value *sum = &program->values[node->outputs[0]];
    if (!(sum->is_exact || (sum->is_watched && has_weights_shape(graph, &out->shape))))
      continue;
    for (int i = 0; i < node->n_inputs; i++)
      if (node->inputs[i] >= 0)
        program->values[node->inputs[i]].is_exact = true;
  }
}
