/* Initializers that PyTorch does not train: buffers, and what the exporter computed ahead (a causal mask, a
   scale). Only files whose exporter tells parameters apart are looked at; in others every f32 initializer
   with a gradient is a weight.

   The exporter also computes ahead what depends on parameters alone, unless it is told `optimize=False`: the
   transpose of a linear layer's weight, the rows of a position embedding. Those are weights still, and known
   by their place: a matrix, filter or slope that data is multiplied with, or the result of an embedding. */
#include <stdlib.h>
#include <string.h>

#include "model/graph/op.h"
#include "model/model_parts.h"

/* inputs: a bit for each input that takes weights. */
static const struct {
  const char *op;
  unsigned inputs;
} weight_places[] = {
    {"MatMul", 3}, {"Gemm", 7},    {"Conv", 6}, {"ConvTranspose", 6}, {"Einsum", 255},
    {"Gather", 1}, {"LSTM", 0x8e}, {"GRU", 14}, {"RNN", 14},          {"PRelu", 2},
};

static bool takes_weights(const struct node *node, int input) {
  for (size_t p = 0; p < sizeof weight_places / sizeof *weight_places; p++)
    if (strcmp(node->op->name, weight_places[p].op) == 0)
      return input < 8 && weight_places[p].inputs >> input & 1;
  return false;
}

void model_note_constants(struct model_builder *builder) {
  const struct graph *graph = builder->model->train;
  bool *is_weight = mem_new((size_t)graph->n_values);
  for (int n = 0; n < graph->n_nodes; n++)
    for (int i = 0; i < graph->nodes[n]->n_inputs; i++)
      if (graph->nodes[n]->inputs[i] >= 0 && takes_weights(graph->nodes[n], i))
        is_weight[graph->nodes[n]->inputs[i]] = true;
  for (int i = 0; i < builder->model->n_initializers; i++) {
    struct initializer_note *note = &builder->notes[i];
    const struct value *value = note->train_value >= 0 ? &graph->values[note->train_value] : NULL;
    if (!value)
      continue;
    note->is_constant = value->origin == ORIGIN_BUFFER ||
                        (value->origin == ORIGIN_EXPORTER && !is_weight[note->train_value] &&
                         strncmp(value->name, "embedding", strlen("embedding")) != 0);
  }
  free(is_weight);
}
