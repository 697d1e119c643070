/* What follows a matrix product and can be done while it is written. cuBLASLt's GELU is that by the
   hyperbolic tangent. A value that only what follows reads is then never in memory. */
#include "worker/backend/cuda/product/epilogue.h"

#include <string.h>

#include "worker/backend/cuda/engine/program.h"

static const int KEPT_COLUMNS = 8; /* cuBLASLt: rows of what it keeps are multiples of so many elements */

bool cuda_is_bias(const struct value *value, int64_t columns) {
  return value->shape.rank > 0 && value->shape.dim[value->shape.rank - 1] == columns &&
         shape_elems(&value->shape) == columns;
}

/* The nodes that read a value, each as often as it does. Returns how many; the first `max` are noted. */
static int readers_of(const struct graph *graph, int value, const struct node **readers, int max) {
  int n = 0;
  for (int k = 0; k < graph->n_nodes; k++)
    for (int i = 0; i < graph->nodes[k]->n_inputs; i++)
      if (graph->nodes[k]->inputs[i] == value && n++ < max)
        readers[n - 1] = graph->nodes[k];
  return n;
}

static bool is_op(const struct node *node, const char *name) {
  return strcmp(node->op->name, name) == 0;
}

static bool is_gelu(const struct node *node, const char *name) {
  return is_op(node, name) && strcmp(node_attr_string(node, "approximate", "none"), "tanh") == 0;
}

static bool is_view(const struct node *node) {
  return (node->op->flags & OP_ALIAS) && node->n_outputs == 1 && node->outputs[0] >= 0;
}

/* The other operand of an Add, where it is a bias that is known by now; -1: it is none. */
static int bias_of(const struct graph *graph, const struct node *add, int value, int64_t columns) {
  int other = add->inputs[add->inputs[0] == value];
  const struct value *bias = &graph->values[other];
  bool is_there = bias->kind != VALUE_RESULT && bias->dtype == DTYPE_F32;
  return is_there && cuda_is_bias(bias, columns) &&
                 shape_is_same(&graph->values[value].shape, &node_output(graph, add, 0)->shape)
             ? other
             : -1;
}

static void fusion_take(struct cuda_fusion *fusion, const struct node *node) {
  fusion->nodes[fusion->n_nodes++] = node->index;
  fusion->out = node->outputs[0];
}

/* The last of what is fused: an activation, if there is one. */
static void take_activation(struct cuda_fusion *fusion, const struct backend_program *program, int value,
                            int64_t columns) {
  const struct node *readers[2] = {NULL};
  int n = readers_of(program->graph, value, readers, 2);
  if (fusion->bias < 0 || n < 1 || n > 2)
    return;
  if (n == 1 && is_op(readers[0], "Relu")) {
    fusion->epilogue = CUDA_EPILOGUE_BIAS_RELU;
    fusion_take(fusion, readers[0]);
  } else if (n == 1 && is_gelu(readers[0], "Gelu")) {
    fusion->epilogue = CUDA_EPILOGUE_BIAS_GELU;
    fusion_take(fusion, readers[0]);
  } else if (n == 2 && is_gelu(readers[0], "Gelu") && is_gelu(readers[1], "GeluGrad") &&
             columns % KEPT_COLUMNS == 0 &&
             cuda_type_of(program, value) == cuda_type_of(program, readers[0]->outputs[0])) {
    fusion->epilogue = CUDA_EPILOGUE_BIAS_GELU_KEEP;
    fusion->kept = value;
    fusion_take(fusion, readers[0]);
  }
}

struct cuda_fusion cuda_fusion_find(const struct backend_program *program, const struct node *node, int bias,
                                    int64_t columns) {
  const struct graph *graph = program->graph;
  struct cuda_fusion fusion = {.bias = bias, .out = node->outputs[0], .kept = -1};
  while (!program->values[fusion.out].is_watched && fusion.n_nodes < EPILOGUE_NODES_MAX - 1) {
    const struct node *reader = NULL;
    int value = fusion.out, found;
    if (readers_of(graph, value, &reader, 1) != 1)
      break;
    if (is_view(reader)) {
      fusion_take(&fusion, reader);
    } else if (is_op(reader, "Add") && fusion.bias < 0 &&
               (found = bias_of(graph, reader, value, columns)) >= 0) {
      fusion.bias = found;
      fusion_take(&fusion, reader);
    } else {
      break;
    }
  }
  if (fusion.bias >= 0)
    fusion.epilogue = CUDA_EPILOGUE_BIAS;
  if (!program->values[fusion.out].is_watched)
    take_activation(&fusion, program, fusion.out, columns);
  return fusion;
}
