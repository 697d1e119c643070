/* Who reads a value of an ONNX graph. Branches are graphs in a graph; unpacking has bounded how deep they
 * lie. */
#include "model/onnx/onnx_uses.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

static bool node_uses(const Onnx__NodeProto *node, const char *name) {
  for (size_t i = 0; i < node->n_input; i++)
    if (strcmp(node->input[i], name) == 0)
      return true;
  for (size_t a = 0; a < node->n_attribute; a++)
    if (node->attribute[a]->g && onnx_is_used(node->attribute[a]->g, name))
      return true;
  return false;
}

bool onnx_is_used(const Onnx__GraphProto *graph, const char *name) {
  for (size_t n = 0; n < graph->n_node; n++)
    if (node_uses(graph->node[n], name))
      return true;
  return onnx_is_output(graph, name);
}

void onnx_rename_uses(Onnx__GraphProto *graph, const char *old, const char *new) {
  for (size_t n = 0; n < graph->n_node; n++) {
    Onnx__NodeProto *node = graph->node[n];
    for (size_t i = 0; i < node->n_input; i++)
      if (strcmp(node->input[i], old) == 0) {
        free(node->input[i]);
        node->input[i] = mem_strdup(new);
      }
    for (size_t a = 0; a < node->n_attribute; a++)
      if (node->attribute[a]->g)
        onnx_rename_uses(node->attribute[a]->g, old, new);
  }
}

bool onnx_is_output(const Onnx__GraphProto *graph, const char *name) {
  for (size_t i = 0; i < graph->n_output; i++)
    if (strcmp(graph->output[i]->name, name) == 0)
      return true;
  return false;
}

Onnx__NodeProto *onnx_producer(const Onnx__GraphProto *graph, const char *name) {
  for (size_t n = 0; n < graph->n_node; n++)
    for (size_t o = 0; o < graph->node[n]->n_output; o++)
      if (strcmp(graph->node[n]->output[o], name) == 0)
        return graph->node[n];
  return NULL;
}
